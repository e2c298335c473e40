"""ODBC connection strings of SQL Server: read, made of a URL, completed with a driver and a login.

Formats: the connection strings of ODBC
(https://learn.microsoft.com/sql/odbc/reference/syntax/sqldriverconnect-function) with the keywords of
Microsoft's driver (https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute), and URLs
``mssql://user@host:1433/database?encrypt=yes``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlqueue_spark.engines.sqlserver.dialect import URL_SCHEME
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.did_you_mean import did_you_mean
from sqlqueue_spark.plain_text import splits_login

_PART = re.compile(r"[;\s]*+([^=;{}\s][^=;{}]*+)=\s*+(\{(?:[^}]|\}\})*\}\s*+|[^;{][^;]*+|)(?:;|$)")

#: What a URL may say after its question mark: options of Microsoft's driver. The driver itself ignores a
#: misspelled one.
_KEYWORDS = {"applicationname": "APP"} | {
    word.lower().replace("_", ""): word
    for word in """
    APP ApplicationIntent Authentication ConnectRetryCount ConnectRetryInterval Driver Encrypt
    HostNameInCertificate KeepAlive KeepAliveInterval MultiSubnetFailover ServerCertificate ServerSPN
    Trusted_Connection TrustServerCertificate WSID
    """.split()
}
#: Keywords that mean the same, under the one that we write.
_SYNONYMS = {
    "UID": ("uid", "user", "user id"),
    "PWD": ("pwd", "password"),
    "APP": ("app", "application name"),
    "Server": ("server", "address", "addr"),
}


@dataclass(frozen=True)
class OdbcString:
    """A connection string as its keywords and values, in their order."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, url: str) -> Self:
        """Read a connection string, or a URL.

        :raises ConfigurationError: the text is neither. The message never shows it: it may hold a password.
        """
        if url.lower().startswith(URL_SCHEME):
            return cls(tuple(_parts_of_url(url)))
        parts, end, last = [], 0, len(url.rstrip("; \t\n"))
        while end < last:
            if (match := _PART.match(url, end)) is None:
                raise ConfigurationError(
                    "The option url cannot be read as an ODBC connection string, "
                    "Server=host,1433;Database=…;Encrypt=yes; put values that hold ; or } between braces, "
                    "with each } doubled."
                )
            name, value = map(str.rstrip, match.groups())
            parts.append((name, value[1:-1].replace("}}", "}") if value.startswith("{") else value))
            end = match.end()
        return cls(tuple(parts))

    def get(self, name: str) -> str | None:
        """A keyword's value; where a keyword is given twice, the first one counts, as in ODBC."""
        names = _SYNONYMS.get(name, (name.lower(),))
        return next((value for given, value in self.parts if given.lower() in names), None)

    def completed(self, more: Mapping[str, str | None]) -> Self:
        """The string with these values added; a value that is there already stays, and None adds nothing."""
        added = ((name, value) for name, value in more.items() if value is not None)
        return type(self)((*self.parts, *(each for each in added if self.get(each[0]) is None)))

    def replaced(self, more: Mapping[str, str | None]) -> Self:
        """The string with these values in the place of those that it has; None changes nothing."""
        new = {name: value for name, value in more.items() if value is not None}
        gone = {each for name in new for each in _SYNONYMS.get(name, (name.lower(),))}
        return type(self)((*(part for part in self.parts if part[0].lower() not in gone), *new.items()))

    def __str__(self) -> str:
        """The text for a driver manager. Each value is in braces, so that it begins no other keyword."""
        return ";".join(f"{name}={{{value.replace('}', '}}')}}}" for name, value in self.parts)

    def __repr__(self) -> str:
        return f"OdbcString({', '.join(name for name, _ in self.parts)})"


def _parts_of_url(url: str) -> Iterable[tuple[str, str]]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if not host or splits_login(url):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            "The option url cannot be read as mssql://user@host:1433/database?encrypt=yes; correct it "
            "(special characters in a password are percent-encoded, or it goes into the option password)."
        ) from None
    yield "Server", f"{host},{port}" if port else host
    if database := unquote(parts.path.strip("/")):
        yield "Database", database
    for name, value in (("UID", parts.username), ("PWD", parts.password)):
        if value is not None:
            yield name, unquote(value)
    for given, value in parse_qsl(parts.query, keep_blank_values=True):
        word = given.lower().replace("_", "").replace(" ", "")
        if word not in _KEYWORDS:
            hint = did_you_mean(word, _KEYWORDS, f"it may say {', '.join(sorted(_KEYWORDS))}.")
            raise ConfigurationError(
                f"The url says {given!r} after its question mark, which no driver understands; {hint}"
            )
        yield _KEYWORDS[word], value
