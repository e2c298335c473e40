"""Opens connections to databases; it imports an engine's driver only when a connection needs it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from types import ModuleType

from sqlqueue_spark.engines.connection import Connection, Reader, Target
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.drivers import remedy
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, NotReady, SqlQueueError, TryAgain

__all__ = ["Connection", "Reader", "Target"]  # beside what is defined here

#: How long a worker waits for a lock to read a row of a claim. A statement that alters the table waits for
#: the claim, the worker waits behind it, and the claim waits for the worker. No server sees that circle, and
#: every sender waits meanwhile. Spark may run the task again.
MOST_WAITING = timedelta(seconds=5)
#: Gives a connection to a database, with no open transaction.
Connected = Callable[[Target], Connection]

#: How long the first connection waits for a database that says it is not ready yet. A serverless one takes
#: about a minute to resume:
#: https://learn.microsoft.com/azure/azure-sql/database/serverless-tier-auto-pause-resume#latency
_READY_SECONDS = 120.0


def connect(target: Target, *, again: bool = False) -> Connection:
    """Open a connection; statements on it run in one transaction until commit or rollback.

    The first connection waits for a database that says it is not ready yet, because an error of a database
    that was never reached counts as one of the configuration.

    :param again: whether the database was reached before: one that fails over refuses logins for a while.
    :raises ConfigurationError: the database refuses the login, or a driver is missing; never with ``again``.
    :raises ConnectionLost: no database answers; with ``again`` also in place of any other refusal.
    """

    def opened() -> Connection:
        made: Connection = _module(target, "connection").connect(target)
        return made

    try:
        if again or target.hasty:
            return opened()
        return Retry("connecting", seconds=_READY_SECONDS).retried(opened, kind=NotReady)
    except SqlQueueError as error:
        if not again or isinstance(error, TryAgain):
            raise
        raise ConnectionLost(str(error)) from error


@contextmanager
def one_each(
    *, again: bool = False, opened: Callable[[Connection], object] = lambda _: None
) -> Iterator[Connected]:
    """Gives the connection of each database that the block asks for, and ends them all with the block.

    :param again: as for :func:`connect`.
    :param opened: is called with each connection that was just opened.
    """
    connections: dict[Target, Connection] = {}
    with ExitStack() as stack:

        def connected(target: Target) -> Connection:
            if target not in connections:
                connections[target] = stack.enter_context(connect(target, again=again))
                opened(connections[target])
            return connections[target]

        yield connected


def open_reader(target: Target) -> Reader:
    """Open a connection that reads rows as Arrow record batches. It raises the errors of :func:`connect`."""
    made: Reader = _module(target, "connection").open_reader(target)
    return made


def local_access(target: Target) -> list[tuple[str, str]]:
    """What the target's url does beyond naming server and login: files, code, logins of this machine.

    :returns: what each of these is, and its name: ``keyword=value``, or a variable of the environment.
    :raises ConfigurationError: the driver is missing, or the url cannot be read; the message never shows it.
    """
    return list(_module(target, "local_access").local_access(target))


def confined(target: Target, allowed: Collection[str]) -> str:
    """The target's url, with which a driver takes no login or file of a machine that is not allowed.

    :param allowed: names as :func:`local_access` gives them; what the url says itself is allowed.
    :raises ConfigurationError: as :func:`local_access`.
    """
    return str(_module(target, "local_access").confined(target, allowed))


def _module(target: Target, name: str) -> ModuleType:
    """A module of the engine that needs its driver. It is imported late: only one driver may be there."""
    try:
        return import_module(f"sqlqueue_spark.engines.{target.dialect.name}.{name}")
    except ImportError as error:
        raise ConfigurationError(
            f"The driver for {target.dialect.title} {remedy(target.dialect, error)}"
        ) from error
