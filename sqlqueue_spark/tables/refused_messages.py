"""Finds out which messages a table refuses, so that these fail alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError, StatementTimeout, TryAgain
from sqlqueue_spark.tables.swallowed_rows import Swallowed

#: An attempt that took longer, and failed, is not made again with half of its messages.
_LONG_SECONDS = 1.0

T = TypeVar("T")
#: Messages that a table refuses, and why.
Why = tuple[Sequence[T], SqlQueueError]


def refused(
    connection: Connection, insert: Callable[[Sequence[T]], object], messages: Sequence[T]
) -> list[Why[T]]:
    """Insert messages in the open transaction; halve them while the table refuses some, and return these.

    What refuses all of them is not halved: no table, no right, or a table that keeps none of its rows, or
    takes long in a hurry (:meth:`Connection.hurried`).
    """
    began = time.monotonic()
    try:
        with connection.attempt():
            insert(messages)
    except SqlQueueError as error:
        slow = connection.is_hurried and time.monotonic() - began > _LONG_SECONDS
        slow = slow or isinstance(error, StatementTimeout)
        if isinstance(error, TryAgain) and not slow:
            raise
        some = isinstance(error, Swallowed) and error.took
        if len(messages) == 1 or slow or (isinstance(error, QueueError | ConfigurationError) and not some):
            return [(messages, error)]
        half = len(messages) // 2
        return [
            each for part in (messages[:half], messages[half:]) for each in refused(connection, insert, part)
        ]
    return []
