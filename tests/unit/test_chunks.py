"""What goes out in one transaction: at most 4,000 messages, and not too many bytes."""

import pyarrow as pa
import pytest

from sqlqueue_spark.send.compose.chunk import chunks

MEGABYTE = 1 << 20
SCHEMA = pa.schema([("Id", pa.int64()), ("Headers", pa.string()), ("Body", pa.binary())])


def rows(numbers, *, headers="{}", body=None):
    return pa.RecordBatch.from_pylist(
        [{"Id": each, "Headers": headers, "Body": body} for each in numbers], SCHEMA
    )


def sizes(made):
    return [chunk.num_rows for chunk in made]


def ids(made):
    return [chunk["Id"].to_pylist() for chunk in made]


def test_nothing_makes_no_chunk():
    assert list(chunks([])) == []
    assert list(chunks([rows([]), rows([])])) == []


@pytest.mark.parametrize("of", [1, 7, 1_000, 4_000, 9_001])
def test_a_chunk_has_4000_rows_in_their_order(of):
    """However the batches are cut."""
    batches = [rows(range(first, min(first + of, 9_001))) for first in range(0, 9_001, of)]
    made = list(chunks(batches))
    assert ids(made) == [list(range(4_000)), list(range(4_000, 8_000)), list(range(8_000, 9_001))]


def test_a_chunk_fits_into_one_statement():
    assert sizes(chunks([rows(range(5_000))], 2_400)) == [2_400, 2_400, 200]
    assert sizes(chunks([rows(range(5_000))], 20_000)) == [4_000, 1_000]


def test_a_chunk_has_16_mb_of_headers_and_bodies():
    others = 100  # bytes of the other columns, and of what Arrow needs to tell where a text begins
    big = [rows([number], headers=" " * (MEGABYTE - others), body=bytes(MEGABYTE)) for number in range(9)]
    assert sizes(chunks(big)) == [8, 1]
    assert sizes(chunks([pa.concat_batches(big)])) == [8, 1]
    huge = [rows([1, 2], body=bytes(17 * MEGABYTE)), rows([3])]
    assert ids(chunks(huge)) == [[1], [2], [3]]


def test_headers_of_a_map_have_a_size_too():
    """And so has a column of nothing but NULL."""
    of_map = pa.array([[("a", "x" * MEGABYTE)]] * 20, pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([of_map, pa.nulls(20)], ["Headers", "Body"])
    assert sizes(chunks([batch])) == [15, 5]


def test_nothing_is_read_before_it_is_needed():
    """The rows of a task may be many: they are composed a chunk at a time."""
    read = []

    def batches():
        for first in range(0, 20_000, 100):
            read.append(first)
            yield rows(range(first, first + 100))

    assert next(chunks(batches())).num_rows == 4_000
    assert len(read) <= 41
