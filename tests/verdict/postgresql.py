"""PostgreSQL as a place of experiments."""

import contextlib
import os
from collections.abc import Iterator
from typing import ClassVar

import psycopg

from tests.support.postgresql import PostgresEngine, PostgresQueue, fresh_database
from tests.verdict.places import LOCK_TIMEOUT_MS, Place, Refused, Rows, Session

NAME = "postgresql"
TITLE = "PostgreSQL"
SHAPE = "classic"


class PostgresSession(Session):
    waited: ClassVar[str] = "55P03"

    def __init__(self, url: str) -> None:
        self._raw = psycopg.connect(url, options=f"-c lock_timeout={LOCK_TIMEOUT_MS}")

    def rows(self, statement: str, *values: object) -> Rows:
        try:
            cursor = self._raw.execute(statement.encode(), values or None)
        except psycopg.Error as error:
            raise Refused(error.sqlstate or type(error).__name__) from error
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()

    def close(self) -> None:
        self._raw.close()


class PostgresPlace(Place):
    def connect(self) -> PostgresSession:
        return PostgresSession(self.engine.url)

    def new_queue(self, name: str) -> PostgresQueue:
        assert isinstance(self.engine, PostgresEngine)
        return self.engine.create_queue(name)


@contextlib.contextmanager
def places(server_url: str) -> Iterator[list[PostgresPlace]]:
    """Three databases: for the rules, the plans and the locks. They are dropped after the block.

    Row locks do not depend on the shape of a table here, so there is one shape.
    """
    with contextlib.ExitStack() as databases:
        found = []
        for purpose in ("rules", "plans", "held"):
            name = f"sqlqueue_verdict_{purpose}_{os.getpid()}"
            url = databases.enter_context(fresh_database(server_url, name))
            found.append(PostgresPlace(PostgresEngine(url), SHAPE))
        yield found


def version(server_url: str) -> str:
    """The server's version, without the words of who packed it."""
    with psycopg.connect(server_url) as connection:
        row = connection.execute("SHOW server_version").fetchone()
    assert row is not None
    return str(row[0]).split()[0]
