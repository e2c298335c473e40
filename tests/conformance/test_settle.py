"""Spark may ask twice, late or never: a batch is settled once, when Spark has logged it, and not before."""

import pytest

from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.offset import INITIAL
from tests.support.driver import streaming
from tests.support.messages import row_ids
from tests.support.streams import free
from tests.support.waiting import eventually


def test_a_batch_stays_until_spark_asks_for_more(engine, queue):
    """In the table."""
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
def test_batches_are_settled_with_or_without_commit(engine, queue, commit):
    """Spark calls it late or never."""
    queue.insert(50)
    with streaming(engine, queue, commit=commit, maxMessagesPerTrigger="20") as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(50)), 0)


def test_a_trigger_on_the_queue_makes_no_batch_a_lost_one(sqlserver):
    """Its statements change more rows than the batch has."""
    queue = sqlserver.create_queue()
    sqlserver.execute("CREATE TABLE dbo.gone (number bigint)")
    sqlserver.execute(
        "CREATE TRIGGER dbo.going ON dbo.orders AFTER DELETE AS INSERT INTO dbo.gone (number) "
        "SELECT d.RowVersion FROM deleted AS d CROSS JOIN (VALUES (1), (2), (3)) AS n (n)"
    )
    queue.insert(50)
    with streaming(sqlserver, queue, maxMessagesPerTrigger="20") as stream:
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


def test_a_commit_without_a_held_batch_is_harmless(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        stream.receiver.settle(stream.end(1))
        assert queue.row_versions() == [1, 2, 3, 4, 5]


def test_a_held_offset_asked_for_again_is_the_same(engine, queue):
    """As long as the batch has not run."""
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


def test_looking_up_the_present_end_keeps_the_batch(engine, queue):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.receiver.stop_at_present_end()
        assert queue.take() is None
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)


def test_a_closed_receiver_gives_its_rows_back(engine, queue):
    """It may begin again."""
    queue.insert(5)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.receiver.close()
        stream.receiver.close()
        eventually(lambda: free(queue) == 5)  # a server takes its time to end a session
        assert queue.take(1).row_version == 1
        stream.offsets.clear()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[2, 3, 4, 5]], 0)


def test_an_error_that_ends_the_whole_transaction_loses_the_claim(sqlserver, monkeypatch, caplog):
    """As a deadlock does. Microsoft's driver has begun another transaction when it is looked at."""
    queue = sqlserver.create_queue()
    queue.insert(5)
    ended = iter(["SET XACT_ABORT ON", "SELECT 1 / 0"])
    delete = QueueRows.delete

    def deleting(rows):
        delete(rows)
        for statement in ended:
            rows.queue.connection.execute(statement)

    monkeypatch.setattr(QueueRows, "delete", deleting)
    with streaming(sqlserver, queue) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)
    events = [each.split(" ")[0] for each in caplog.messages]
    assert [each for each in events if each in ("claim_lost", "settling_waits")] == ["claim_lost"]
