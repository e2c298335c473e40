"""What a connection and a reader of rows are to the package; the driver behind them does not show."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlqueue_spark.engines.dialect import Dialect, Load
from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Sql, Statement
from sqlqueue_spark.engines.tokens import token_of
from sqlqueue_spark.errors import ConnectionLost, LockTimeout, RowsHeld, SqlQueueError
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.environment import of_libpq
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.row_set import RowSet

log = logger(__name__)

Row = tuple[Any, ...]
#: The caps of a record batch. A reader ends a batch when it reaches one of them.
RECORD_BATCH_ROWS = 10_000
RECORD_BATCH_BYTES = 8 << 20
#: How long a hasty look waits for a server, a lock or a statement.
_HASTE = timedelta(seconds=5)
#: How long a statement may take where code of strangers may run.
_HURRY_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where to connect and as whom. Secrets stay out of ``repr``."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    access_token: str | None = field(default=None, repr=False)
    access_token_provider: str | None = None
    lock_timeout: timedelta = timedelta(seconds=30)
    #: How long a statement waits for a row of an unfinished batch. By then a server has noticed that an idle
    #: holder has vanished.
    relock_timeout: timedelta = timedelta(seconds=60)
    command_timeout: timedelta = timedelta(minutes=5)
    #: What the url leaves out; see :attr:`ConnectionOptions.environment`.
    environment: tuple[tuple[str, str], ...] = field(default_factory=of_libpq, repr=False)
    #: Whether to give up after a few seconds, because what is asked for is advice.
    hasty: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, options: ConnectionOptions) -> Target:
        given = options.lock_timeout
        made = cls(
            url=options.url,
            user=options.user,
            password=options.password,
            access_token=options.access_token,
            access_token_provider=options.access_token_provider,
            command_timeout=options.command_timeout,
            environment=options.environment,
        )
        return made if given is None else replace(made, lock_timeout=given, relock_timeout=given)

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.url)

    def connect_seconds(self, usual: int) -> int:
        """How long to wait for a server's answer, where usually it is so long."""
        return _HASTE.seconds if self.hasty else usual

    @property
    def command_seconds(self) -> int:
        """``commandTimeout`` as drivers take it."""
        return max(1, int(self.command_timeout.total_seconds()))

    @property
    def by_token(self) -> bool:
        return self.access_token is not None or self.access_token_provider is not None

    def with_token(self) -> Target:
        """The same with the Microsoft Entra token that its provider gives now, if it has one.

        :raises ConfigurationError: its provider failed.
        """
        if self.access_token_provider is None:
            return self
        token = token_of(self.access_token_provider, self.dialect.entra_scope)
        return replace(self, access_token=token, access_token_provider=None)

    @property
    def timeouts(self) -> tuple[int, int]:
        """Lock and command timeout in milliseconds."""
        most = _HASTE if self.hasty else timedelta.max
        return _milliseconds(min(self.lock_timeout, most)), _milliseconds(min(self.command_timeout, most))


class Connection(contextlib.AbstractContextManager["Connection"]):
    """One connection with at most one open transaction, which begins with the first statement."""

    #: The driver's connection.
    _raw: Any
    #: In which encoding the database keeps its texts, as the database calls it, and as Python does.
    encoding = "UTF8"
    _codec = "utf-8"

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = target.dialect

    @property
    def holds_every_letter(self) -> bool:
        """Whether any letter can stand in a text of the database."""
        return self._codec == "utf-8"

    def holds(self, text: str) -> bool:
        """Whether this can be a text of the database. If not, nothing there has this name."""
        try:
            text.encode(self._codec)
        except UnicodeEncodeError:  # also half of a character
            return False
        return self.dialect.keeps_nul or "\0" not in text

    @abstractmethod
    def running(
        self, statement: Sql, parameters: Parameters, doing: str
    ) -> contextlib.AbstractContextManager[Any]:
        """Run a statement; gives the driver's cursor."""

    #: Whether a block of :meth:`transaction` is open, and how many of :meth:`attempt`.
    _within, _attempts = False, 0
    #: Whether a block of :meth:`hurried` is open.
    is_hurried = False
    #: Whether each statement first gives the session its settings back: code of strangers may have run there.
    renewing = False
    #: Counts what has freed locks: each end of a transaction, and each attempt that was undone.
    freed = 0

    @abstractmethod
    def translated(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """In this block the driver's errors become ours."""

    def execute(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> list[Row]:
        """Run a statement and return all its rows; every result set is drained, as any may hide an error.

        :param statement: a plain text takes no parameters. An empty one is not sent.
        :param parameters: by their names; other names are ignored.
        """
        if not statement:
            return []
        with self.running(statement, parameters, doing) as cursor:
            rows: list[Row] = []
            while True:
                if cursor.description is not None:
                    rows = [tuple(row) for row in cursor.fetchall()]
                if not cursor.nextset():
                    return rows

    @abstractmethod
    def modify(self, statement: Statement, parameters: Parameters = NOTHING, *, doing: str = "") -> int:
        """Run a statement and return how many rows it changed."""

    def maintain(self, statement: Statement, *, doing: str = "") -> None:
        """Run a statement outside of any transaction. Only an engine that has one of these implements it."""
        raise NotImplementedError

    @abstractmethod
    def load(self, statement: Statement, rows: Load, *, doing: str = "") -> int:
        """Run a statement that takes many rows, bound by the dialect, and return how many it wrote."""

    def commit(self) -> None:
        self.freed += 1
        with self.translated("committing"):
            self._raw.commit()

    def rollback(self) -> None:
        self.freed += 1
        with self.translated("rolling back"):
            self._raw.rollback()

    def close(self) -> None:
        """End the connection; what is not committed is rolled back. Never raises."""
        with contextlib.suppress(SqlQueueError), self.translated("closing"):
            self._raw.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit what the block did, or roll it back when it fails; the block's error is raised."""
        assert not self._within, "a transaction within another one would commit the other's half"
        self._within = True
        try:
            yield self
        except BaseException:
            self._within = False
            try:
                self.rollback()
            except SqlQueueError:
                log.debug("rollback failed after an earlier error", exc_info=True)
            raise
        self._within = False
        self.commit()

    def isolate(self, level: str) -> None:
        """Isolate the connection's transactions from now on, as the option ``isolationLevel`` says."""
        words = re.sub(r"\B(?=[A-Z])", " ", level).upper()
        with self.transaction():
            self.execute(self.dialect.statement("isolation").written_out({"level": words}))

    @contextlib.contextmanager
    def attempt(self, *, hurried: bool = False) -> Iterator[None]:
        """A part of the open transaction that is undone alone when it fails; rows locked before stay locked.

        Its statements may take as long as they need.

        :param hurried: they may not, and the attempt itself takes no snapshot of the database.
        :raises ConnectionLost: the server ended the whole transaction, or the server answers no more.
        """
        hurried = hurried or self.is_hurried
        self._attempts += 1
        try:
            self._say("attempt_begin")
            with self._undone(), contextlib.nullcontext() if hurried else self.cut_off(0):
                if not hurried:
                    self._limit(0)
                yield
                self._say("attempt_check")
            if not hurried and self._attempts == 1:
                self._limit(self.target.timeouts[1])
        finally:
            self._attempts -= 1

    @contextlib.contextmanager
    def hurried(self) -> Iterator[None]:
        """In this block a statement takes half a minute or ``commandTimeout`` at most, also within attempts.

        What runs there may be a stranger's, and other work waits for it.
        """
        before, self.is_hurried = self.is_hurried, True
        try:
            self._limit(min(_HURRY_SECONDS * 1000, self.target.timeouts[1]))
            with self.cut_off(min(_HURRY_SECONDS, self.target.command_seconds)):
                yield
        finally:
            self.is_hurried = before
            if self._attempts and not before:  # the block is a part of one
                with contextlib.suppress(SqlQueueError):  # an error may have ended the transaction
                    self._limit(0)

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """In this block an error undoes the attempt, but for one that has ended the whole transaction."""
        try:
            yield
        except ConnectionLost:
            raise
        except Exception as error:
            self._undo_attempt(error)
            raise
        except BaseException as error:  # an interrupt must not become the error of a lost connection
            with contextlib.suppress(SqlQueueError):
                self._undo_attempt(error)
            raise

    @contextlib.contextmanager
    def cut_off(self, seconds: int) -> Iterator[None]:  # noqa: ARG002 -- for drivers that can
        """Within, the driver cuts off statements that take longer than this; with 0 it cuts none off."""
        yield

    def _undo_attempt(self, error: BaseException) -> None:
        self.freed += 1
        state = self._say("attempt_state")
        # Microsoft's driver begins another transaction at once, which stands, but knows no savepoint.
        with contextlib.suppress(SqlQueueError):
            if not state or state[0][0] == 1:
                self._say("attempt_undo")
                return
        raise ConnectionLost(
            f"The server ended the transaction in which a statement failed ({error})."
        ) from error

    def _say(self, name: str) -> list[Row]:
        statement = self.dialect.render(name, attempt=self.dialect.quote(f"attempt {self._attempts}"))
        return self.execute(statement, doing="settling")

    def _limit(self, milliseconds: int) -> None:
        """From here on in the transaction, no statement takes longer; with 0 each as long as it needs."""
        timeout = {"statement_timeout": milliseconds}
        statement = self.dialect.statement("statement_timeout").with_numbers(timeout)
        self.execute(statement, doing="limiting how long statements take")

    @contextlib.contextmanager
    def hasty(self, milliseconds: int) -> Iterator[Connection]:
        """A :meth:`transaction` in which no statement waits longer than this for a lock.

        :raises RowsHeld: a statement would have to wait longer.
        """
        try:
            with rows_awaited(), self.transaction():
                self.hurry(milliseconds)
                yield self
        finally:
            if not self.dialect.lock_timeout_ends_with_transaction:
                self.hurry(None)

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """In this block a statement waits for rows of an unfinished batch (:attr:`Target.relock_timeout`)."""
        self.hurry(_milliseconds(self.target.relock_timeout))
        self._limit(0)  # else commandTimeout may strike first, and does not tell who holds the rows
        with self.cut_off(0):
            yield  # after an error the transaction is rolled back, and its connection closed
        self._limit(self.target.timeouts[1])
        self.hurry(None)

    def hurry(self, milliseconds: int | None) -> None:
        """From here on, no statement waits longer than this for a lock; None is as long as the options say.

        With ``lock_timeout_ends_with_transaction`` of the dialect it holds until the transaction ends.
        """
        wait = self.target.timeouts[0] if milliseconds is None else milliseconds
        statement = self.dialect.statement("lock_timeout").with_numbers({"lock_timeout": wait})
        self.execute(statement, doing="setting how long locks are waited for")

    @contextlib.contextmanager
    def rehearsal(self, milliseconds: int) -> Iterator[Connection]:
        """A :meth:`hasty` transaction that is rolled back in any case."""
        with self.hasty(milliseconds):
            yield self
            self.rollback()

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader(ABC):
    """A connection that reads rows as Arrow record batches, bounded in rows and bytes."""

    @abstractmethod
    def batches(
        self, statement: Statement, rows: RowSet, schema: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows from the first to the last of a set, in RowVersion order, in bounded batches.

        :param statement: reads a range; its parameters are ``first`` and ``last``.
        """

    @abstractmethod
    def take(self, statement: Statement, rows: RowSet, schema: pa.Schema) -> list[pa.RecordBatch]:
        """As many rows of that range as the set has; the delete is committed before this returns.

        :param statement: deletes them and returns them; it also has the parameter ``count``.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection. Never raises."""


def under(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch under this schema. Columns that it does not have are NULL, and timestamps are in UTC."""
    return pa.RecordBatch.from_arrays([_column(batch, each) for each in schema], schema=schema)


def _column(batch: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
    if wanted.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, wanted.type)
    return batch.column(wanted.name).cast(wanted.type)


def _milliseconds(time: timedelta) -> int:
    """At most what fits into the 32 bits that databases take."""
    return min(int(time.total_seconds() * 1000), (1 << 31) - 1)


@contextlib.contextmanager
def rows_awaited() -> Iterator[None]:
    """In this block a lock timeout is a :class:`RowsHeld`: its statements wait for rows that others hold.

    Anywhere else a lock timeout means that another session has locked the whole table for a while (a rebuild,
    a receive that took too many locks). Then the database gave way, and the same call may succeed later.
    """
    try:
        yield
    except LockTimeout as error:
        raise RowsHeld(str(error)) from error.__cause__
