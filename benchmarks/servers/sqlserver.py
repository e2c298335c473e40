"""SQL Server: the tables of the benchmarks, and one-row receivers and senders,
a process each, over pyodbc.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import ClassVar, NamedTuple

import pyodbc

from servers.base import DESTINATION, QUEUE, Jdbc, Server
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.engines.sqlserver.login_and_tls import tls_by_default
from sqlqueue_spark.engines.sqlserver.odbc_driver import driver_of

_TABLE = """(Id uniqueidentifier NOT NULL, CorrelationId varchar(255), ReplyToAddress varchar(255),
Recoverable bit NOT NULL, Expires datetime, Headers nvarchar(max) NOT NULL, Body varbinary(max),
RowVersion bigint IDENTITY(1,1) NOT NULL)"""
_COLUMNS = "Id, Recoverable, Headers, Body"
_HEADERS = (
    """N'{"NServiceBus.MessageId":"' + LOWER(CONVERT(nvarchar(36), NEWID())) + """
    """N'","NServiceBus.ConversationId":"' + LOWER(CONVERT(nvarchar(36), NEWID())) + """
    """N'","NServiceBus.EnclosedMessageTypes":"Sales.Messages.OrderPlaced, """
    """Sales.Messages","NServiceBus.ContentType":"application\\/json","NServiceBus.TimeSent":"2026-01-01 """
    """00:00:00:000000 Z"}'"""
)
_BODY = "CAST(REPLICATE(REPLACE(CONVERT(varchar(36), NEWID()), '-', ''), 12) AS varbinary(max))"
_DIGITS = "(VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9))"
_NUMBERS = f"""(SELECT
a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d + 1000000 * g.d + 1 AS n
FROM {_DIGITS} a(d) CROSS JOIN {_DIGITS} b(d) CROSS JOIN {_DIGITS} c(d) CROSS JOIN {_DIGITS} d(d)
CROSS JOIN {_DIGITS} e(d) CROSS JOIN {_DIGITS} f(d) CROSS JOIN {_DIGITS} g(d)) AS numbers"""
_RECEIVE_ONE = f"""WITH message AS (SELECT TOP (1) * FROM {QUEUE} WITH (UPDLOCK, READPAST, ROWLOCK)
  ORDER BY RowVersion)
DELETE FROM message OUTPUT deleted.Id, deleted.Expires, deleted.Headers, deleted.Body"""
_SEND_ONE = f"INSERT INTO {DESTINATION} ({_COLUMNS}) SELECT NEWID(), 1, {_HEADERS}, {_BODY}"


class ArrayInsert(NamedTuple):
    """How rows that are bound as an array reach the destination: for each array, then,
    and what is needed first.
    """

    each: str
    then: str = ""
    first: str = ""


_STRAIGHT = ArrayInsert(f"INSERT INTO {DESTINATION} ({_COLUMNS}) VALUES (?, ?, ?, ?)")
_STAGED = ArrayInsert(
    first="CREATE TABLE #rows (Number int IDENTITY(1,1) NOT NULL, Id uniqueidentifier NOT NULL, "
    "Recoverable bit NOT NULL, Headers nvarchar(4000) NOT NULL, Body varbinary(8000))",
    each=f"INSERT INTO #rows ({_COLUMNS}) VALUES (?, ?, ?, ?)",
    then=f"INSERT INTO {DESTINATION} ({_COLUMNS}) SELECT {_COLUMNS} FROM #rows ORDER BY Number; "
    "TRUNCATE TABLE #rows",
)
#: As many rows a transaction as our sink sends.
_CHUNK = SQLSERVER.written


class SqlServer(Server):
    """A SQL Server, or one that speaks its language; its database is the one of the connection string."""

    jdbc_driver: ClassVar[str] = "com.microsoft.sqlserver:mssql-jdbc:12.10.1.jre11"
    row_version: ClassVar[str] = "RowVersion"
    pasts: ClassVar[Mapping[str, bool | None]] = {"new": None, "10,000,000 came and went": True}

    def jdbc(self) -> Jdbc:
        given = OdbcString.of(self.url)
        host, _, port = (given.get("Server") or "").removeprefix("tcp:").partition(",")
        words = {"databaseName": "Database", "user": "UID", "password": "PWD", "encrypt": "Encrypt",
                 "trustServerCertificate": "TrustServerCertificate"}  # fmt: skip
        properties = {word: value for word, name in words.items() if (value := given.get(name)) is not None}
        for word in ("encrypt", "trustServerCertificate"):
            if word in properties:
                properties[word] = str(properties[word].lower() in ("yes", "true", "mandatory")).lower()
        driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
        return Jdbc(f"jdbc:sqlserver://{host}:{port or 1433}", {**properties, "driver": driver})

    def columns_to_append(self) -> Mapping[str, str]:
        return {"Id": "uuid()", "Recoverable": "true", "Headers": "Headers", "Body": "Body"}

    def bulk_inserts(self) -> Mapping[str, Callable[[int], float]]:
        ways = {"(b) rows bound as an array, by pyodbc": partial(self.array_insert, _STRAIGHT)}
        if self._binds_into_temporary_tables():
            ways["(b) rows bound as an array, into a temporary table first"] = partial(
                self.array_insert, _STAGED
            )
        return ways

    def fill(self, count: int, table: str = QUEUE, *, new_table: bool = True) -> None:
        if new_table:
            self._create(table)
        with self._connected() as connection:
            connection.execute(
                f"INSERT INTO [{table}] ({_COLUMNS}) SELECT TOP ({count}) NEWID(), 1, {_HEADERS}, {_BODY}"
                f" FROM {_NUMBERS}"
            )
        self.come_to_rest()

    def come_to_rest(self) -> None:
        with self._connected() as connection:
            connection.execute("CHECKPOINT")

    def come_and_go(self, count: int, table: str, *, forgotten: bool) -> None:
        assert forgotten, "nothing keeps this server from cleaning up"
        with self._connected() as connection:
            for _ in range(count // 500_000):
                connection.execute(
                    f"INSERT INTO [{table}] ({_COLUMNS}) SELECT TOP (500000) NEWID(), 1, N'', "
                    f"NULL FROM {_NUMBERS}"
                )
                connection.execute(f"DELETE FROM [{table}]")

    def take_half(self, *, at_random: bool) -> None:
        which = "ABS(CHECKSUM(Id)) % 2" if at_random else "RowVersion % 2"
        with self._connected() as connection:
            connection.execute(f"DELETE FROM {QUEUE} WHERE {which} = 0")

    def create_destination(self) -> None:
        self._create(DESTINATION)

    def empty_destination(self, endpoint: str, *others: str) -> None:
        with self._connected() as connection:
            for name in (DESTINATION, *others):
                connection.execute(f"TRUNCATE TABLE [{name}]")
            connection.execute(f"TRUNCATE TABLE [{endpoint}_OutboxData]")
        self.come_to_rest()

    def fill_outbox(self, endpoint: str, count: int) -> None:
        with self._connected() as connection:
            connection.execute(
                f"INSERT INTO [{endpoint}_OutboxData] (MessageId, Dispatched, DispatchedAt, "
                f"PersistenceVersion, Operations) SELECT TOP ({count}) CONVERT(nvarchar(36), NEWID()), 1, "
                f"GETUTCDATE(), '1', N'[]' FROM {_NUMBERS}"
            )

    @contextmanager
    def sending(self) -> Iterator[Callable[[], object]]:
        with self._connected() as connection:
            yield lambda: connection.execute(
                f"INSERT INTO [{QUEUE}] ({_COLUMNS}) SELECT TOP (1) NEWID(), 1, {_HEADERS}, "
                f"{_BODY} FROM {_NUMBERS}"
            )

    def scans(self) -> int:
        with self._connected() as connection:
            row = connection.execute(
                "SELECT COALESCE(SUM(user_seeks + user_scans + user_lookups), 0) FROM "
                "sys.dm_db_index_usage_stats WHERE database_id = DB_ID() AND object_id = "
                f"OBJECT_ID('{QUEUE}')"
            ).fetchone()
        return int(row[0])

    def delete_up_to(self, row_version: int) -> None:
        with self._connected(autocommit=False) as connection:
            connection.execute(f"DELETE FROM {QUEUE} WHERE RowVersion <= ?", row_version)
            connection.commit()

    def one_delete(self) -> float:
        with self._connected(autocommit=False) as connection:
            began = time.perf_counter()
            rows = connection.execute(
                f"DELETE FROM {QUEUE} OUTPUT deleted.Id, deleted.Expires, deleted.Headers, deleted.Body, "
                "deleted.RowVersion"
            ).fetchall()
            connection.commit()
            return len(rows) / (time.perf_counter() - began)

    def array_insert(self, way: ArrayInsert, count: int) -> float:
        """Messages a second of one client that binds rows in hand as arrays, a chunk a transaction."""
        with self._connected(autocommit=False) as connection:
            columns = "CONVERT(char(36), Id), Recoverable, Headers, Body"
            rows = connection.execute(f"SELECT TOP ({count}) {columns} FROM {QUEUE}").fetchall()
            connection.execute(f"TRUNCATE TABLE {DESTINATION}")
            if way.first:
                connection.execute(way.first)
            connection.commit()
            began = time.perf_counter()
            for start in range(0, len(rows), _CHUNK):
                _bind_as_array(connection, way.each, rows[start : start + _CHUNK])
                if way.then:
                    connection.execute(way.then)
                connection.commit()
            return len(rows) / (time.perf_counter() - began)

    def _binds_into_temporary_tables(self) -> bool:
        """Not every server that speaks TDS finds one again from a statement that is prepared."""
        with self._connected(autocommit=False) as connection:
            try:
                connection.execute(_STAGED.first)
                _bind_as_array(
                    connection, _STAGED.each, [("0" * 8 + "-0000-4000-8000-" + "0" * 12, 1, "{}", b"")]
                )
            except pyodbc.ProgrammingError:
                return False
        return True

    def one_row_receivers(self, connections: int, *, seconds: int) -> float:
        return self._rate(_RECEIVE_ONE, connections, seconds)

    def one_row_senders(self, connections: int, *, seconds: int) -> float:
        return self._rate(_SEND_ONE, connections, seconds)

    def _rate(self, statement: str, connections: int, seconds: int) -> float:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(connections, mp_context=context) as pool:
            each = [(self.url, statement, seconds)] * connections
            return sum(pool.map(_one_by_one, *zip(*each, strict=True)))

    def _create(self, table: str) -> None:
        with self._connected() as connection:
            connection.execute(f"DROP TABLE IF EXISTS [{table}]")
            connection.execute(f"CREATE TABLE [{table}] {_TABLE}")
            connection.execute(f"CREATE CLUSTERED INDEX Index_RowVersion ON [{table}] (RowVersion)")
            connection.execute(
                f"CREATE NONCLUSTERED INDEX Index_Expires ON [{table}] (Expires) INCLUDE (Id, RowVersion)"
            )

    @contextmanager
    def _connected(self, *, autocommit: bool = True) -> Iterator[pyodbc.Connection]:
        with closing(_connect(self.url, autocommit=autocommit)) as connection:
            yield connection


def _connect(url: str, *, autocommit: bool) -> pyodbc.Connection:
    given = OdbcString.of(url)
    driver = driver_of(given, pyodbc.drivers())
    if driver is not None:
        given = given.completed({"Driver": driver.name, **tls_by_default(driver)})
    return pyodbc.connect(str(given), autocommit=autocommit)


def _bind_as_array(connection: pyodbc.Connection, statement: str, rows: Sequence[Sequence[object]]) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.fast_executemany = True
        cursor.setinputsizes([
            (pyodbc.SQL_CHAR, 36, 0), (pyodbc.SQL_BIT, 0, 0), (pyodbc.SQL_WVARCHAR, 4000, 0),
            (pyodbc.SQL_VARBINARY, 8000, 0),
        ])  # fmt: skip
        cursor.executemany(statement, rows)


def _one_by_one(url: str, statement: str, seconds: int) -> float:
    """How often a second one process runs a statement, each time in a transaction of its own."""
    with closing(_connect(url, autocommit=False)) as connection:
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            cursor = connection.execute(statement)
            if cursor.description is not None:
                cursor.fetchall()
            connection.commit()
            count += 1
        return count / (time.perf_counter() - began)
