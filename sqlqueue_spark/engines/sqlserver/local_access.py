"""What a url of SQL Server does beyond saying where the server is and which login is used.

A driver can be a file, which is loaded; some keywords name files that are read or written; and some logins
are those of this machine: https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlqueue_spark.engines.sqlserver.odbc import OdbcString

#: Keywords that can do no more than that, in lower case, without blanks and underscores.
_HARMLESS = frozenset(
    """
    addr address ansinpw app applicationintent applicationname clientcharset connectiontimeout
    connectretrycount connectretryinterval database encrypt encryption hostnameincertificate keepalive
    keepaliveinterval language logintimeout marsconnection multisubnetfailover network packetsize password
    port pwd quotedid regional server tdsversion timeout transparentnetworkipresolution
    trustservercertificate uid user userid wsid
    """.split()
)
#: Logins whose secret stands in the url.
_OWN_LOGINS = ("sqlpassword", "activedirectorypassword", "activedirectoryserviceprincipal")
_NO = ("no", "false", "0", "")


def local_access(
    url: str,
    *,
    password: bool,  # noqa: ARG001 -- no driver keeps passwords
) -> Iterator[tuple[str, str]]:
    """The keywords that do more, each with its value.

    :raises ConfigurationError: the url cannot be read. The message never shows it.
    """
    for keyword, value in OdbcString.of(url).parts:
        name = keyword.lower().replace(" ", "").replace("_", "")
        harmless = (
            name in _HARMLESS
            or (name == "driver" and "/" not in value and "\\" not in value)
            or (name == "authentication" and value.lower() in _OWN_LOGINS)
            or (name == "trustedconnection" and value.lower() in _NO)
        )
        if not harmless:
            yield f"{keyword} of the url", value
