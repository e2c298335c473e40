"""What is known of a database apart from its tables: name and clock, its server, open transactions."""

import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from sqlqueue_spark.engines.hosts import hosts
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.messages.addresses import Table


class Server(NamedTuple):
    """Who we are to a server, and what it is.

    Whether it knows all the statements of this package is told by what is measured of it (``what``), its
    value (``is_``), and the least value (``needed``).
    """

    login: str
    database: str
    version: str
    what: str
    is_: int
    needed: int


class OpenTransaction(NamedTuple):
    """An open transaction. A prepared one has no ``session``; a replication slot has ``program`` alone."""

    costs: str
    session: int | None
    login: str | None
    host: str | None
    program: str | None
    since: datetime | None
    #: The database's clock.
    now: datetime


def database(connection: Connection) -> str:
    """The database that the connection leads to."""
    return str(connection.execute(connection.dialect.statement("database"), {"catalog": ""})[0][0])


def identity(connection: Connection) -> str:
    """Which database the connection leads to, whatever its url is. It survives a fail-over and a new name."""
    return str(connection.execute(connection.dialect.statement("database_identity"))[0][0])


def to_create(connection: Connection, command: str) -> str:
    """In which database something is missing, without a secret of its url, and how to create it there."""
    there = "".join(f" at {host}:{port}" for host, port in hosts(connection.target.url)[:1])
    return (f"in the database {database(connection)!r}{there}; with that database's url (SQLQUEUE_URL or "
            f"--url) create it with: sqlqueue {command}")  # fmt: skip


def same_database(connection: Connection, one: str, other: str) -> bool:
    """Whether two names mean one database. Where only the case of letters differs, the server decides."""
    if one == other or one.casefold() != other.casefold():
        return one == other
    statement = connection.dialect.statement("database")
    first, second = (connection.execute(statement, {"catalog": each})[0][2] for each in (one, other))
    return first is not None and first == second


def are_one(one: Connection, other: Connection) -> bool:
    """Whether two connections lead to one database, whatever their urls are: one sees a lock of the other."""
    named, found = {"name": str(uuid.uuid4())}, []
    for connection in (one, other):
        with connection.transaction():
            found += connection.execute(connection.dialect.statement("first_reader"), named)
    return one is other or not found[1][0]


def now(connection: Connection) -> datetime:
    """The time by the database's clock."""
    moment: datetime = connection.execute(connection.dialect.statement("clock"))[0][0]
    return moment.replace(tzinfo=UTC)


def server(connection: Connection) -> Server:
    """The server that the connection leads to, and who we are there."""
    return Server(*connection.execute(connection.dialect.statement("server"))[0])


def open_transactions(connection: Connection, seconds: int) -> list[OpenTransaction]:
    """The oldest transactions of others in this database that this login sees, open at least this long."""
    statement = connection.dialect.statement("open_transactions")
    rows = connection.execute(statement, {"seconds": seconds}, doing="looking for open transactions")
    return [
        OpenTransaction._make((*who, since and since.replace(tzinfo=UTC), now.replace(tzinfo=UTC)))
        for *who, since, now in rows
    ]


def schema_exists(connection: Connection, table: Table, database: str) -> bool:
    dialect = connection.dialect
    statement = dialect.render("schema", catalog=dialect.quote(table.catalog or database))
    doing = f"looking for the schema of {table}"
    return bool(connection.execute(statement, {"schema": table.schema}, doing=doing))
