"""Outbox tables behind the back of the code under test, and databases that keep nothing else,
over any driver.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from tests.support.engines import Engine
from tests.support.sqlserver import connected

#: Counts the sessions of this database that wait for a lock of another session.
_BLOCKED = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
        "current_database()"
    ),
    "sqlserver": (
        "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id <> 0 AND database_id = DB_ID()"
    ),
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "oracle": "SELECT COUNT(*) FROM v$session WHERE blocking_session IS NOT NULL",
}


@dataclass(frozen=True)
class OutboxRows:
    """The rows of an endpoint's outbox table in a full engine."""

    engine: Engine
    endpoint: str = "Sales"

    @property
    def table(self) -> str:
        name = f"{self.endpoint}_OutboxData"
        return f'"public"."{name}"' if self.engine.name == "postgresql" else f"[dbo].[{name}]"

    def insert(
        self, id: str, *, dispatched: bool = True, age: timedelta = timedelta(0), version: str = "7.0.0.0"
    ) -> None:
        """Insert a row as a .NET endpoint leaves it.

        A row that is not dispatched gets a time only if ``age`` is given.
        """
        columns = self._quoted("MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations")
        when = self._ago(age) if dispatched or age else "NULL"
        truth = {"postgresql": str(dispatched), "sqlserver": str(int(dispatched))}[self.engine.name]
        self.engine.execute(
            f"INSERT INTO {self.table} ({columns}) VALUES ('{id}', {truth}, {when}, '{version}', '[]')"
        )

    def age(self, by: timedelta) -> None:
        """Make all dispatched rows this old."""
        column, dispatched = self._quoted("DispatchedAt"), self._quoted("Dispatched")
        truth = {"postgresql": dispatched, "sqlserver": "Dispatched = 1"}[self.engine.name]
        self.engine.execute(f"UPDATE {self.table} SET {column} = {self._ago(by)} WHERE {truth}")

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Of each row: id, whether it is dispatched, seconds since then, version, operations."""
        seconds = {
            "postgresql": "extract(epoch FROM now() AT TIME ZONE 'UTC' - \"DispatchedAt\")::int",
            "sqlserver": "DATEDIFF(second, DispatchedAt, GETUTCDATE())",
        }[self.engine.name]
        text = {"postgresql": '"Operations"::text', "sqlserver": "Operations"}[self.engine.name]
        columns = self._quoted("MessageId, Dispatched, PersistenceVersion")
        return self.engine.fetch(
            f"SELECT {columns}, {seconds}, {text} FROM {self.table} ORDER BY {self._quoted('MessageId')}"
        )

    def ids(self) -> set[str]:
        return {row[0] for row in self.rows()}

    def message_ids(self) -> list[str]:
        """The ids of the messages that sinks have sent, if these are plain;
        one that went to two queues comes twice.
        """
        return sorted(key.partition(">")[0] for key in self.ids())

    @contextmanager
    def locked(self, id: str) -> Iterator[None]:
        """Within the block another session holds this row."""
        if self.engine.name == "postgresql":
            with psycopg.connect(self.engine.url, client_encoding="utf8") as connection:
                found = connection.execute(
                    f"SELECT 1 FROM {self.table} WHERE \"MessageId\" = '{id}' FOR UPDATE".encode()
                ).fetchall()
                assert len(found) == 1
                yield
            return
        with connected(self.engine.url) as other:
            statement = (
                f"SELECT Operations FROM {self.table} WITH (UPDLOCK, ROWLOCK) WHERE MessageId = '{id}'"
            )
            assert len(other.execute(statement).fetchall()) == 1
            yield

    def blocked(self) -> bool:
        """Whether a session waits for another."""
        return self.engine.fetch(_BLOCKED[self.engine.name])[0][0] != 0

    def _ago(self, age: timedelta) -> str:
        seconds = int(age.total_seconds())
        return {
            "postgresql": f"now() AT TIME ZONE 'UTC' - interval '{seconds} seconds'",
            "sqlserver": f"DATEADD(second, {-seconds}, GETUTCDATE())",
        }[self.engine.name]

    def _quoted(self, columns: str) -> str:
        if self.engine.name != "postgresql":
            return columns
        return ", ".join(f'"{column}"' for column in columns.split(", "))


@dataclass(frozen=True)
class OutboxDatabase:
    """A new database of any of the four engines. ``open`` connects to it as a user of its driver does."""

    name: str
    open: Callable[[], Any]

    def execute(self, *statements: str) -> None:
        """Run some statements and commit."""
        with self.connected() as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connected() as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection; it is closed at the end of the block, and thereby rolled back."""
        with closing(self.open()) as connection:
            yield connection

    def blocked(self) -> bool:
        """Whether a session waits for another."""
        return bool(self.fetch(_BLOCKED[self.name])[0][0])

    def run_script(self, script: str) -> None:
        """Run a script as an administrator's tool does."""
        if self.name == "sqlserver":
            parts = script.split("\nGO\n")
        elif self.name == "oracle":
            parts = script.split("\n/\n")
        else:
            parts = script.split(";\n")
        self.execute(*(part for part in parts if part.strip()))
