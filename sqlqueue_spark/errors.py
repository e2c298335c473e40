"""The package's errors, split by what the caller does next.

A message is one sentence with the value and the remedy. The driver's own error is chained as the cause,
with every secret struck out. Nothing here opens, reads or logs anything.
"""


class SqlQueueError(Exception):
    """Any error of this package."""


class ConfigurationError(SqlQueueError):
    """Fix the configuration: an option, an address, a credential, a right, a checkpoint."""

    #: A database that fails over says the same for a while: whoever was let in before may wait.
    may_pass = False


class QueueError(SqlQueueError):
    """Fix the table: it is missing, or is not shaped like a queue table."""


class TryAgain(SqlQueueError):
    """The database gave way (deadlock, fail-over, no free connection): the same call may succeed later."""


class ConnectionLost(TryAgain):
    """No connection: the transaction that was open is rolled back, its locks are gone."""


class RowsHeld(TryAgain):
    """Rows stayed locked by someone else for longer than ``lockTimeout``."""


class Duplicate(TryAgain):
    """A key is there already: somebody else was first."""


class ClaimLost(SqlQueueError):
    """Rows of a claim were taken while a micro-batch ran: the batch must fail and be replayed."""
