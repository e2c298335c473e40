"""What a connection is to the rest of the package; the driver behind it does not show."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from sqlqueue_spark.engines.dialect import Dialect, Load
from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Sql, Statement
from sqlqueue_spark.engines.tokens import token_of
from sqlqueue_spark.errors import ConnectionLost, LockTimeout, RowsHeld, SqlQueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where to connect and as whom. Secrets stay out of ``repr``."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    access_token: str | None = field(default=None, repr=False)
    access_token_provider: str | None = None
    lock_timeout: timedelta = timedelta(seconds=30)
    #: How long a statement waits for a row of an unfinished batch. By then a server has noticed that the
    #: holder has vanished.
    relock_timeout: timedelta = timedelta(seconds=60)
    command_timeout: timedelta = timedelta(minutes=5)

    @classmethod
    def of(cls, options: ConnectionOptions) -> Target:
        given = options.lock_timeout
        return cls(
            url=options.url,
            user=options.user,
            password=options.password,
            access_token=options.access_token,
            access_token_provider=options.access_token_provider,
            command_timeout=options.command_timeout,
            **({} if given is None else {"lock_timeout": given, "relock_timeout": given}),
        )

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.url)

    @property
    def by_token(self) -> bool:
        """Whether a Microsoft Entra token is the login."""
        return self.access_token is not None or self.access_token_provider is not None

    def token(self) -> str | None:
        """The Microsoft Entra token to log in with now; None where a token is not the login.

        :raises ConfigurationError: its provider failed.
        """
        if self.access_token_provider is None:
            return self.access_token
        return token_of(self.access_token_provider, self.dialect.entra_scope)

    @property
    def timeouts(self) -> tuple[int, int]:
        """Lock and command timeout in milliseconds."""
        return _milliseconds(self.lock_timeout), _milliseconds(self.command_timeout)


class Connection(ABC):
    """One connection with at most one open transaction, which begins with the first statement."""

    #: The driver's connection.
    _raw: Any

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = target.dialect

    @abstractmethod
    def running(
        self, statement: Sql, parameters: Parameters, doing: str
    ) -> contextlib.AbstractContextManager[Any]:
        """Run a statement; gives the driver's cursor."""

    @abstractmethod
    def translated(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """In this block the driver's errors become ours."""

    def execute(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> list[Row]:
        """Run a statement and return all its rows; every result set is drained, as any may hide an error.

        :param statement: a plain text takes no parameters.
        :param parameters: by their names; other names are ignored.
        """
        with self.running(statement, parameters, doing) as cursor:
            rows: list[Row] = []
            while True:
                if cursor.description is not None:
                    rows = [tuple(row) for row in cursor.fetchall()]
                if not cursor.nextset():
                    return rows

    @abstractmethod
    def modify(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> int:
        """Run a statement and return how many rows it changed."""

    def maintain(self, statement: Statement, *, doing: str = "") -> None:
        """Run a statement outside of any transaction. Only an engine that has one of these implements it."""
        raise NotImplementedError

    @abstractmethod
    def load(self, statement: Statement, rows: Load, *, doing: str = "") -> int:
        """Run a statement that takes many rows, bound by the dialect, and return how many it wrote."""

    def commit(self) -> None:
        with self.translated("committing"):
            self._raw.commit()

    def rollback(self) -> None:
        with self.translated("rolling back"):
            self._raw.rollback()

    def close(self) -> None:
        """End the connection; what is not committed is rolled back. Never raises."""
        with contextlib.suppress(SqlQueueError), self.translated("closing"):
            self._raw.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit what the block did, or roll it back when it fails; the block's error is raised."""
        try:
            yield self
        except BaseException:
            try:
                self.rollback()
            except SqlQueueError:
                log.debug("rollback failed after an earlier error", exc_info=True)
            raise
        self.commit()

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the open transaction that is undone alone when it fails; rows locked before stay locked.

        Its statements may take as long as they need.

        :raises ConnectionLost: the server ended the whole transaction, or the server answers no more.
        """
        self._say("attempt_begin")
        try:
            with self.unhurried():
                self._say("attempt_unhurried")
                yield
                self._say("attempt_check")
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
    def unhurried(self) -> Iterator[None]:
        """In this block the driver cuts no statement off for taking long."""
        yield

    def _undo_attempt(self, error: BaseException) -> None:
        state = self._say("attempt_state")
        if state and state[0][0] != 1:
            raise ConnectionLost(
                f"The server ended the transaction in which a statement failed ({error})."
            ) from error
        self._say("attempt_undo")

    def _say(self, name: str) -> list[Row]:
        """Run a statement of the dialect without parameters; an empty one does nothing."""
        statement = self.dialect.statement(name)
        return self.execute(statement, doing="settling") if statement else []

    @contextlib.contextmanager
    def hasty(self, milliseconds: int) -> Iterator[Connection]:
        """A :meth:`transaction` in which no statement waits longer than this for a lock.

        :raises RowsHeld: a statement would have to wait longer.
        """
        try:
            with rows_awaited(), self.transaction():
                self._set_lock_timeout(milliseconds)
                yield self
        finally:
            if not self.dialect.lock_timeout_ends_with_transaction:
                self._set_lock_timeout(self.target.timeouts[0])

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """In this block a statement waits for rows of an unfinished batch (:attr:`Target.relock_timeout`)."""
        self._set_lock_timeout(_milliseconds(self.target.relock_timeout))
        yield  # after an error the transaction is rolled back, and its connection closed
        self._set_lock_timeout(self.target.timeouts[0])

    def hurry(self, milliseconds: int | None) -> None:
        """From here on, no statement waits longer than this for a lock; None is as long as the options say.

        With ``lock_timeout_ends_with_transaction`` of the dialect it holds until the transaction ends.
        """
        self._set_lock_timeout(self.target.timeouts[0] if milliseconds is None else milliseconds)

    @contextlib.contextmanager
    def rehearsal(self, milliseconds: int) -> Iterator[Connection]:
        """A :meth:`hasty` transaction that is rolled back in any case."""
        with contextlib.suppress(_RehearsedError), self.hasty(milliseconds):
            yield self
            raise _RehearsedError

    def _set_lock_timeout(self, milliseconds: int) -> None:
        statement = self.dialect.statement("lock_timeout").with_numbers({"lock_timeout": milliseconds})
        self.execute(statement, doing="setting how long locks are waited for")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


class _RehearsedError(Exception):
    """Ends a transaction that is not to be committed."""
