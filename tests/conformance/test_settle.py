"""Spark may ask twice, late or never: a batch is settled once, when Spark has logged it, and not before."""

import pytest

from sqlqueue_spark.receive.offset import INITIAL
from tests.support.driver import streaming
from tests.support.messages import row_ids


def test_a_batch_stays_in_the_table_until_spark_asks_for_more(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        assert queue.take() is None
        stream.run()
        assert queue.take() is None
        stream.crash()  # nothing was deleted yet
        assert not stream.trigger()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)


@pytest.mark.parametrize("commit", [True, False], ids=["late", "never"])
def test_everything_is_settled_however_spark_calls_commit(engine, queue, commit):
    queue.insert(50)
    with streaming(engine, queue, commit=commit, maxMessagesPerTrigger="20") as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(50)), 0)


def test_a_commit_alone_settles_the_batch(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        assert queue.count() == 0


def test_a_second_commit_is_harmless(engine, queue):
    queue.insert(5)
    with streaming(engine, queue, maxMessagesPerTrigger="3") as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        stream.receiver.settle(stream.end(1))
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3], [4, 5]], 0)


def test_a_commit_of_another_batch_settles_nothing(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.receiver.settle(dict(INITIAL))
        stream.receiver.settle(stream.end(0))
        stream.crash()
        assert queue.row_versions() == [1, 2, 3, 4, 5]


def test_a_commit_to_a_receiver_that_holds_nothing_is_harmless(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        stream.receiver.settle(stream.end(1))
        assert queue.row_versions() == [1, 2, 3, 4, 5]


def test_asked_again_before_the_batch_ran_the_held_offset_comes_again(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        first = stream.receiver.latest(dict(INITIAL), 3)
        queue.insert(5, start=5)
        assert stream.receiver.latest(dict(INITIAL), 10) == first
        stream.drain()
        assert stream.batches()[0] == [1, 2, 3]
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_batch_that_is_planned_twice_is_the_same_batch(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        assert stream.plan() == stream.plan()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)


def test_nothing_new_is_the_start_itself(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.receiver.latest(dict(INITIAL), 10) != INITIAL
        stream.receiver.close()
        stream.drain()
        assert stream.receiver.latest(stream.end(1), 10) == stream.end(1)
        assert stream.receiver.plan(stream.end(1), stream.end(1)) == []


def test_the_present_end_is_looked_up_without_giving_the_held_batch_back(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.receiver.stop_at_present_end()
        assert queue.take() is None
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)


def test_a_receiver_that_is_closed_gives_its_rows_back_and_may_begin_again(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.receiver.close()
        stream.receiver.close()
        assert queue.take(1).row_version == 1
        stream.offsets.clear()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[2, 3, 4, 5]], 0)
