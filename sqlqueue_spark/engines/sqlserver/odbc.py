"""ODBC connection strings of SQL Server: read, made of a URL, completed with a driver and a login.

Formats: the connection strings of ODBC
(https://learn.microsoft.com/sql/odbc/reference/syntax/sqldriverconnect-function) with the keywords of
Microsoft's driver (https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute), and URLs
``mssql://user@host:1433/database?encrypt=yes``.
"""

import functools
import importlib.util
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlqueue_spark.engines.sqlserver.dialect import URL_SCHEME
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.did_you_mean import did_you_mean
from sqlqueue_spark.plain_text import splits_login
from sqlqueue_spark.version import pip_install

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


@dataclass(frozen=True, kw_only=True)
class Driver:
    """An ODBC driver: its name or its file, where it comes from, and the version of a driver of Microsoft."""

    name: str
    origin: str
    version: int | None = None

    @property
    def is_freetds(self) -> bool:
        return re.search("(?i)freetds|tdsodbc", self.name) is not None


NEWEST = 18
_MICROSOFTS = re.compile(r"ODBC Driver (1[78]) for SQL Server")
#: The wheels that hold Microsoft's driver, and where in them it lies:
#: libs/<system>/<distribution>/<processor>/lib.
_WHEELS = ("mssql_python_odbc", "mssql_python")
#: For all other distributions there is debian_ubuntu.
_DISTRIBUTIONS = {"rhel": "rhel", "fedora": "rhel", "suse": "suse", "alpine": "alpine"}


def find_driver(installed: Sequence[str]) -> Driver:
    """The driver for a connection string that names none.

    Microsoft's driver 18 or 17 if one is installed, else the one in Microsoft's wheel, else FreeTDS.

    :param installed: the names that the driver manager knows, as ``pyodbc.drivers()`` tells.
    :raises ConfigurationError: there is no driver; the message says how to get one.
    """
    found = {int(match[1]): name for name in installed if (match := _MICROSOFTS.fullmatch(name))}
    if found:
        version, name = max(found.items())
        return Driver(name=name, version=version, origin="installed")
    for wheel in _WHEELS:
        if (file := _inside(wheel)) is not None:
            return Driver(name=str(file), version=NEWEST, origin=f"wheel {wheel.replace('_', '-')}")
    free = next((name for name in installed if name.lower() == "freetds"), None)
    if free is None:
        raise ConfigurationError(
            "There is no ODBC driver for SQL Server; install Microsoft's with: "
            f"{pip_install('mssql')}, or its package msodbcsql18."
        )
    return Driver(name=free, origin="installed")


def driver_of(text: OdbcString, installed: Sequence[str]) -> Driver | None:
    """The driver that a connection is made with; None where a data source decides.

    :raises ConfigurationError: the connection string names no driver, and none is installed.
    """
    if (named := text.get("Driver")) is None:
        return None if text.get("DSN") is not None else find_driver(installed)
    match = _MICROSOFTS.fullmatch(named) or re.search(r"msodbcsql[-.]?(1[78])", named)
    return Driver(name=named, origin="named", version=int(match[1]) if match else None)


@functools.cache
def _inside(wheel: str) -> Path | None:
    """The file of Microsoft's driver for this system, inside a wheel."""
    spec = importlib.util.find_spec(wheel)  # this imports nothing: the wheel's own code would open libraries
    if spec is None or not spec.submodule_search_locations:
        return None
    processor = {"aarch64": "arm64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine())
    system = {"Linux": f"linux/{_distribution()}", "Darwin": "macos"}.get(platform.system())
    if system is None:
        return None
    folder = Path(spec.submodule_search_locations[0], "libs", system, processor, "lib")
    return next(iter(sorted(folder.glob("libmsodbcsql*"))), None)


def _distribution() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "debian_ubuntu"
    like = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((_DISTRIBUTIONS[each] for each in like if each in _DISTRIBUTIONS), "debian_ubuntu")


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
