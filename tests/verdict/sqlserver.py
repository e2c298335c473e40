"""SQL Server as a place of experiments: databases with each setting, and queue tables of each shape."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyodbc

from tests.support.sqlserver import (
    SHAPES,
    TOKEN_PROVIDER_VARIABLE,
    SqlServerEngine,
    SqlServerQueue,
    connected,
    emptied,
    fresh_database,
    opened,
    quoted,
    set_row_versions,
)
from tests.verdict.places import LOCK_TIMEOUT_MS, Place, Refused, Rows, Session

NAME = "sqlserver"
TITLE = "SQL Server"
_NUMBER = re.compile(r"\((\d+)\)(?=\s*\(SQL\w+\)|; \[|$)")
_FACTS = (
    "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), CAST(SERVERPROPERTY('Edition') AS "
    "nvarchar(128)), CAST(SERVERPROPERTY('EngineEdition') AS int)"
)
#: NULL where the server does not know optimized locking:
#: https://learn.microsoft.com/sql/relational-databases/performance/optimized-locking
_OPTIMIZED = "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'IsOptimizedLockingOn') AS int)"
#: Azure SQL Database and Managed Instance, where optimized locking cannot be turned off.
_AZURE = (5, 8)


class SqlServerSession(Session):
    waited: ClassVar[str] = "1222"

    def __init__(self, url: str) -> None:
        pyodbc.pooling = False
        self._raw = opened(url)
        self._cursor: pyodbc.Cursor | None = None
        self.rows(f"SET LOCK_TIMEOUT {LOCK_TIMEOUT_MS}")
        (self.id,) = self.first("SELECT CAST(@@SPID AS int)")
        self.commit()

    def rows(self, statement: str, *values: object) -> Rows:
        rows: Rows = []
        with _refusing(), contextlib.closing(self._raw.cursor()) as cursor:
            cursor.execute(statement, *values)
            while True:  # an error can arrive after the first result
                if cursor.description is not None:
                    rows = [tuple(row) for row in cursor.fetchall()]
                if not cursor.nextset():
                    return rows

    def start(self, statement: str) -> None:
        """Run a statement and fetch its first row only, so that the server has not done with it."""
        self._cursor = self._raw.cursor()
        with _refusing():
            self._cursor.execute(statement)
            self._cursor.fetchone()

    def finish(self) -> None:
        """Give up what was started."""
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = None

    @contextlib.contextmanager
    def hurried(self, seconds: int) -> Iterator[None]:
        """In the block the driver cancels a statement that takes longer."""
        self._raw.timeout = seconds
        try:
            yield
        finally:
            self._raw.timeout = 0

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()

    def close(self) -> None:
        with contextlib.suppress(pyodbc.Error):  # closed already
            self._raw.close()


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except pyodbc.Error as error:
        state, text = error.args if len(error.args) == 2 else ("", str(error))
        numbers = _NUMBER.findall(text)
        raise Refused(numbers[0] if numbers and numbers[0] != "0" else str(state)) from error


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a database is set. ``optimized`` is None where the server knows no optimized locking."""

    row_versions: bool
    optimized: bool | None

    def __str__(self) -> str:
        said = [f"RCSI {'on' if self.row_versions else 'off'}"]
        if self.optimized is not None:
            said.append(f"optimized locking {'on' if self.optimized else 'off'}")
        return ", ".join(said)


class SqlServerPlace(Place):
    def __init__(self, url: str, shape: str, settings: Settings) -> None:
        super().__init__(SqlServerEngine(url, shape), f"{shape}, {settings}")
        self.url = url
        self.shape = shape
        self.settings = settings

    @property
    def login(self) -> dict[str, str]:
        provider = os.environ.get(TOKEN_PROVIDER_VARIABLE)
        return {"accessTokenProvider": provider} if provider else {}

    @property
    def is_heap(self) -> bool:
        return self.shape != "classic"

    def connect(self) -> SqlServerSession:
        return SqlServerSession(self.url)

    def sql_session(self) -> SqlServerSession:
        """As :meth:`session`, with what only this engine can do."""
        found = self.session()
        assert isinstance(found, SqlServerSession)
        return found

    def prepare(self) -> None:
        """Set the database as the place says, and drop the tables of the place before."""
        emptied(self.url)
        _set(self.url, self.settings)

    def new_queue(self, name: str) -> SqlServerQueue:
        assert isinstance(self.engine, SqlServerEngine)
        return self.engine.create_queue(name)


@contextlib.contextmanager
def places(server_url: str, *, scratch: bool) -> Iterator[list[SqlServerPlace]]:
    """Every shape under every setting, in one database that each of them prepares anew.

    :param scratch: use the url's own database, which must be empty, instead of making one and dropping it.
    """
    with _database(server_url, scratch=scratch) as url:
        yield [SqlServerPlace(url, shape, settings) for settings in _offered(url) for shape in SHAPES]
        emptied(url)


@contextlib.contextmanager
def _database(server_url: str, *, scratch: bool) -> Iterator[str]:
    if not scratch:
        with fresh_database(server_url, f"sqlqueue_verdict_{os.getpid()}") as url:
            yield url
        return
    with connected(server_url, autocommit=True) as connection:
        count = connection.execute("SELECT COUNT(*) FROM sys.tables WHERE is_ms_shipped = 0").fetchval()
    assert count == 0, (
        "The url's database has tables; a scratch database is empty, for its tables are dropped."
    )
    yield server_url


def _offered(url: str) -> Sequence[Settings]:
    """The settings that a database can have here."""
    with connected(url, autocommit=True) as connection:
        optimized = connection.execute(_OPTIMIZED).fetchval()
        edition = connection.execute(_FACTS).fetchone()[2]
    offered: tuple[bool | None, ...] = (None,) if optimized is None else (False, True)
    if edition in _AZURE and optimized is not None:
        offered = (bool(optimized),)
    return [Settings(row_versions=rcsi, optimized=each) for each in offered for rcsi in (False, True)]


def _set(url: str, settings: Settings) -> None:
    """Nothing here is refused by Azure SQL Database."""
    with connected(url, autocommit=True) as connection:
        now = connection.execute(_OPTIMIZED).fetchval()
        if settings.optimized is not None and bool(now) != settings.optimized:
            # Optimized locking stands on accelerated database recovery.
            words = ("ACCELERATED_DATABASE_RECOVERY", "OPTIMIZED_LOCKING")
            for word in words if settings.optimized else reversed(words):
                setting = "ON" if settings.optimized else "OFF"
                connection.execute(f"ALTER DATABASE CURRENT SET {word} = {setting} WITH ROLLBACK IMMEDIATE")
    set_row_versions(url, settings.row_versions)


def version(url: str) -> tuple[str, str]:
    """Version and edition of the server."""
    with connected(url) as connection:
        number, edition, _ = connection.execute(_FACTS).fetchone()
    return str(number), str(edition)


def name_of(queue: SqlServerQueue) -> str:
    return f"{quoted(queue.schema)}.{quoted(queue.name)}"
