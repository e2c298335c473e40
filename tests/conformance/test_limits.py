"""A batch holds a limited number of rows and bytes, and is cut into as many slices as pay."""

from datetime import datetime

import pytest

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.offset import INITIAL
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from tests.support.driver import each_mode, streaming
from tests.support.messages import body, headers, row_id, row_ids

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def sizes(stream):
    return [len(batch) for batch in stream.batches()]


def test_a_batch_holds_a_number_of_rows_at_most(engine, queue):
    queue.insert(25)
    with streaming(engine, queue, maxMessagesPerTrigger="10") as stream:
        stream.drain()
        assert (sizes(stream), stream.ids()) == ([10, 10, 5], row_ids(range(25)))


def test_expired_rows_count_as_rows_of_a_batch(engine, queue):
    queue.insert(5)
    queue.insert(5, start=10, expires=PAST)
    queue.insert(5, start=20)
    with streaming(engine, queue, maxMessagesPerTrigger="8") as stream:
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4, 5], [11, 12, 13, 14, 15]], 0)


@each_mode
def test_a_batch_holds_a_number_of_bytes_at_most(engine, queue, mode):
    """Of headers and bodies."""
    queue.insert(10, size=1000)
    limit = str(3 * (engine.bytes_of(headers(0)) + 1000))
    with streaming(engine, queue, transactionMode=mode, maxBytesPerTrigger=limit) as stream:
        stream.drain()
        assert (sizes(stream), stream.ids()) == ([3, 3, 3, 1], row_ids(range(10)))


def test_a_byte_less_and_the_last_message_no_longer_fits(engine, queue):
    queue.insert(6, size=1000)
    with streaming(
        engine, queue, maxBytesPerTrigger=str(3 * (engine.bytes_of(headers(0)) + 1000) - 1)
    ) as stream:
        stream.drain()
        assert (sizes(stream), stream.ids()) == ([2, 2, 2], row_ids(range(6)))


def test_a_message_above_the_limit_goes_alone(engine, queue):
    queue.insert(3)
    queue.insert_row(id=row_id(3), headers=headers(3), body=body(3, 50 << 20))
    queue.insert(3, start=4)
    with streaming(engine, queue, maxBytesPerTrigger="1m") as stream:
        stream.drain()
        assert (stream.batches(), stream.ids()) == ([[1, 2, 3], [4], [5, 6, 7]], row_ids(range(7)))
        assert stream.sink[1][0]["Body"] == body(3, 50 << 20)


def test_messages_above_the_limit_go_one_by_one(engine, queue):
    """Also those that are the first."""
    for number in range(3):
        queue.insert_row(id=row_id(number), headers="{}", body=bytes(2 << 20))
    with streaming(engine, queue, maxBytesPerTrigger="1m") as stream:
        stream.drain()
        assert stream.batches() == [[1], [2], [3]]


def test_a_limit_of_bytes_keeps_the_order_strict(engine, queue):
    """It ends every batch."""
    queue.insert(1000)
    with streaming(engine, queue, maxBytesPerTrigger="100k", maxConcurrency="1") as stream:
        stream.drain()
        assert stream.ids() == row_ids(range(1000))
        # 139 messages of 736 bytes, or 72 of 1408 where a character of headers counts two
        assert len(stream.sink) == {672: 8, 1344: 14}[engine.bytes_of(headers(0))]


def test_rows_that_do_not_fit_are_free_after_the_batch(engine, queue):
    queue.insert(1)
    queue.insert(2, start=1, size=5000)
    with streaming(engine, queue, maxBytesPerTrigger="4k") as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        assert queue.take().row_version == 2
        stream.drain()
        assert stream.batches() == [[1], [3]]


def test_a_batch_without_a_limit_takes_everything(engine, queue):
    """Everything that is there, if no limit of rows is given."""
    queue.insert(3000, size=2000)
    with streaming(engine, queue, maxMessagesPerTrigger="10", maxBytesPerTrigger="4k") as stream:
        end = stream.receiver.latest(dict(INITIAL), None)
        assert (end["rows"], sum(len(part.rows) for (part,) in stream.receiver.plan(dict(INITIAL), end))) == (
            3000,
            3000,
        )


@pytest.mark.parametrize(
    "rows, slices", [(1, [1]), (19, [19]), (20, [20]), (39, [39]), (40, [20, 20]), (100, [34, 33, 33])]
)
def test_a_batch_is_split_only_into_large_enough_slices(engine, queue, rows, slices):
    queue.insert(rows, size=100)
    with streaming(engine, queue, minMessagesPerPartition="20", maxConcurrency="3") as stream:
        assert stream.construct()
        assert [len(part.rows) for part in stream.plan()] == slices


def test_slices_are_of_similar_bytes_rather_than_rows(engine, queue):
    queue.insert(30)
    queue.insert(1, start=30, size=1 << 20)
    queue.insert(30, start=31)
    with streaming(engine, queue, minMessagesPerPartition="20", maxConcurrency="4") as stream:
        assert stream.construct()
        assert [part.rows for part in stream.plan()] == [RowSet([(1, 31)]), RowSet([(32, 61)])]
        stream.drain()
        assert stream.ids() == row_ids(range(61))


@each_mode
def test_record_batches_are_bounded_in_rows_and_bytes(engine, queue, mode):
    """All are of one schema."""
    queue.insert(25_000)
    queue.insert(12, start=25_000, size=3 << 20)
    with streaming(
        engine, queue, transactionMode=mode, maxConcurrency="1", maxMessagesPerTrigger="30000"
    ) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        rows, most, schemas = 0, 0, set()
        reader = SliceReader(Target.of(stream.options))
        for batch in {"receiveOnly": reader.read, "none": reader.take}[mode](part):
            rows += batch.num_rows
            most = max(most, batch.nbytes)
            schemas.add(batch.schema)
            assert batch.num_rows <= 10_000
    assert (rows, schemas) == (25_012, {SCHEMA})
    assert queue.count() == {"receiveOnly": 25_012, "none": 0}[mode]
    assert most <= 12 << 20  # the limit, and the row that crosses it


def test_a_bounded_run_takes_only_what_was_there(engine, queue):
    """When it began."""
    queue.insert(25)
    with streaming(engine, queue, maxMessagesPerTrigger="10") as stream:
        stream.receiver.stop_at_present_end()
        assert stream.trigger()
        queue.insert(20, start=100)
        while stream.trigger():
            pass
        assert (stream.ids(), queue.row_versions()) == (row_ids(range(25)), list(range(26, 46)))


def test_a_bounded_run_of_an_empty_queue_takes_nothing(engine, queue):
    with streaming(engine, queue) as stream:
        stream.receiver.stop_at_present_end()
        queue.insert(5)
        assert not stream.trigger()
        assert queue.row_versions() == [1, 2, 3, 4, 5]


def test_a_bounded_run_comes_back_for_freed_rows(engine, queue):
    """Below those that it has taken."""
    queue.insert(30)
    with streaming(engine, queue, maxMessagesPerTrigger="10") as stream, queue.session() as other:
        other.lock(3)
        stream.receiver.stop_at_present_end()
        for _ in range(3):
            assert stream.trigger()
        other.rollback()
        assert stream.trigger()
        assert not stream.trigger()
        assert (stream.batches()[-1], queue.count()) == ([3], 0)


def test_large_messages_among_small_ones_arrive_whole(engine, queue):
    """And in order."""
    large = (0, 1_201, 2_702)
    for number, small in zip(large, (1_200, 1_500, 0), strict=True):
        queue.insert_row(id=row_id(number), headers=headers(number), body=body(number, 9_000))
        queue.insert(small, start=number + 1)
    with streaming(engine, queue, maxConcurrency="1") as stream:
        stream.drain()
        assert stream.batches() == [list(range(1, 2_704))]
        assert [(row["Headers"], row["Body"]) for row in stream.sink[0]] == [
            (headers(number), body(number, 9_000 if number in large else 64)) for number in range(2_703)
        ]
