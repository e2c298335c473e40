"""Where a url leads: the hosts, the ports and the database that it names, found without any driver."""

import re
from urllib.parse import parse_qs, unquote

from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.plain_text import splits_login

Host = tuple[str, int]


def hosts(url: str) -> list[Host]:
    """The hosts and ports, in their order; none where the url does not name them.

    The url of a local socket, of a data source or of a named instance does not. A service on the host of a
    named instance tells its port.

    :raises ConfigurationError: the url cannot be read. The message never shows it: it may hold a password.
    """
    try:
        return _of_postgresql(url) if dialect_of(url).name == "postgresql" else _of_sqlserver(url)
    except ValueError:  # a port that is no number
        return []


def same_server(one: str, other: str) -> bool:
    """Whether two urls lead to the same hosts and ports. Urls that do not name them must be equal."""
    try:
        there = hosts(one)
        return one == other or (there != [] and there == hosts(other))
    except ConfigurationError:
        return one == other


def location(url: str) -> str:
    """The server and the database that a url names, without any login. Errors as of :func:`hosts`."""
    if dialect_of(url).name == "postgresql":
        named, database = _named(url)
        return ",".join(f"{host}:{port or 5432}" for host, port in named) + f"/{database}"
    return "/".join(filter(None, map(OdbcString.of(url).get, ("DSN", "Server", "Port", "Database"))))


def _of_postgresql(url: str) -> list[Host]:
    return [(host, int(port or 5432)) for host, port in _named(url)[0] if host[:1] not in ("", "/", "@")]


def _named(url: str) -> tuple[list[tuple[str, str]], str]:
    """Hosts or folders of sockets with their ports, and the database.

    Format: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS.
    """
    if splits_login(url):
        raise ConfigurationError(
            "The option url cannot be read as postgresql://user@host:port/database; percent-encode special "
            "characters in its user and password, or put the password into the option password."
        )
    # Not urlsplit(): some versions of Python take [::1] in a list of hosts for a mistake.
    place, _, query = url.partition("://")[2].partition("?")
    asked = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    place, _, database = place.partition("/")
    named = [_split(unquote(each)) for each in place.rpartition("@")[2].split(",")]
    ports = asked["port"].split(",") if "port" in asked else [port for _, port in named]
    given = (asked.get("hostaddr") or asked.get("host", ",".join(host for host, _ in named))).split(",")
    if len(ports) != len(given):  # one for all hosts
        ports = ports[:1] * len(given)
    return list(zip(given, ports, strict=True)), asked.get("dbname", unquote(database))


def _split(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:]*))(?::(?P<port>.*))?", text)
    return (match["six"] or match["host"] or "", match["port"] or "") if match else (text, "")


def _of_sqlserver(url: str) -> list[Host]:
    """Format: the keyword Server of https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute."""
    text = OdbcString.of(url)
    match = re.fullmatch(
        r"(?i)(?:(tcp|np|lpc|admin):)?([^\\,]*)(\\[^,]*)?(?:,(.*))?", text.get("Server") or ""
    )
    if match is None or (match[1] or "tcp").lower() != "tcp" or match[2].lower() in ("", "(localdb)"):
        return []
    port = match[4] or text.get("Port") or ("" if match[3] else "1433")
    host = "localhost" if match[2].lower() in (".", "(local)") else match[2].strip()
    return [(host, int(port))] if port else []
