"""Small steps on columns of messages."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from sqlqueue_spark.messages.arrow import pc


def told(values: pa.Array) -> pa.Array:
    """The texts, with NULL in place of each empty one."""
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def mapped(function: Callable[..., object], values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Apply a function to each value that is not NULL. A column that is all NULL costs nothing."""
    if values.null_count == len(values):
        return pa.nulls(len(values), type_)
    return pa.array([None if value is None else function(value) for value in values.to_pylist()], type_)


def among(positions: pa.Array, count: int) -> pa.Array:
    """For each of so many positions, whether it is one of these."""
    return pc.is_in(pa.array(range(count), pa.int32()), value_set=positions)
