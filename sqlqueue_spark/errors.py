"""The package's errors, split by what the caller does next.

Failed messages are grouped by the names of these classes, which stay. A message is one sentence with the
value and the remedy. The driver's own error is chained as the cause, with every secret struck out. Nothing
here opens, reads or logs anything.
"""

import re
from collections.abc import Mapping

from sqlqueue_spark.plain_text import plain


class SqlQueueError(Exception):
    """Any error of this package. Its text is one line, whatever names are in it."""

    def __init__(self, said: str = "") -> None:
        super().__init__(plain(said))


class ConfigurationError(SqlQueueError):
    """Fix the configuration: an option, an address, a credential, a right, a checkpoint."""

    #: Whether it may pass: a database that fails over refuses logins for a while. Who had a session may wait.
    may_pass = False


class NoPassword(ConfigurationError):
    """The database refuses a login without a password; a command may ask for it."""


class NoRight(ConfigurationError):
    """The login lacks a right. The text says behind its last semicolon which rights the work needs."""

    #: The login as a word of a shell, where the url or an option names it.
    user = "USER"

    def needing(self, rights: str) -> "NoRight":
        """The same error, where this login needs other rights than a receiver's or a sender's."""
        known = rights.replace("--grants USER ", f"--grants {self.user} ")
        needed = NoRight(f"{str(self).rpartition('; ')[0]}; {known}")
        needed.user = self.user
        return needed


class QueueError(SqlQueueError):
    """Fix the table: it is missing, or is not shaped like a queue table."""


class TryAgain(SqlQueueError):
    """The database gave way (deadlock, fail-over, no free connection): the same call may succeed later."""

    #: Whether sessions waited for each other in a circle, and the server ended a statement of this one.
    deadlock = False


class ConnectionLost(TryAgain):
    """The connection is gone: the transaction that was open is rolled back, and its locks are gone."""


class NotReady(ConnectionLost):
    """The server answers that its database is not ready yet: it starts, resumes, recovers or fails over."""


class LockTimeout(TryAgain):
    """A statement that should not wait did: another session held a lock for longer than ``lockTimeout``."""


class StatementTimeout(TryAgain):
    """A statement took longer than ``commandTimeout``."""


class RowsHeld(TryAgain):
    """A statement waited on purpose, and another session kept its lock for longer than ``lockTimeout``."""


class DatabaseTakesNothing(TryAgain):
    """The database does not take what must be written, whatever it is: it is full, its disk or memory fails.

    It says nothing of a message. A database that goes on like that counts as down.
    """


class DatabaseReadOnly(DatabaseTakesNothing, ConnectionLost):
    """The database is read-only here. A new connection may lead to a server that takes changes."""


class TooMuch(DatabaseTakesNothing):
    """The statement wanted more locks or memory than the server has: smaller portions may succeed."""


class SessionTooMuch(TooMuch, ConnectionLost):
    """Like :class:`TooMuch`, and the server has also ended the session."""


class Duplicate(TryAgain):
    """A key is there already: another transaction was first."""


class ClaimLost(SqlQueueError):
    """Rows of a claim were taken while a micro-batch ran: the batch must fail and be replayed."""


class Unsendable(ConfigurationError):
    """Rows cannot be sent as they are. The text says why of the first, and gives the remedy.

    ``texts`` has a text for each of them, by their positions in the chunk, and ``position`` is that of the
    first. The caller that has the frame's columns adds which row it is.
    """

    def __init__(self, texts: Mapping[int, str]) -> None:
        self.texts = {at: plain(text) for at, text in texts.items()}
        self.position, first = next(iter(self.texts.items()))
        super().__init__(first)


class GaveUp(SqlQueueError):
    """A message has waited for its database for as long as ``giveUpAfter`` says. It may have arrived."""


class UnreadableHeaders(SqlQueueError):
    """The headers of a received message are not a JSON object of strings."""


class HandlerTimeout(Exception):
    """A handler took longer than it may."""


class WorkerDied(Exception):
    """A handler ended the process in which it was called."""


class NoHandler(LookupError):
    """There is no handler for the type of a message. To try again does not help."""


class NoReplyAddress(LookupError):
    """A handler replies to a message that says nowhere to reply. To try again does not help."""


class WrongAnswer(TypeError):
    """A handler answered something that is neither nothing nor messages. To try again does not help."""


class WrongBody(ValueError):
    """The body of a message is no JSON. To try again does not help."""


def type_name(error: BaseException) -> str:
    """The name by which people know and group an error: of its class with its module.

    An error of this package has the name of a class of this module: its own class, or the nearest base.
    """
    kinds = type(error).__mro__
    ours = [kind for kind in kinds if kind.__module__ == __name__]
    kind = ours[0] if ours and kinds[0].__module__.startswith("sqlqueue_spark.") else kinds[0]
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


#: Above the lines of a stack trace. Below them stands what was raised.
_TRACE = "Traceback (most recent call last):\n"
_OURS = re.compile(r"(?<![\w.])sqlqueue_spark(?:\.\w++)++: (?P<sentence>.+)")
#: What Spark and Py4J put before what they hand on.
_BEFORE = re.compile(
    r"(?:\s*+(?:pyspark\.errors\.[\w.]+: |\([\w.$]+\) "  # the second from Spark Connect
    r"|(?:py4j\.protocol\.Py4JJavaError: )?An error occurred while calling \S+\.\n: "
    r"|(?:org\.apache\.spark\.SparkException: )?\[TASK_WRITE_FAILED\](?s:.*)\nCaused by: "
    r"|\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: "
    r"|(?:\[PYTHON_EXCEPTION\] )?An exception was thrown from the Python worker"
    r"(?::|\. Please see the stack trace below\.)\s"
    r"|(?:org\.apache\.spark\.SparkException: )?Job aborted [^:]*: Task [^:]*: Lost task [^:]*: "
    r"))*+\s*+"
)
#: First lines that say too little, and what we say instead. The second one is all that Spark says where a
#: process that it asks something has ended.
_INSTEAD = {
    "ModuleNotFoundError: No module named 'sqlqueue_spark'": (
        "Spark's workers lack the package sqlqueue_spark; install it on each machine of the cluster, or give "
        "its wheel, named .zip, to spark-submit as --py-files."
    ),
    "SQLSTATE: XXKST": (
        "Spark says no reason; most often the process that reads a source of the query was killed, by hand "
        "or for want of memory. Start the query again."
    ),
}


def why(error: BaseException) -> str:
    """The one sentence that says what is wrong, in an error that this package or Spark has raised.

    Spark puts names of classes, stack traces and the state of the query around a sentence of this package.
    The sentence is also found in the causes of an error. For any other error it is the first line of what was
    raised, also by a user's function on a worker.
    """
    said = _said(error)
    cause: BaseException | None = error
    seen: set[int] = set()  # an error may be its own cause
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if ours := list(_OURS.finditer(_said(cause))):
            return plain(ours[-1]["sentence"])
        cause = cause.__cause__
    for trace in reversed(said.split(_TRACE)[1:]):
        lines = trace.splitlines()
        at = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
        if at is not None:
            said = "\n".join(lines[at:])
            break
    lines = _BEFORE.sub("", said, count=1).splitlines()
    first = plain(lines[0].rstrip() if lines else type(error).__name__)
    return _INSTEAD.get(first, first)


def _said(error: BaseException) -> str:
    """What an error says, as a stack trace ends with it where it is ours."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 -- Py4J asks a Java that may have ended
        return ""
    return f"{type_name(error)}: {said}" if isinstance(error, SqlQueueError) else said
