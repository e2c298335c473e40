"""A peek shows what a stream would receive, and neither locks, deletes nor counts."""

from datetime import UTC, datetime, timedelta

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.reading.peek import plan_peek
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from tests.support import tampering
from tests.support.driver import streaming, watched_connections

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def options(engine, queue, **more):
    return SourceOptions.parse({"url": engine.url, "queue": queue.address, **more})


def peeked(engine, queue, **more):
    given = options(engine, queue, **more)
    reader = SliceReader(Target.of(given))
    batches = [batch for part in plan_peek(given) for batch in reader.peek(part)]
    return [row for batch in batches for row in batch.column("RowVersion").to_pylist()]


def test_a_peek_at_an_empty_queue_plans_nothing(engine, queue):
    assert plan_peek(options(engine, queue)) == []


def test_a_peek_shows_every_row_in_order_and_leaves_it(engine, queue):
    queue.insert(100)
    assert peeked(engine, queue) == list(range(1, 101))
    assert queue.count() == 100


def test_the_ranges_of_a_peek_cover_everything_once(engine, queue):
    queue.insert(100)
    tampering.delete(engine, queue, 20, 60)
    tampering.delete(engine, queue, 1, 3)
    given = options(engine, queue, minMessagesPerPartition="30", maxConcurrency="4")
    slices = plan_peek(given)
    assert [part.rows for (part,) in slices] == [
        RowSet([(4, 35)]),
        RowSet([(36, 67)]),
        RowSet([(68, 100)]),
    ]
    assert peeked(engine, queue, minMessagesPerPartition="30") == [*range(4, 20), *range(61, 101)]


def test_a_peek_leaves_expired_rows_out(engine, queue):
    soon = (datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None)
    queue.insert(2)
    queue.insert(2, start=2, expires=PAST)
    queue.insert(2, start=4, expires=soon)
    assert peeked(engine, queue) == [1, 2, 5, 6]


def test_a_peek_neither_disturbs_nor_awaits_a_claim(engine, queue):
    queue.insert(10)
    with streaming(engine, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.construct()
        seen = peeked(engine, queue, lockTimeout="1ms")
        assert seen == list(range(1, 11))
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]], 0)


def test_rows_that_vanish_during_a_peek_are_no_error(engine, queue):
    queue.insert(10)
    given = options(engine, queue)
    parts = plan_peek(given)
    tampering.delete(engine, queue, 1, 9)
    batches = list(SliceReader(Target.of(given)).peek(parts[0]))
    assert [row for batch in batches for row in batch.column("RowVersion").to_pylist()] == [10]


def test_the_oldest_rows_are_shown_however_many_arrive(engine, queue):
    """Others send while the peek is planned."""
    queue.insert(100)
    arrived = list[range]()

    def send_after_each_statement(_, connection):
        execute = connection.execute

        def execute_while_others_send(*asked, **doing):
            found = execute(*asked, **doing)
            arrived.append(queue.insert(50, start=100 + 50 * len(arrived)))
            return found

        connection.execute = execute_while_others_send

    with watched_connections(send_after_each_statement):
        parts = plan_peek(options(engine, queue))
    assert arrived
    reader = SliceReader(Target.of(options(engine, queue)))
    seen = [
        row for part in parts for batch in reader.peek(part) for row in batch.column("RowVersion").to_pylist()
    ]
    assert seen[:100] == list(range(1, 101))


def test_a_peek_shows_numbers_however_far_apart(engine, queue):
    """Further apart than a bigint can say."""
    furthest = [LOWEST + 1, -1, 0, 1, HIGHEST]
    tampering.insert_at(engine, queue, *furthest)
    assert peeked(engine, queue) == furthest
    assert peeked(engine, queue, maxConcurrency="1") == furthest
    assert peeked(engine, queue, minMessagesPerPartition="1", maxConcurrency="7") == furthest
