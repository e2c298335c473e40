"""How many rows go out in one transaction."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from sqlqueue_spark.send.compose.column_values import joined
from sqlqueue_spark.tables.insert import CHUNK

#: Most bytes of a chunk. Memory holds a chunk three times while it is sent: as it came, as rows, and as the
#: statement's parameters.
CHUNK_BYTES = 16 << 20


def chunks(
    batches: Iterable[pa.RecordBatch],
    rows: int = CHUNK,
    messages: Callable[[pa.RecordBatch], Sequence[int]] = lambda batch: range(1, batch.num_rows + 1),
) -> Iterator[pa.RecordBatch]:
    """Cut rows into chunks in their order: at most 4,000 messages and 16 MB each, but at least one row.

    :param messages: gives, for each row of a batch, how many messages the batch's rows make up to this one. A
        row is a message.
    :param rows: the most rows that one statement takes. Where it is less than 4,000 it limits the chunk, so
        that a transaction never adds ids by two statements. The second statement could add ids out of order,
        and then the transaction and its twin could wait for each other.
    """
    most = min(CHUNK, rows)
    chunk: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        counts = messages(batch)
        start = 0
        while start < batch.num_rows:
            counted = counts[start - 1] if start else 0
            few = bisect.bisect_right(counts, counted + most - count, start) - start
            fit = _within(batch.slice(start, few), CHUNK_BYTES - size)
            if taken := fit if chunk else max(1, fit):
                chunk.append(batch.slice(start, taken))
                count += counts[start + taken - 1] - counted
                size += chunk[-1].nbytes
                start += taken
            if count >= most or start < batch.num_rows:
                yield joined(chunk)
                chunk, count, size = [], 0, 0
    if chunk:
        yield joined(chunk)


def _within(batch: pa.RecordBatch, most: int) -> int:
    """How many rows at the begin of a batch have at most this number of bytes."""
    return bisect.bisect_right(range(batch.num_rows), most, key=lambda row: batch.slice(0, row + 1).nbytes)
