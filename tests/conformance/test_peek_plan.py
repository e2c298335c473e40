"""A peek shows what a stream would receive, and neither locks, deletes nor counts."""

from datetime import UTC, datetime, timedelta

from sqlqueue_spark.claims import Runs
from sqlqueue_spark.connections import Target
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.peeking import plan_peek
from tests.support import tampering
from tests.support.driver import streaming

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


def test_a_peek_is_cut_into_ranges_that_cover_everything_once(engine, queue):
    queue.insert(100)
    tampering.delete(engine, queue, 20, 60)
    tampering.delete(engine, queue, 1, 3)
    given = options(engine, queue, minMessagesPerPartition="30", maxConcurrency="4")
    assert [part.rows for part in plan_peek(given)] == [Runs([(4, 35)]), Runs([(36, 67)]), Runs([(68, 100)])]
    assert peeked(engine, queue, minMessagesPerPartition="30") == [*range(4, 20), *range(61, 101)]


def test_a_peek_leaves_expired_rows_out(engine, queue):
    soon = (datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None)
    queue.insert(2)
    queue.insert(2, start=2, expires=PAST)
    queue.insert(2, start=4, expires=soon)
    assert peeked(engine, queue) == [1, 2, 5, 6]


def test_a_peek_neither_disturbs_a_claim_nor_waits_for_it(engine, queue):
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
