"""What a connection is to the rest of the package, whichever driver stands behind it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, Self

from sqlqueue_spark.engines.registry import Dialect, Kind, Load, dialect_of
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Sql, Statement
from sqlqueue_spark.engines.tokens import token_of
from sqlqueue_spark.errors import (
    ConfigurationError,
    ConnectionLost,
    Duplicate,
    LockTimeout,
    NoPassword,
    NoRight,
    NotReady,
    QueueError,
    RowsHeld,
    SessionTooMuch,
    SqlQueueError,
    TooMuch,
    TryAgain,
)
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

Row = tuple[Any, ...]

#: A reader ends a record batch and yields it when the batch holds so many rows or so many bytes.
BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where to connect and as whom. Secrets stay out of ``repr``."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    access_token: str | None = field(default=None, repr=False)
    access_token_provider: str | None = None
    lock_timeout: timedelta = timedelta(seconds=30)
    #: How long a row of an unfinished batch is waited for: longer than a server takes to notice that its holder has vanished.
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

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = target.dialect

    @abstractmethod
    def execute(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> list[Row]:
        """Run a statement and return all its rows; every result set is drained.

        :param statement: a plain text runs as it stands, without parameters.
        :param parameters: by their names; those that the statement does not have are left out.
        """

    @abstractmethod
    def modify(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> int:
        """Run a statement and return how many rows it changed."""

    def maintain(self, statement: Statement, *, doing: str = "") -> None:
        """Run a statement that no transaction may hold, where none is open: an engine that has such a statement says how."""
        raise NotImplementedError

    @abstractmethod
    def load(self, statement: Statement, rows: Load, *, doing: str = "") -> int:
        """Run a statement that takes many rows as the dialect binds them, and return how many rows it wrote."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End the connection; what is not committed is rolled back. Never raises."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit what the block did, or roll it back when it fails; the block's error wins over an error of the rollback."""
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
        """A part of the open transaction that is undone alone when it fails; rows that were locked before it stay locked.

        Its statements may take as long as they need.

        :raises ConnectionLost: the server ended the whole transaction, or nobody answers any more.
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
        """Run a statement of the dialect that takes no parameters; where it has no text, there is nothing to do."""
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
        """In this block, a statement waits for the rows of an unfinished batch (:attr:`Target.relock_timeout`)."""
        self._set_lock_timeout(_milliseconds(self.target.relock_timeout))
        yield  # after an error the transaction is rolled back, and its connection closed
        self._set_lock_timeout(self.target.timeouts[0])

    def hurry(self, milliseconds: int | None) -> None:
        """From here on, no statement waits longer than this for a lock; None is as long as the options say.

        Where the dialect says so (``lock_timeout_ends_with_transaction``), it holds until the transaction ends.
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
    """In this block statements are meant to wait for what others hold, so a lock timeout there is a :class:`RowsHeld`.

    Anywhere else a lock timeout means that somebody has locked the whole table for a while (a rebuild, a receive that took
    too many locks). Then the database gave way, and the same call may succeed later.
    """
    try:
        yield
    except LockTimeout as error:
        raise RowsHeld(str(error)) from error.__cause__


class _RehearsedError(Exception):
    """Ends a transaction that is not to be committed."""


class Reader(ABC):
    """A connection that reads rows as Arrow record batches."""

    @abstractmethod
    def batches(
        self, statement: Statement, between: tuple[int, int], schema: pa.Schema, *, small: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows between two RowVersions, both included, in RowVersion order, in batches bounded in rows and bytes.

        :param statement: reads such a range; its parameters are ``first`` and ``last``.
        :param small: every row of the range was small (:attr:`Dialect.small_row`) when somebody last looked at it. The
            reader may read these rows faster then. It still reads a row that has become larger.
        """

    @abstractmethod
    def take(
        self, statement: Statement, parameters: Mapping[str, int], schema: pa.Schema
    ) -> list[pa.RecordBatch]:
        """The rows that a statement deletes and returns; when this method returns, the delete is committed."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. Never raises."""


def under(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch under exactly this schema: columns that the statement did not return are NULL, and timestamps are in UTC."""
    return pa.RecordBatch.from_arrays([_column(batch, each) for each in schema], schema=schema)


def _column(batch: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
    if wanted.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, wanted.type)
    column = batch.column(wanted.name)
    return column if column.type == wanted.type else column.cast(wanted.type)


#: Which error the caller gets for each kind of failure, and its sentence.
_SENTENCES: dict[Kind, tuple[type[SqlQueueError], str]] = {
    Kind.LOGIN_REFUSED: (
        ConfigurationError,
        "The database at {where} refused the login of user {user}; check user and password.",
    ),
    Kind.NO_PASSWORD: (
        NoPassword,
        (
            "The database at {where} refused the login of user {user}, for whom no password is given; put it into the environment "
            "(SQLQUEUE_PASSWORD, and this url as SQLQUEUE_URL), or give it as option password."
        ),
    ),
    Kind.NOT_ADMITTED: (
        ConfigurationError,
        (
            "The server at {where} does not let user {user} in from this machine ({said}); have an administrator add a line to its "
            "pg_hba.conf, or, where it asks for encryption or a certificate, say so in the url (sslmode=require, sslcert)."
        ),
    ),
    Kind.NO_USER: (
        ConfigurationError,
        "There is no user {user} at {where} ({said}); correct the user, or have an administrator create it.",
    ),
    Kind.NO_LOGIN: (
        ConfigurationError,
        "User {user} may not log in at {where} ({said}); have an administrator allow it (ALTER ROLE … LOGIN), or take another user.",
    ),
    Kind.ONLY_LOCAL_USER: (
        ConfigurationError,
        (
            "The server at {where} takes the operating system's user for the login, and {user} is another one ({said}); name a host "
            "in the url and give a password, or log in as the user that runs this."
        ),
    ),
    Kind.NO_ENCRYPTION: (
        ConfigurationError,
        (
            "The url asks for encryption, which the server at {where} does not offer ({said}); have it turned on there, or say "
            "sslmode=prefer if messages and password may cross the network in the clear."
        ),
    ),
    Kind.OTHER_SERVER: (
        ConfigurationError,
        "What answers at {where} is no PostgreSQL server ({said}); correct host and port.",
    ),
    Kind.TOO_MANY: (
        ConnectionLost,
        (
            "The server at {where} has no connection left for user {user} ({said}); end some, lower maxConcurrency, or have "
            "max_connections or the user's limit raised."
        ),
    ),
    Kind.TOKEN_REFUSED: (
        ConfigurationError,
        (
            "The database at {where} refused the Microsoft Entra token ({said}); get a fresh one (accessTokenProvider gets one "
            "for each connection), and see that the database has a user for it."
        ),
    ),
    Kind.NOT_TRUSTED: (
        ConfigurationError,
        (
            "The certificate of {where} is not trusted ({said}); install the authority that signed it, or correct what the url "
            "says of it (hostNameInCertificate, trustServerCertificate; sslmode, sslrootcert)."
        ),
    ),
    Kind.SHARED_SESSION: (
        ConfigurationError,
        (
            "The connection pooler at {where} shares sessions among connections, so that timeouts, plans and durable commits are "
            "not kept; let the url lead to the server itself, or have whole sessions pooled (PgBouncer: pool_mode = session)."
        ),
    ),
    Kind.WRONG_URL: (ConfigurationError, "The driver does not understand the url ({said}); correct it."),
    Kind.NO_DATABASE: (ConfigurationError, "There is no such database at {where} ({said}); correct the url."),
    Kind.OTHER_DATABASE: (
        ConfigurationError,
        (
            "The database at {where} reaches no other database of its server{while_} ({said}); let the url lead to the database "
            "of the queue, or take the database out of the address."
        ),
    ),
    Kind.NOT_UNDERSTOOD: (
        ConfigurationError,
        (
            "The database at {where} does not understand a statement of this package{while_} ({said}); it must be SQL Server "
            "2016 or later with a compatibility level of 130 or more: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130."
        ),
    ),
    Kind.NO_CONNECT: (
        ConfigurationError,
        "User {user} may not connect to the database at {where} ({said}); have an administrator grant CONNECT on the database.",
    ),
    Kind.NO_RIGHT: (
        NoRight,
        (
            "User {user} lacks a right at {where}{while_} ({said}); a receiver needs SELECT, DELETE (and UPDATE on "
            "PostgreSQL, to lock rows) on its queue, a sender INSERT (and USAGE on the sequence of a PostgreSQL queue)."
        ),
    ),
    Kind.NO_TABLE: (
        QueueError,
        "The table is not there{while_} at {where} ({said}); create it with: sqlqueue create QUEUE.",
    ),
    Kind.WRONG_SHAPE: (
        QueueError,
        "The table is not shaped like a queue table{while_} ({said}); see what is wrong with: sqlqueue inspect QUEUE.",
    ),
    Kind.NOT_REACHED: (
        ConnectionLost,
        "No database answers at {where} ({said}); check host, port and that the server runs.",
    ),
    Kind.NOT_READY: (
        NotReady,
        "The database at {where} is not ready yet ({said}); wait until it has started, and see that nobody has paused it.",
    ),
    Kind.CONNECTION_LOST: (ConnectionLost, "The connection to {where} was lost{while_} ({said})."),
    Kind.LOCK_TIMEOUT: (
        LockTimeout,
        "Rows, or their whole table, stayed locked by someone else{while_}; try again or raise lockTimeout.",
    ),
    Kind.TIMED_OUT: (
        TryAgain,
        "A statement ran into commandTimeout{while_} ({said}); try again or raise it.",
    ),
    Kind.DUPLICATE: (
        Duplicate,
        "A key is there already{while_} ({said}): somebody else was first; try again.",
    ),
    Kind.GAVE_WAY: (TryAgain, "The database gave way{while_} ({said}); try again."),
    Kind.TOO_LARGE: (
        TooMuch,
        "The database had not enough memory or locks{while_} ({said}); try again, or lower maxMessagesPerTrigger.",
    ),
    Kind.SESSION_TOO_LARGE: (
        SessionTooMuch,
        "The database ended the session, because it took too much{while_} ({said}); try again, or lower maxMessagesPerTrigger.",
    ),
}
#: What a database may say, while it fails over, of a login that was right before.
_MAY_PASS = (
    *(
        Kind.LOGIN_REFUSED,
        Kind.NO_PASSWORD,
        Kind.TOKEN_REFUSED,
        Kind.NO_DATABASE,
        Kind.NOT_ADMITTED,
        Kind.NO_USER,
    ),
    *(Kind.NO_LOGIN, Kind.NO_CONNECT, Kind.ONLY_LOCAL_USER, Kind.NO_ENCRYPTION, Kind.OTHER_SERVER),
)
_OTHER = (SqlQueueError, "The database at {where} refused{while_}: {said}.")


@dataclass(frozen=True, kw_only=True)
class ExplainedError:
    """A driver's error as we read it: what it means, where it happened, and the words that must not be shown."""

    kind: Kind
    text: str
    where: str
    user: str
    secrets: tuple[str, ...] = ()
    doing: str = ""

    def raise_from(self, cause: BaseException) -> NoReturn:
        """Raise the package's error for it, with the driver's error as the cause."""
        raise self.error() from self._harmless(cause)

    def error(self) -> SqlQueueError:
        """The error for the caller: a sentence with the remedy, and no secret."""
        said = self.scrub(
            self.text.strip().splitlines()[0] if self.text.strip() else "no reason given"
        ).rstrip(".")
        while_ = f" while {self.doing}" if self.doing else ""
        raised, sentence = _SENTENCES.get(self.kind, _OTHER)
        error = raised(sentence.format(where=self.where, user=repr(self.user), said=said, while_=while_))
        if isinstance(error, ConfigurationError):
            error.may_pass = self.kind in _MAY_PASS
        return error

    def scrub(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def _harmless(self, cause: BaseException) -> BaseException:
        """The cause itself, or a stand-in where its text would show a secret."""
        text = str(cause)
        clean = self.scrub(text)
        return cause if clean == text else RuntimeError(f"{type(cause).__name__}: {clean}")


def splits_login(url: str) -> bool:
    """Whether the password holds a slash that is not percent-encoded.

    The rest of the password then looks like the database's name, and would be shown.
    """
    _, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    return "@" in path
