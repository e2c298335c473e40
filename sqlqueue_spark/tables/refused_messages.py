"""Finds out which messages a table refuses, so that these fail alone."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sqlqueue_spark import errors
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import SqlQueueError, TryAgain
from sqlqueue_spark.tables.table_code import Swallowed

#: The seconds after which an attempt that failed is not made again with half of its messages; and those of
#: all attempts together.
_LONG_SECONDS, _LONG_TOGETHER = 1.0, 5.0

T = TypeVar("T")
#: Messages that a table refuses, and why.
Why = tuple[Sequence[T], SqlQueueError]


def refused(
    connection: Connection,
    insert: Callable[[Sequence[T]], object],
    messages: Sequence[T],
    *,
    own_ids: bool = False,
    chosen: bool = False,
    since: float | None = None,
) -> list[Why[T]]:
    """Insert messages in the open transaction; halve them while the table refuses some, and return these.

    What refuses all of them is not halved: no table, no right, a table that keeps none of its rows, or one
    that no option names and that takes long in a hurry (:meth:`Connection.hurried`).

    :param own_ids: whether a twin may have written these Ids. Else a unique index refuses a duplicate.
    :param chosen: whether an option names the table.
    :param since: when the first attempt began; None for now.
    :raises TryAgain: the server gave way, or the transaction is lost.
    """
    began = time.monotonic()
    since = began if since is None else since
    try:
        with connection.attempt():
            insert(messages)
    except SqlQueueError as error:
        took = time.monotonic()
        slow = took - began > _LONG_SECONDS or took - since > _LONG_TOGETHER
        slow = not chosen and ((connection.is_hurried and slow) or isinstance(error, errors.StatementTimeout))
        hangs = slow and isinstance(error, errors.LockTimeout | errors.StatementTimeout)
        by_index = isinstance(error, errors.Duplicate) and not own_ids
        if isinstance(error, TryAgain) and not (hangs or by_index):
            raise
        some = isinstance(error, Swallowed) and error.took
        every = isinstance(error, errors.QueueError | errors.ConfigurationError) and not some
        if len(messages) == 1 or slow or every:
            return [(messages, error)]
        half = len(messages) // 2
        again = partial(refused, connection, insert, own_ids=own_ids, chosen=chosen, since=since)
        return [*again(messages[:half]), *again(messages[half:])]
    return []
