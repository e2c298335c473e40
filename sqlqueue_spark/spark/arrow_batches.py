"""Record batches as our code knows them, whatever types the settings of a session make Spark hand over.

``spark.sql.execution.arrow.useLargeVarTypes`` makes texts and bytes large ones, so that a batch may have more
than 2 GB, and timestamps come in the zone of the session.
"""

from collections.abc import Iterator

import pyarrow as pa

#: The most bytes of a batch of plain texts and bytes, which has room for twice as many.
_MOST_BYTES = 1 << 30


def plain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in plain texts and bytes, with timestamps in UTC; a batch that is too large is cut."""
    for batch in batches:
        schema = pa.schema([each.with_type(_plain(each.type)) for each in batch.schema])
        if schema == batch.schema:
            yield batch
        else:
            for piece in _pieces(batch):
                yield piece.cast(schema)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    half = batch.num_rows // 2
    if not half or batch.nbytes <= _MOST_BYTES:
        yield batch
        return
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _plain(given: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(given):
        return pa.string()
    if pa.types.is_large_binary(given):
        return pa.binary()
    if pa.types.is_timestamp(given) and given.tz is not None:
        return pa.timestamp(given.unit, tz="UTC")
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return pa.list_(_field(given.value_field))
    if pa.types.is_map(given):
        return pa.map_(_field(given.key_field), _field(given.item_field))
    if pa.types.is_struct(given):
        return pa.struct([_field(each) for each in given])
    return given


def _field(given: pa.Field) -> pa.Field:
    return given.with_type(_plain(given.type))
