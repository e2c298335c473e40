"""How many rows go out in one transaction."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.send.compose.column_values import joined
from sqlqueue_spark.tables.insert import CHUNK

#: Most bytes of a chunk. Memory holds a chunk three times while it is sent: as it came, as rows, and as the
#: statement's parameters.
CHUNK_BYTES = 16 << 20


def chunks(
    batches: Iterable[pa.RecordBatch],
    sized: Sequence[str],
    rows: int = CHUNK,
    messages: Callable[[pa.RecordBatch], Sequence[int]] = lambda batch: range(1, batch.num_rows + 1),
) -> Iterator[pa.RecordBatch]:
    """Cut rows into chunks in their order: at most 4,000 messages and 16 MB each, but at least one row.

    :param sized: the columns that tell how large a row is.
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
        ends, counts = _ends(batch, sized), messages(batch)
        start = 0
        while start < batch.num_rows:
            before, counted = (ends[start - 1], counts[start - 1]) if start else (0, 0)
            fit = min(
                bisect.bisect_right(ends, before + CHUNK_BYTES - size, start),
                bisect.bisect_right(counts, counted + most - count, start),
            )
            taken = fit - start if chunk else max(1, fit - start)
            if taken:
                chunk.append(batch.slice(start, taken))
                count += counts[start + taken - 1] - counted
                size += ends[start + taken - 1] - before
                start += taken
            if count >= most or start < batch.num_rows:
                yield joined(chunk)
                chunk, count, size = [], 0, 0
    if chunk:
        yield joined(chunk)


def _ends(batch: pa.RecordBatch, sized: Sequence[str]) -> Sequence[int]:
    """Of each row: about how many bytes the batch has up to the end of this row."""
    ends = [pc.cumulative_sum(_bytes(batch.column(name))).to_pylist() for name in sized]
    return list(map(sum, zip(*ends, strict=True))) if ends else [0] * batch.num_rows


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return pa.array([column.nbytes // max(1, len(column))] * len(column), pa.int64())
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
