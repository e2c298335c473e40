"""Where experiments are carried out: a database with queue tables of one shape,
and sessions that do not wait for long.
"""

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Self

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.options import ConnectionOptions
from tests.support.engines import Engine, QueueTable

#: How long a session waits for a lock. A session that has waited this long is said to wait.
LOCK_TIMEOUT_MS = 100
Rows = list[tuple[Any, ...]]


class Refused(Exception):
    """The server refused a statement. ``code`` is its own number or state of the error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Session(ABC):
    """One connection with at most one open transaction."""

    #: The code of the error of a statement that would have had to wait longer for a lock.
    waited: ClassVar[str]

    @abstractmethod
    def rows(self, statement: str, *values: object) -> Rows:
        """The rows of the last result; none where a statement has no result.

        :raises Refused: the server refused it.
        """

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def first(self, statement: str, *values: object) -> list[Any]:
        """The first column of each row."""
        return [row[0] for row in self.rows(statement, *values)]

    def code(self, statement: str, *values: object) -> str:
        """The code of the error with which the server refuses a statement; empty where it does not."""
        try:
            self.rows(statement, *values)
        except Refused as refused:
            return refused.code
        return ""

    def waits(self, statement: str, *values: object) -> bool:
        """Whether a statement has to wait for a lock.

        :raises Refused: the server refuses it for another reason.
        """
        code = self.code(statement, *values)
        if code not in ("", self.waited):
            raise Refused(code)
        return code == self.waited

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Place(ABC):
    """A database of its own, whose queue tables have one shape."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.engine = engine
        self.where = where
        self._sessions = contextlib.ExitStack()
        self._numbers = itertools.count(1)

    @property
    def login(self) -> dict[str, str]:
        """The options of the package that log in beside the url."""
        return {}

    def target(self, **timeouts: timedelta) -> Target:
        """Where the package connects to."""
        given = ConnectionOptions.parse({"url": self.engine.url, **self.login})
        return replace(Target.of(given), **timeouts)  # type: ignore[arg-type] # they are all timeouts

    @abstractmethod
    def connect(self) -> Session: ...

    @abstractmethod
    def new_queue(self, name: str) -> QueueTable:
        """An empty queue table of the place's shape."""

    def session(self) -> Session:
        """A session that ends with the experiment at the latest."""
        return self._sessions.enter_context(self.connect())

    def queue(self, rows: int = 3, *, size: int = 64) -> Any:
        """A new queue table with this number of rows, numbered from 1; its name, quoted, is ``table``."""
        queue = self.new_queue(f"q{next(self._numbers)}")
        if rows:
            queue.insert(rows, size=size)
        return queue

    @contextlib.contextmanager
    def experiment(self) -> Iterator[Self]:
        """At the end of the block all sessions are closed."""
        with self._sessions:
            yield self
