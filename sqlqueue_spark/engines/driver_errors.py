"""Translates driver errors: each becomes a sentence with the remedy, in which passwords are masked."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, NoReturn, Self

from sqlqueue_spark import errors
from sqlqueue_spark.plain_text import for_shell, masked, shell_word


class DriverError(NamedTuple):
    """What a driver says of an error; ``number`` is the engine's own error number, where it has one."""

    sqlstate: str | None
    number: int | None
    message: str


class Doing(str):  # noqa: SLOT000 -- it has one attribute, of which there are few
    """What is done to a table, for the sentence of an error, whose remedy then names the table."""

    table: str

    def __new__(cls, what: str, table: str) -> Self:
        made = super().__new__(cls, f"{what} {table}")
        made.table = table
        return made


class Kind(Enum):
    """What a driver's error means to the caller, and the sentence that tells of it."""

    LOGIN_REFUSED = "The database at {where} refused the login of user {user}; check user and password."
    NO_PASSWORD = (
        "The database at {where} refused the login of user {user}, for whom no password is given; put it "
        "into the environment (SQLQUEUE_PASSWORD, and this url as SQLQUEUE_URL), or give it as option "
        "password."
    )
    NOT_ADMITTED = (
        "The server at {where} does not let user {user} in from this machine ({said}); have an "
        "administrator add a line to its pg_hba.conf, or, where it asks for encryption or a certificate, "
        "say so in the url (sslmode=require, sslcert)."
    )
    NO_USER = (
        "There is no user {user} at {where} ({said}); correct the user, or have an administrator create it."
    )
    NO_LOGIN = (
        "User {user} may not log in at {where} ({said}); have an administrator allow it (ALTER ROLE … "
        "LOGIN), or take another user."
    )
    ONLY_LOCAL_USER = (
        "The server at {where} takes the operating system's user for the login, and {user} is another one "
        "({said}); name a host in the url and give a password, or log in as the user that runs this."
    )
    NO_TICKET = (
        "The server at {where} asks user {user} for a Kerberos ticket ({said}); give a password, or allow "
        'the ticket of this machine: sqlqueue_spark.register(spark, allowed=["KRB5CCNAME"]).'
    )
    NO_ENCRYPTION = (
        "The url asks for encryption, which the server at {where} does not offer ({said}); have it turned "
        "on there, or say sslmode=prefer if messages and password may cross the network in the clear."
    )
    OTHER_SERVER = "What answers at {where} is no PostgreSQL server ({said}); correct host and port."
    TOO_MANY = (
        "The server at {where} has no connection left for user {user} ({said}); end some, lower "
        "maxConcurrency, or have max_connections or the user's limit raised."
    )
    TOKEN_REFUSED = (
        "The database at {where} refused the Microsoft Entra token ({said}); get a fresh one "
        "(accessTokenProvider gets one for each connection), and see that the database has a user for it."
    )
    NOT_TRUSTED = (
        "The certificate of {where} is not trusted ({said}); install the authority that signed it, or "
        "correct what the url says of it (hostNameInCertificate, trustServerCertificate; sslmode, "
        "sslrootcert)."
    )
    SHARED_SESSION = (
        "The connection pooler at {where} shares sessions among connections, so that timeouts, plans and "
        "durable commits are not kept; let the url lead to the server itself, or have whole sessions pooled "
        "(PgBouncer: pool_mode = session)."
    )
    WRONG_URL = "The driver does not understand the url ({said}); correct it."
    NO_DATABASE = "There is no such database at {where} ({said}); correct the url."
    OTHER_DATABASE = (
        "The database at {where} reaches no other database of its server{while_} ({said}); let the url lead "
        "to the database of the queue, or take the database out of the address."
    )
    NOT_UNDERSTOOD = (
        "The database at {where} does not understand a statement of this package{while_} ({said}); it must "
        "be SQL Server 2016 or later with a compatibility level of 130 or more: ALTER DATABASE CURRENT SET "
        "COMPATIBILITY_LEVEL = 130."
    )
    NO_CONNECT = (
        "User {user} may not connect to the database at {where} ({said}); have an administrator grant "
        "CONNECT on the database."
    )
    NO_RIGHT = (
        "User {user} lacks a right at {where}{while_} ({said}); a receiver needs SELECT, DELETE (and UPDATE "
        "on PostgreSQL, to lock rows) on its queue, a sender INSERT (and USAGE on the sequence of a "
        "PostgreSQL queue)."
    )
    NO_TABLE = "The table is not there{while_} at {where} ({said}); create it {how}."
    WRONG_SHAPE = (
        "The table is not shaped like a queue table{while_} ({said}); see what is wrong with: sqlqueue "
        "inspect {table}."
    )
    LETTERS = (
        "The database at {where} cannot hold a character{while_} ({said}); leave it out, or use a database "
        "with the encoding UTF8."
    )
    TABLE_TAKES_NOTHING = (
        "The table takes no rows, or lets none be changed{while_} ({said}); see what is wrong with: sqlqueue "
        "inspect {table}."
    )
    NOT_REACHED = "No database answers at {where} ({said}); check host, port and that the server runs."
    NOT_READY = (
        "The database at {where} is not ready yet ({said}); wait until it has started, and see that it is "
        "not paused."
    )
    TAKES_NOTHING = (
        "The database at {where} does not take what must be written{while_} ({said}); see that its disks "
        "work and have room, and that no quota or limit is reached."
    )
    READ_ONLY = (
        "The database at {where} is read-only{while_} ({said}); let the url lead to the primary server, or "
        "see why the database takes no changes."
    )
    CONNECTION_LOST = "The connection to {where} was lost{while_} ({said})."
    LOCK_TIMEOUT = (
        "Rows, or their whole table, stayed locked by someone else{while_}; try again or raise lockTimeout."
    )
    TIMED_OUT = "A statement ran into commandTimeout{while_} ({said}); try again or raise it."
    DUPLICATE = "A key is there already{while_} ({said}): another transaction was first; try again."
    GAVE_WAY = "The database gave way{while_} ({said}); try again."
    DEADLOCK = "Another session and this one waited for each other{while_} ({said}); try again."
    TOO_LARGE = (
        "The database had not enough memory or locks{while_} ({said}); try again, or lower "
        "maxMessagesPerTrigger."
    )
    SESSION_TOO_LARGE = (
        "The database ended the session, because it took too much{while_} ({said}); try again, or lower "
        "maxMessagesPerTrigger."
    )
    OTHER = "The database at {where} refused{while_}: {said}."


#: The error for each kind of failure; of all others a ConfigurationError.
_ERRORS: dict[Kind, type[errors.SqlQueueError]] = {
    **dict.fromkeys((Kind.TOO_MANY, Kind.NOT_REACHED, Kind.CONNECTION_LOST), errors.ConnectionLost),
    **dict.fromkeys((Kind.NO_TABLE, Kind.WRONG_SHAPE, Kind.TABLE_TAKES_NOTHING), errors.QueueError),
    **dict.fromkeys((Kind.LETTERS, Kind.OTHER), errors.SqlQueueError),
    Kind.NO_PASSWORD: errors.NoPassword,
    Kind.NO_RIGHT: errors.NoRight,
    Kind.NOT_READY: errors.NotReady,
    Kind.TAKES_NOTHING: errors.DatabaseTakesNothing,
    Kind.READ_ONLY: errors.DatabaseReadOnly,
    Kind.LOCK_TIMEOUT: errors.LockTimeout,
    Kind.TIMED_OUT: errors.StatementTimeout,
    **dict.fromkeys((Kind.GAVE_WAY, Kind.DEADLOCK), errors.TryAgain),
    Kind.DUPLICATE: errors.Duplicate,
    Kind.TOO_LARGE: errors.TooMuch,
    Kind.SESSION_TOO_LARGE: errors.SessionTooMuch,
}
#: Of what a driver says no more characters are told.
_LONGEST = 10_000
#: What a database may say, while it fails over, of a login that was right before.
_MAY_PASS = (
    *(Kind.LOGIN_REFUSED, Kind.NO_PASSWORD, Kind.TOKEN_REFUSED, Kind.NO_DATABASE, Kind.NOT_ADMITTED),
    *(Kind.NO_USER, Kind.NO_LOGIN, Kind.NO_CONNECT, Kind.ONLY_LOCAL_USER, Kind.NO_ENCRYPTION),
    Kind.OTHER_SERVER,
)


def fail(
    cause: BaseException | None,
    kind: Kind,
    text: str = "",
    doing: str = "",
    *,
    where: str,
    user: str,
    secrets: Sequence[str],
) -> NoReturn:
    """Raise the error for the caller: a sentence with the remedy, and no secret.

    :param cause: the driver's error. A stand-in is chained where its text would show a secret.
    """
    first_line = (text.strip().splitlines() or ["no reason given"])[0]
    said = masked(first_line, secrets)[:_LONGEST].rstrip(".")
    while_ = f" while {doing}" if doing else ""
    table, how = "QUEUE", "again"
    if isinstance(doing, Doing):
        table, owner = for_shell(doing.table), doing.table.replace(".Delayed@", "@")
        how = f"with: sqlqueue {'' if owner == doing.table else 'delayed '}create {for_shell(owner)}"
    sentence = kind.value.format(where=where, user=repr(user), said=said, while_=while_, table=table, how=how)
    error = _ERRORS.get(kind, errors.ConfigurationError)(sentence)
    if isinstance(error, errors.ConfigurationError):
        error.may_pass = kind in _MAY_PASS
    if isinstance(error, errors.TryAgain):
        error.deadlock = kind is Kind.DEADLOCK
    if isinstance(error, errors.NoRight) and user:
        error.user = shell_word(user)
    clean = masked(str(cause), secrets)
    raise error from cause if clean == str(cause) else RuntimeError(f"{type(cause).__name__}: {clean}")
