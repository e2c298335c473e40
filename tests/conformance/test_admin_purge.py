"""Purging: what stands there now goes, in batches that block no session; what others hold stays."""

import itertools
import threading
from datetime import datetime

import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.errors import LockTimeout
from sqlqueue_spark.options import ConnectionOptions

pytestmark = pytest.mark.needs("deletes_through_cte")

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
FUTURE = datetime(2120, 1, 1)  # noqa: DTZ001 -- the column has no zone


def options(engine):
    # A purge that waited for anyone would fail.
    return ConnectionOptions.parse({"url": engine.url, "lockTimeout": "1s"})


def test_a_purge_deletes_in_batches_the_engine_bears(engine, queue):
    queue.insert(9_000)
    told: list[int] = []
    assert queue_tables.purge(options(engine), "orders", progress=told.append) == 9_000
    expected = {"postgresql": [4_000, 4_000, 1_000], "sqlserver": [2_400, 2_400, 2_400, 1_800]}
    assert (told, queue.count()) == (expected[engine.name], 0)


def test_an_empty_queue_is_purged_at_once(engine, queue):
    assert queue_tables.purge(options(engine), "orders") == 0


def test_rows_that_others_hold_stay_and_no_session_waits(engine, queue):
    queue.insert(5_000)
    held = [1, 2, 3, 2_500, 4_000, 4_001, 5_000]
    with queue.locked(*held):
        assert queue_tables.purge(options(engine), "orders") == 5_000 - len(held)
        assert queue.row_versions() == held
    assert queue_tables.purge(options(engine), "orders") == len(held)


def test_only_expired_rows_go_when_asked(engine, queue):
    kept = [*queue.insert(10)]
    queue.insert(4_500, start=100, expires=PAST)
    kept += queue.insert(10, start=10_000, expires=FUTURE)
    queue.insert(10, start=20_000, expires=PAST)
    told: list[int] = []
    assert queue_tables.purge(options(engine), "orders", expired=True, progress=told.append) == 4_510
    expected = {"postgresql": [4_000, 510], "sqlserver": [2_400, 2_110]}
    assert (told, [row.id.int & 0xFFFFFF for row in queue.rows()]) == (expected[engine.name], kept)


def test_held_expired_rows_stay_and_no_session_waits(engine, queue):
    queue.insert(100, expires=PAST)
    with queue.locked(1, 50, 100):
        assert queue_tables.purge(options(engine), "orders", expired=True) == 97
        assert queue.row_versions() == [1, 50, 100]


def test_rows_being_sent_stay_and_no_session_waits(engine, queue):
    queue.insert(10)
    with queue.session() as sender:
        sender.insert(5, start=100)
        assert queue_tables.purge(options(engine), "orders") == 10
        sender.commit()
    assert queue.count() == 5


def test_a_purge_leaves_what_is_sent_after_it_began(engine, queue):
    queue.insert(9_000)

    numbers = itertools.count(50_000)

    def send(_):
        queue.insert(1, start=next(numbers))

    assert queue_tables.purge(options(engine), "orders", progress=send) == 9_000
    assert queue.count() == {"postgresql": 3, "sqlserver": 4}[engine.name]  # one for each batch


@pytest.mark.parametrize("expired", [False, True])
def test_others_receive_and_send_during_a_purge(engine, queue, expired):
    queue.insert(5_000, expires=PAST)
    others = queue.insert(100, start=6_000)
    taken, stop = [], threading.Event()

    def receive():
        while not stop.is_set():
            row = queue.take()
            if row is not None:
                taken.append(row.id.int & 0xFFFFFF)

    receiver = threading.Thread(target=receive)
    receiver.start()
    try:
        deleted = queue_tables.purge(options(engine), "orders", expired=expired)
        queue.insert(1, start=9_999)
    finally:
        stop.set()
        receiver.join()
    left = [row.id.int & 0xFFFFFF for row in queue.rows()]
    assert len(taken) + len(left) + deleted == 5_101
    assert set(taken) | set(left) <= {*others, 9_999}
    assert not set(taken) & set(left)


def test_a_purge_waits_only_so_long_for_a_table_lock(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1)
    with queue.session() as session:
        session.connection.execute("LOCK TABLE orders")
        said = ConnectionOptions.parse({"url": postgresql.url, "lockTimeout": "100ms"})
        with pytest.raises(LockTimeout, match="try again or raise lockTimeout"):
            queue_tables.purge(said, "orders")
