"""Small steps on columns of messages."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

from sqlqueue_spark.errors import Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import Failure

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Columns = TypeVar("Columns", pa.Array, pa.RecordBatch)
K = TypeVar("K")
T = TypeVar("T")


def told(values: pa.Array) -> pa.Array:
    """The texts, with NULL in place of each empty one."""
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def refuse(wrong: pa.Array, why: Callable[[int], str], positions: pa.Array | None = None) -> None:
    """Raise :class:`Unsendable` for the rows at which ``wrong`` is true.

    :param why: the sentence for the row at this place of ``wrong``.
    :param positions: the positions of the rows in their chunk, where ``wrong`` is not of the whole chunk.
    """
    if places := pc.indices_nonzero(wrong).to_pylist():
        raise Unsendable({at if positions is None else positions[at].as_py(): why(at) for at in places})


def failures_of(error: Unsendable) -> dict[int, Failure]:
    """Why each of the rows has failed that an error is about."""
    return {at: replace(Failure.of(error), message=text) for at, text in error.texts.items()}


def moment(microseconds: int | None) -> datetime | None:
    """The time that is this many microseconds after 1970; None where Python has none, after the year 9999."""
    with contextlib.suppress(OverflowError):
        return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
    return None


def mapped(function: Callable[..., object], values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Apply a function to each value that is not NULL. A column that is all NULL costs nothing."""
    if values.null_count == len(values):
        return pa.nulls(len(values), type_)
    return pa.array([None if value is None else function(value) for value in values.to_pylist()], type_)


def mapped_once(function: Callable[..., object], values: pa.Array) -> pa.Array:
    """Texts of values that are few: each of them is made once. A value that is NULL stays so."""
    distinct = values.dictionary_encode()
    return mapped(function, distinct.dictionary, pa.string()).take(distinct.indices)


def among(positions: Sequence[int] | pa.Array, count: int) -> pa.Array:
    """For each of the positions up to a count, whether it is one of these."""
    return pc.is_in(pa.array(range(count), pa.int32()), value_set=pa.array(positions, pa.int32()))


def grouped(values: pa.Array) -> Iterator[tuple[Any, pa.Array]]:
    """Each value with the positions at which it stands, in ascending order."""
    distinct = values.dictionary_encode()  # long texts are compared once, and then their numbers
    for number, value in enumerate(distinct.dictionary.to_pylist()):
        yield value, pc.indices_nonzero(pc.equal(distinct.indices, number))


def gathered(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by what ``key`` says of each, in their order."""
    found: dict[K, list[T]] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return found


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of these batches in one. A single one is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def in_order(positions: Sequence[pa.Array], parts: Sequence[Columns]) -> Columns:
    """Put parts together in the order of the rows.

    :param positions: of each part, the positions of its rows, in ascending order.
    """
    if len(parts) == 1:
        return parts[0]
    order = pc.sort_indices(pa.concat_arrays(positions))
    together = pa.concat_batches if isinstance(parts[0], pa.RecordBatch) else pa.concat_arrays
    return together(parts).take(order)
