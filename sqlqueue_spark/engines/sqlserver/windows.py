"""Reads a range of rows in windows, because a statement may keep the shared locks of its rows until it ends.

A statement of SQL Server keeps the lock of each row of which it has read a ``(max)`` column, under READ
COMMITTED too, whatever the size of the value
(https://learn.microsoft.com/archive/blogs/craigfr/read-committed-and-large-objects). A statement that is
fetched as fast as Spark works would hold up every session that wants a row in between, and could get a lock
on the whole table. So each statement reads few rows, and has ended before a row of it is handed on.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

import pyarrow as pa

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES, RECORD_BATCH_ROWS
from sqlqueue_spark.engines.engine_of_url import SQLSERVER

#: Most rows of a window that is read under locks: its statement says TOP with this number, with which no lock
#: escalates. A statement that reads row versions takes no locks and says TOP with RECORD_BATCH_ROWS.
WINDOW_ROWS = SQLSERVER.chunk


class Window(NamedTuple):
    """The rows of one statement, and whether others may follow in the range."""

    rows: pa.RecordBatch
    more: bool


def windowed(
    read: Callable[[int, int], Window], between: tuple[int, int]
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a range in record batches of the usual size, each of whole windows.

    Where ``read`` fails, the rows of the windows before come first.

    :param read: reads the first rows between two RowVersions, both included, and ends its statement with the
        row that makes them as large as a record batch.
    """
    first, last = between
    held: list[pa.RecordBatch] = []
    more = True
    while more and first <= last:
        try:
            rows, more = read(first, last)
        except Exception:
            if held:
                yield pa.concat_batches(held)
            raise
        if rows.num_rows:
            held.append(rows)
            first = rows["RowVersion"][-1].as_py() + 1
        count, size = sum(each.num_rows for each in held), sum(each.nbytes for each in held)
        if count + WINDOW_ROWS > RECORD_BATCH_ROWS or size >= RECORD_BATCH_BYTES:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
