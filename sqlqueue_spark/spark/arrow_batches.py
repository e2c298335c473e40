"""Record batches as our code knows them, whatever types the settings of a session make Spark hand over.

``spark.sql.execution.arrow.useLargeVarTypes`` makes texts and bytes large ones, so that a batch may have more
than 2 GB, and timestamps come in the zone of the session.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

#: The most bytes of a batch of plain texts and bytes, which has room for twice as many.
_MOST_BYTES = 1 << 30
#: The columns whose texts are bodies. What they hold is sent byte for byte.
_BODIES = frozenset({"body", "outgoing"})


def plain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in plain texts and bytes, with timestamps in UTC; a batch that is too large is cut."""
    for batch in batches:
        schema = pa.schema([each.with_type(_mapped(each.type, _plain)) for each in batch.schema])
        if schema == batch.schema:
            yield _readable(batch)
        else:
            for piece in _pieces(batch):
                yield _readable(piece.cast(schema))


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with texts of UTF-8 alone, but for bodies."""
    for at, field in enumerate(batch.schema):
        try:
            if field.name.lower() not in _BODIES:
                batch.column(at).validate(full=True)
        except pa.ArrowInvalid:
            as_bytes = _mapped(field.type, lambda leaf: pa.binary() if pa.types.is_string(leaf) else leaf)
            encoded = batch.column(at).cast(as_bytes).to_pylist()
            decoded = pa.array([_decoded(each, field.type) for each in encoded], field.type)
            batch = batch.set_column(at, field, decoded)
    return batch


def _decoded(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(type_):
        return value.decode(errors="replace")
    if pa.types.is_struct(type_):
        return {each.name: _decoded(value[each.name], each.type) for each in type_}
    if pa.types.is_list(type_):
        return [_decoded(each, type_.value_type) for each in value]
    if pa.types.is_map(type_):
        return [(_decoded(key, type_.key_type), _decoded(item, type_.item_type)) for key, item in value]
    return value


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
    return given


def _mapped(given: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with what ``leaf`` makes of each type in it that has no others in it."""

    def field(its: pa.Field) -> pa.Field:
        return its.with_type(_mapped(its.type, leaf))

    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return pa.list_(field(given.value_field))
    if pa.types.is_map(given):
        return pa.map_(field(given.key_field), field(given.item_field))
    if pa.types.is_struct(given):
        return pa.struct([field(each) for each in given])
    return leaf(given)
