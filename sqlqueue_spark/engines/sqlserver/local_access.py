"""What a url of SQL Server does beyond saying where the server is and which login is used.

A driver can be a file, which is loaded, or reach anything else than SQL Server; a server can be a pipe, to
which Windows logs in as this machine; some keywords name files that are read or written; and some logins are
those of this machine: https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute
"""

import re
from collections.abc import Collection, Iterator

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString

#: Keywords that can do no more than that, in lower case, without blanks and underscores.
_HARMLESS = frozenset(
    """
    ansinpw app applicationintent applicationname connectiontimeout connectretrycount connectretryinterval
    database encrypt encryption hostnameincertificate keepalive keepaliveinterval language logintimeout
    marsconnection multisubnetfailover packetsize password port pwd quotedid regional tdsversion timeout
    transparentnetworkipresolution trustservercertificate uid user userid wsid
    """.split()
)
#: A host, and perhaps an instance and a port: reached by TCP, and by no pipe or shared memory.
_BY_TCP = r"(tcp:)?\s*([\w.-]+|\(local\)|\[?[\da-f]*:[\da-f:.]+(%\w+)?\]?)\s*(\\[\w$#-]+)?\s*(,\s*\d+)?\s*"
#: The values of other keywords that can do no more.
_HARMLESS_VALUES = {
    **dict.fromkeys(("server", "address", "addr"), _BY_TCP),
    "network": "dbmssocn",
    "driver": r"ODBC Driver \d+ for SQL Server|FreeTDS",
    # Logins whose secret stands in the url.
    "authentication": "SqlPassword|ActiveDirectoryPassword|ActiveDirectoryServicePrincipal",
    "trustedconnection": "no|false|0|",
    "clientcharset": r"UTF-?8",
}
#: Keywords that bring a login of this machine, or may.
_LOGINS = {"authentication", "dsn", "filedsn", "trustedconnection"}
#: The login where none is named. Without one FreeTDS takes the Kerberos ticket of this machine.
_NO_LOGIN = "none"


def local_access(target: Target) -> Iterator[tuple[str, str]]:
    """The keywords that do more: what each is, and its name and value. No driver keeps passwords."""
    for keyword, value in OdbcString.of(target.url).parts:
        if not _is_harmless(keyword, value):
            yield "keyword of the url", f"{keyword}={value}"


def confined(target: Target, allowed: Collection[str]) -> str:
    text = OdbcString.of(target.url)
    said = {_plain(keyword) for keyword, value in text.parts if not _is_harmless(keyword, value)}
    if target.by_token or said & _LOGINS or "KRB5CCNAME" in allowed:  # beside a token no login may stand
        return target.url
    return str(text.replaced({"UID": text.get("UID") or _NO_LOGIN}))


def _is_harmless(keyword: str, value: str) -> bool:
    name = _plain(keyword)
    values = _HARMLESS_VALUES.get(name)
    return name in _HARMLESS or bool(values and re.fullmatch(values, value, re.IGNORECASE))


def _plain(keyword: str) -> str:
    return keyword.lower().replace(" ", "").replace("_", "")
