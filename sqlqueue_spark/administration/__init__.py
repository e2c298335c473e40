"""Administers queues and outboxes without Spark: creates, inspects, reads, fills and cleans them.

The functions take and return plain values. Each opens and closes its own connection.
"""

from collections.abc import Callable

#: Is called again and again: ``progress`` after each commit with the number of things in it, ``looked`` with
#: the number of rows that were read since its last call.
Progress = Callable[[int], object]


def untold(_: int) -> None:
    """The progress that is told to no one."""
