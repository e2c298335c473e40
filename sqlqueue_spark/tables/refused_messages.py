"""Finds out which messages a table refuses, so that these fail alone."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sqlqueue_spark import errors
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import SqlQueueError, TryAgain
from sqlqueue_spark.tables.swallowed_rows import Swallowed

#: Where attempts took longer than this together, one that failed is not made again with half of its messages.
_LONG_SECONDS = 1.0

T = TypeVar("T")
#: Messages that a table refuses, and why.
Why = tuple[Sequence[T], SqlQueueError]


def refused(
    connection: Connection,
    insert: Callable[[Sequence[T]], object],
    messages: Sequence[T],
    *,
    own_ids: bool = False,
    since: float | None = None,
) -> list[Why[T]]:
    """Insert messages in the open transaction; halve them while the table refuses some, and return these.

    What refuses all of them is not halved: no table, no right, or a table that keeps none of its rows, or
    takes long in a hurry (:meth:`Connection.hurried`).

    :param since: when the first attempt began, in a hurry; None for now.
    :param own_ids: whether a twin may have written these Ids. Else a unique index refuses a duplicate.
    """
    since = time.monotonic() if since is None else since
    try:
        with connection.attempt():
            insert(messages)
    except SqlQueueError as error:
        slow = connection.is_hurried and time.monotonic() - since > _LONG_SECONDS
        slow = slow or isinstance(error, errors.StatementTimeout)
        by_index = isinstance(error, errors.Duplicate) and not own_ids
        if isinstance(error, TryAgain) and not (slow or by_index):
            raise
        some = isinstance(error, Swallowed) and error.took
        every = isinstance(error, errors.QueueError | errors.ConfigurationError) and not some
        if len(messages) == 1 or slow or every:
            return [(messages, error)]
        half = len(messages) // 2
        parts = messages[:half], messages[half:]
        again = partial(refused, connection, insert, own_ids=own_ids, since=since)
        return [each for part in parts for each in again(part)]
    return []
