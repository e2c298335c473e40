"""Finds out which of many messages a table refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError, TryAgain

T = TypeVar("T")


#: Messages that a table refuses, and why.
Why = tuple[Sequence[T], SqlQueueError]


def refused(
    connection: Connection, insert: Callable[[Sequence[T]], object], messages: Sequence[T]
) -> list[Why[T]]:
    """Insert messages in the open transaction, and halve what is refused until it is known which of them that is."""
    try:
        with connection.attempt():
            insert(messages)
    except (QueueError, ConfigurationError) as error:  # the table or a right is missing, for all of them
        return [(messages, error)]
    except SqlQueueError as error:
        if isinstance(error, TryAgain):
            raise
        if len(messages) == 1:
            return [(messages, error)]
        half = len(messages) // 2
        return [
            each for part in (messages[:half], messages[half:]) for each in refused(connection, insert, part)
        ]
    return []
