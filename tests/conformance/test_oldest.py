"""The look at the oldest rows tells free ones from those that a neighbour or another stream of ours holds,
and locks none.
"""

import contextlib

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Oldest
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids


@pytest.fixture
def queue(postgresql):
    return postgresql.create_queue()


@pytest.fixture
def look(postgresql, queue):
    """A stream's look, in a transaction of its own."""
    pool = ConnectionPool(SourceOptions.parse({"url": postgresql.url, "queue": queue.address}), None)

    def oldest(*asked):
        with pool.transaction() as opened:
            (read,) = map(opened.at, pool.names)
            return read.oldest(*asked)

    with contextlib.closing(pool):
        yield oldest


def found(free_before, held, floor, last, free, *, enough=True, streams=0, looking=0):
    return Oldest(free_before, held, floor, last, free, enough, streams, looking)


def test_an_empty_queue_has_none(look):
    assert look(LOWEST, LOWEST, LOWEST, 5) == found(0, 0, LOWEST, LOWEST, 0, enough=False)
    assert look(10, 20, 30, 5) == found(0, 0, 30, 30, 0, enough=False)


def test_free_rows_are_counted_in_two_ranges(queue, look):
    queue.insert(100)
    assert look(LOWEST, LOWEST, LOWEST, 5) == found(0, 0, 0, 5, 5)
    assert look(10, 20, 50, 15) == found(10, 0, 10, 55, 15)
    assert look(10, 20, 50, 4) == found(10, 0, 10, 14, 4)
    assert look(LOWEST, LOWEST, 90, 20) == found(0, 0, 90, 100, 10, enough=False)


def test_rows_that_a_neighbour_holds_are_not_free(queue, look):
    """Whether it has deleted or only locked them; when it gives them back they are free."""
    queue.insert(20)
    with queue.session() as one, queue.session() as other:
        one.take()
        one.take()
        other.lock(4, 11)
        assert look(LOWEST, LOWEST, LOWEST, 3) == found(0, 4, 0, 6, 3, looking=2)
        assert look(LOWEST, 5, 10, 3) == found(2, 4, 0, 12, 3, looking=2)
        one.rollback()
        other.rollback()
        assert look(LOWEST, LOWEST, LOWEST, 3) == found(0, 0, 0, 3, 3)


def without_watch(stream):
    """Its looks during a batch have a session of their own, and each session counts."""
    stream.receiver.source._scanner._watch.close()


def test_a_neighbour_that_looks_for_a_row_is_seen(queue, look):
    """He has found none: others hold them all. A sender looks for none."""
    with queue.session() as sender, queue.session() as receiver:
        sender.insert(1)
        assert look(LOWEST, LOWEST, LOWEST, 5) == found(0, 0, LOWEST, LOWEST, 0, enough=False)
        assert receiver.take() is None
        assert look(LOWEST, LOWEST, LOWEST, 5) == found(0, 0, LOWEST, LOWEST, 0, enough=False, looking=1)


@pytest.mark.parametrize(
    "mode, looking", [("receiveOnly", 1), ("none", 0)], ids=["with claims", "whose workers take rows"]
)
def test_a_neighbour_that_looks_is_told_from_another_stream_unless_its_workers_look_too(
    postgresql, queue, look, mode, looking
):
    queue.insert(5)
    with (
        streaming(postgresql, queue, transactionMode=mode, claimAhead="false") as stream,
        queue.session() as neighbour,
    ):
        without_watch(stream)
        stream.drain()
        assert neighbour.take() is None
        assert look(LOWEST, LOWEST, LOWEST, 5) == found(
            0, 0, LOWEST, LOWEST, 0, enough=False, streams=1, looking=looking
        )


def test_where_neighbours_hold_all_there_is_none_to_leave(queue, look):
    queue.insert(4)
    with queue.locked(1, 2, 3, 4):
        assert look(LOWEST, LOWEST, LOWEST, 2) == found(0, 4, 0, 4, 0, enough=False, looking=1)


def test_rows_that_another_stream_of_ours_holds_are_left_out(postgresql, queue, look):
    queue.insert(20)
    with streaming(postgresql, queue, maxMessagesPerTrigger="5", claimAhead="false") as stream:
        without_watch(stream)
        assert stream.trigger()
        with queue.session() as neighbour:
            neighbour.take()
            assert look(LOWEST, LOWEST, LOWEST, 3) == found(0, 1, 5, 9, 3, streams=1, looking=1)
        stream.drain()
        assert stream.ids() == row_ids(range(20))


def test_the_look_locks_nothing(postgresql, queue):
    queue.insert(5)
    options = SourceOptions.parse({"url": postgresql.url, "queue": queue.address})
    pool = ConnectionPool(options, None)
    with contextlib.closing(pool), pool.transaction() as opened, queue.session() as neighbour:
        (read,) = map(opened.at, pool.names)
        assert read.oldest(LOWEST, LOWEST, LOWEST, 5) == found(0, 0, 0, 5, 5)
        assert [neighbour.take().row_version for _ in range(5)] == [1, 2, 3, 4, 5]


def test_numbers_near_the_ends_are_rows_like_others(queue, look):
    numbers = (LOWEST + 1, LOWEST + 2, -1, 0, HIGHEST - 1, HIGHEST)
    for n, number in enumerate(numbers):
        queue.execute(
            f"INSERT INTO {{table}} (id, headers, body, seq) VALUES ('{row_id(n)}', '{{{{}}}}', '', {number})"
        )
    assert look(LOWEST, LOWEST, LOWEST, 2) == found(0, 0, LOWEST, LOWEST + 2, 2)
    assert look(LOWEST, LOWEST + 2, -1, 4) == found(2, 0, LOWEST, HIGHEST - 1, 4)
    assert look(LOWEST, HIGHEST, HIGHEST, 6) == found(6, 0, LOWEST, HIGHEST, 6)
    assert look(HIGHEST, HIGHEST, HIGHEST, 1) == found(0, 0, HIGHEST, HIGHEST, 0, enough=False)
