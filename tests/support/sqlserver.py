"""SQL Server behind the back of the code under test, with pyodbc."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.engines.sqlserver.login_and_tls import Login
from sqlqueue_spark.engines.sqlserver.odbc_driver import driver_of
from tests.support.engines import Engine, QueueTable, Session, address_of
from tests.support.messages import HEADERS, Row
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pyodbc

#: Where tokens come from (the option accessTokenProvider), if the url's login is a token.
TOKEN_PROVIDER_VARIABLE = "SQLQUEUE_TEST_TOKEN_PROVIDER"
_CREATE = """
CREATE TABLE {table} (
    Id uniqueidentifier NOT NULL, CorrelationId varchar(255), ReplyToAddress varchar(255),
    Recoverable bit NOT NULL, Expires datetime, Headers nvarchar(max) NOT NULL, Body varbinary(max),
    RowVersion bigint IDENTITY(1,1) NOT NULL);
"""
_CLASSIC = f"""{_CREATE}
CREATE CLUSTERED INDEX Index_RowVersion ON {{table}} (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON {{table}} (Expires) INCLUDE (Id, RowVersion);
"""
_HEAP = f"""{_CREATE}
CREATE NONCLUSTERED INDEX Index_RowVersion ON {{table}} (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON {{table}} (Expires) INCLUDE (Id, RowVersion)
  WHERE Expires IS NOT NULL;
"""
# Rows that are deleted under locks on rows leave their pages behind: a heap gives pages back only under a
# lock on the table. Portions of 1,000 do not become one. The numbers begin again at 1.
_BLOATED = f"""{_HEAP}
INSERT INTO {{table}} (Id, Recoverable, Headers, Body)
SELECT TOP (5000) NEWID(), 1, N'{{{{}}}}', CAST(REPLICATE(CAST('x' AS varchar(max)), 4000) AS varbinary(max))
FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b;
DECLARE @left int = 1;
WHILE @left > 0
BEGIN
    DELETE TOP (1000) FROM {{table}} WITH (ROWLOCK);
    SET @left = @@ROWCOUNT;
END;
DBCC CHECKIDENT (N'{{table}}', RESEED, 0) WITH NO_INFOMSGS;
"""
#: What queue tables are like in the field: the classic one, the heap of newer installers,
#: and a heap full of empty pages.
SHAPES = {"classic": _CLASSIC, "heap": _HEAP, "bloated heap": _BLOATED}
_FILL = """
WITH ten AS (SELECT n FROM (VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)) AS t (n)),
     numbers AS (
    SELECT TOP (CAST(? AS bigint))
           CAST(? AS bigint) - 1 + ROW_NUMBER() OVER (ORDER BY (SELECT NULL)) AS number
    FROM ten a, ten b, ten c, ten d, ten e, ten f),
     texts AS (
    SELECT number, CONCAT('0000', {hex}) AS hex,
           CONCAT('{{"order":', number, ',"note":"') AS start FROM numbers)
INSERT INTO {table} (Id, Recoverable, Expires, Headers, Body)
SELECT CONCAT('00000000-0000-4000-8000-', hex), 1, CAST(? AS datetime),
  REPLACE(CAST(? AS nvarchar(max)), '{{n}}', hex),
       CAST(CONCAT(CAST(start AS varchar(max)),
            REPLICATE(CAST('x' AS varchar(max)), ? - LEN(start) - 2), '"}}') AS varbinary(max))
FROM texts ORDER BY number;
"""
#: The hexadecimal digits of a number, in terms that every T-SQL knows.
_HEX = ", ".join(
    f"SUBSTRING('0123456789abcdef', CAST(number / {16**place} % 16 AS int) + 1, 1)"
    for place in range(7, -1, -1)
)
_TABLES = "SELECT s.name, t.name FROM sys.tables AS t JOIN sys.schemas AS s ON s.schema_id = t.schema_id"
_SCHEMAS = (
    "SELECT name FROM sys.schemas WHERE name NOT LIKE 'db[_]%' "
    "AND name NOT IN ('dbo', 'guest', 'sys', 'INFORMATION_SCHEMA', 'information_schema_tsql')"
)
_OUTPUT = "OUTPUT deleted.Id, deleted.Headers, deleted.Body, deleted.RowVersion, deleted.Expires"
_TAKE_NEXT = f"""
WITH message AS (
    SELECT TOP (1) * FROM {{table}} WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE Expires IS NULL OR Expires > GETUTCDATE() ORDER BY RowVersion)
DELETE FROM message {_OUTPUT};
"""
_TAKE_THIS = f"DELETE FROM {{table}} {_OUTPUT} WHERE RowVersion = ?"


@dataclass(frozen=True)
class SqlServerSession(Session):
    connection: "pyodbc.Connection"
    table: str

    def insert(self, count: int, *, start: int = 0, size: int = 64) -> range:
        return _fill(self.connection, self.table, count, start, size, None)

    def take(self, row_version: int | None = None) -> Row | None:
        if row_version is None:
            _require("deletes_through_cte", "honours_lock_hints")
            cursor = self.connection.execute(_TAKE_NEXT.format(table=self.table))
        else:
            cursor = self.connection.execute(_TAKE_THIS.format(table=self.table), row_version)
        found = cursor.fetchone()
        return _row(found) if found else None

    def lock(self, *row_versions: int) -> None:
        _require("honours_lock_hints")
        marks = ", ".join("?" * len(row_versions))
        statement = (
            f"SELECT Id, Expires FROM {self.table} WITH (UPDLOCK, ROWLOCK) WHERE RowVersion IN ({marks})"
        )
        assert len(self.connection.execute(statement, *row_versions).fetchall()) == len(row_versions)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class SqlServerQueue(QueueTable):
    def __init__(self, url: str, name: str, schema: str) -> None:
        self.name = name
        self.schema = schema
        self.address = address_of(name, schema)
        self.table = f"{quoted(schema)}.{quoted(name)}"
        self._url = url

    def insert(self, count: int, *, start: int = 0, size: int = 64, expires: datetime | None = None) -> range:
        with connected(self._url) as connection:
            numbers = _fill(connection, self.table, count, start, size, expires)
            connection.commit()
            return numbers

    def insert_row(
        self, *, id: UUID, headers: str | None, body: bytes | None, expires: datetime | None = None
    ) -> int:
        statement = (
            f"INSERT INTO {self.table} (Id, Recoverable, Expires, Headers, Body) OUTPUT inserted.RowVersion "
            "VALUES (?, 1, ?, ?, CAST(? AS varbinary(max)))"
        )
        # The time is bound as a text, because a server that is not SQL Server may take a
        # time to the second only.
        until = None if expires is None else expires.isoformat(timespec="milliseconds")
        with connected(self._url) as connection:
            row_version = connection.execute(statement, str(id), until, headers, body).fetchval()
            connection.commit()
            return int(row_version)

    def rows(self) -> list[Row]:
        statement = (
            f"SELECT Id, Headers, Body, RowVersion, Expires FROM {self.table} "
            "WITH (READPAST, READCOMMITTEDLOCK) ORDER BY RowVersion"
        )
        with connected(self._url) as connection:
            return [_row(found) for found in connection.execute(statement).fetchall()]

    def count(self) -> int:
        return len(self.row_versions())

    def execute(self, statement: str) -> None:
        with connected(self._url) as connection:
            _execute_all(connection, statement.format(table=self.table))
            connection.commit()

    @contextmanager
    def session(self) -> Iterator[SqlServerSession]:
        with connected(str(OdbcString.of(self._url).completed({"APP": "another program"}))) as connection:
            yield SqlServerSession(connection, self.table)

    @contextmanager
    def locked(self, *row_versions: int) -> Iterator[None]:
        with self.session() as session:
            session.lock(*row_versions)
            yield


class SqlServerEngine(Engine):
    name: ClassVar[str] = "sqlserver"
    default_schema: ClassVar[str] = "dbo"

    def __init__(self, url: str, shape: str = "classic") -> None:
        self.url = url
        self.shape = shape

    def create_queue(self, name: str = "orders", *, schema: str | None = None) -> SqlServerQueue:
        queue = self.queue(name, schema=schema)
        literal = queue.schema.replace("'", "''")
        create_schema = f"CREATE SCHEMA {quoted(queue.schema)}".replace("'", "''")
        self.execute(f"IF SCHEMA_ID(N'{literal}') IS NULL EXEC (N'{create_schema}')")
        queue.execute(SHAPES[self.shape])
        return queue

    def queue(self, name: str = "orders", *, schema: str | None = None) -> SqlServerQueue:
        return SqlServerQueue(self.url, name, schema or self.default_schema)

    def execute(self, statement: str) -> None:
        with connected(self.url, autocommit=True) as connection:
            _execute_all(connection, statement)

    def fetch(self, statement: str) -> Sequence[tuple[object, ...]]:
        with connected(self.url) as connection:
            return [tuple(row) for row in connection.execute(statement).fetchall()]

    def bytes_of(self, headers: str) -> int:
        from tests.support import lookalikes  # it imports this module

        return len(headers.encode("utf-16-le" if lookalikes.given().measures_utf16 else "utf-8"))

    def cut_connections(self) -> int:
        with connected(self.url, autocommit=True) as connection:
            return _kill(connection, "DB_ID()")


def opened(url: str, *, autocommit: bool = False) -> "pyodbc.Connection":
    """Open a connection over the ODBC driver that is there,
    which is found as the code under test finds it.
    """
    import pyodbc

    if provider := os.environ.get(TOKEN_PROVIDER_VARIABLE):
        login = Login.of(Target(url=url, access_token_provider=provider), pyodbc.drivers())
        return pyodbc.connect(str(login.text), autocommit=autocommit, attrs_before=dict(login.attributes))
    text = OdbcString.of(url)
    driver = driver_of(text, pyodbc.drivers())
    named = text.completed({"Driver": driver.name if driver else None})
    return pyodbc.connect(str(named), autocommit=autocommit)


@contextmanager
def connected(url: str, *, autocommit: bool = False) -> Iterator["pyodbc.Connection"]:
    """A connection; it is closed at the end of the block, and thereby rolled back."""
    connection = opened(url, autocommit=autocommit)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def fresh_database(server_url: str, name: str) -> Iterator[str]:
    """A new database of this name; yields its connection string.

    At the end of the block the database is dropped, even if sessions are still connected to it.
    """
    with connected(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {quoted(name)}")
    try:
        yield str(OdbcString.of(server_url).replaced({"Database": name}))
    finally:
        # Azure SQL Database knows no SINGLE_USER.
        with connected(server_url, autocommit=True) as connection:
            number = f"DB_ID(N'{name}')"
            _kill(connection, number)
            # A session ends only a while after KILL has returned.
            eventually(lambda: not _sessions(connection, number))
            connection.execute(f"DROP DATABASE {quoted(name)}")


def warned_of(url: str) -> None:
    """Let the package warn of a url now: it does so once in a process, and a test may count warnings."""
    import pyodbc

    Login.of(Target(url=url), pyodbc.drivers())


def set_row_versions(url: str, on: bool) -> None:
    """Set READ_COMMITTED_SNAPSHOT of a database; open transactions there are rolled back."""
    with connected(url, autocommit=True) as connection:
        setting = "ON" if on else "OFF"
        connection.execute(
            f"ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT {setting} WITH ROLLBACK IMMEDIATE"
        )


def emptied(url: str) -> str:
    """Make a database as good as new: end all other sessions,
    and drop the tests' tables and schemas; returns its url.
    """
    with connected(url, autocommit=True) as connection:
        _kill(connection, "DB_ID()")
        eventually(lambda: not _sessions(connection, "DB_ID()"))
        for schema, table in connection.execute(_TABLES).fetchall():
            connection.execute(f"DROP TABLE {quoted(schema)}.{quoted(table)}")
        for (schema,) in connection.execute(_SCHEMAS).fetchall():
            connection.execute(f"DROP SCHEMA {quoted(schema)}")
    return url


def is_sqlserver(connection: "pyodbc.Connection") -> bool:
    """Whether the server is SQL Server itself.

    SQL Server does not know the property Babelfish; others tell it.
    """
    return connection.execute("SELECT CAST(SERVERPROPERTY('Babelfish') AS int)").fetchval() is None


def _kill(connection: "pyodbc.Connection", database_id: str) -> int:
    """End every other session of a database."""
    sessions = _sessions(connection, database_id)
    for session in sessions:
        try:
            connection.execute(f"KILL {session}")
        except connection.Error:
            if session in _sessions(connection, database_id):
                raise
    return len(sessions)


def _sessions(connection: "pyodbc.Connection", database_id: str) -> list[int]:
    """The other sessions of a database."""
    found = connection.execute(
        "SELECT session_id FROM sys.dm_exec_sessions "
        f"WHERE database_id = {database_id} AND session_id <> @@SPID AND is_user_process = 1"
    )
    return [session for (session,) in found.fetchall()]


def quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"


def _require(*abilities: str) -> None:
    from tests.support import lookalikes  # it imports this module

    lookalikes.require(*abilities)


def _execute_all(connection: "pyodbc.Connection", statements: str) -> None:
    """Run statements and read all their results, because an error may stand behind the first result."""
    cursor = connection.execute(statements)
    while cursor.nextset():
        pass


def _fill(
    connection: "pyodbc.Connection", table: str, count: int, start: int, size: int, expires: datetime | None
) -> range:
    connection.execute(_FILL.format(table=table, hex=_HEX), count, start, expires, HEADERS, size)
    return range(start, start + count)


def _row(found: Any) -> Row:
    identifier, headers, body, row_version, expires = found
    return Row(id=UUID(identifier), headers=headers, body=body, row_version=row_version, expires=expires)
