"""A batch that was logged but not done is the same batch again, less what others took meanwhile."""

import json

import pytest

from sqlqueue_spark.errors import ConfigurationError
from tests.support import tampering
from tests.support.driver import each_mode, streaming
from tests.support.messages import row_ids


def test_a_replay_is_the_same_rows_in_the_same_order(engine, queue):
    queue.insert(100)
    with streaming(engine, queue, maxMessagesPerTrigger="60", minMessagesPerPartition="20") as stream:
        assert stream.construct()
        before = stream.read(stream.plan())
        stream.crash()
        queue.insert(10, start=100)
        assert stream.read(stream.plan()) == before
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(110)), 0)


def test_rows_given_back_do_not_change_a_replay(engine, queue):
    """Other rows were claimed in between, and given back."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        stream.receiver.stop_at_present_end()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([list(range(1, 11))], 0)


def test_rows_that_others_took_since_are_left_out(engine, queue, caplog):
    """The log says how many."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        assert [queue.take().row_version for _ in range(3)] == [1, 2, 3]
        stream.drain()
        assert (stream.batches(), queue.count()) == ([list(range(4, 11))], 0)
    assert "rows=7 taken_by_others=3" in caplog.text


def test_a_batch_that_others_took_whole_is_empty(engine, queue):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        tampering.delete(engine, queue, 1, 10)
        assert stream.plan() == []
        assert stream.trigger()
        queue.insert(1, start=10)
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[], [11]], 0)


def test_a_claim_is_read_without_rows_in_its_gaps(engine, queue):
    """Which have come up there since."""
    queue.insert(500)
    gaps = [*range(10, 20), *range(30, 400, 2)]
    with streaming(engine, queue, minMessagesPerPartition="50") as stream, queue.session() as other:
        other.lock(*gaps)
        assert stream.construct()
        stream.crash()
        other.rollback()
        assert stream.trigger()
        assert stream.batches() == [[row for row in range(1, 501) if row not in gaps]]
        stream.drain()
        assert (sorted(stream.ids()), queue.count()) == (row_ids(range(500)), 0)


def test_rows_far_apart_are_read_and_settled(engine, queue):
    queue.insert(3000)
    tampering.delete(engine, queue, 2, 1400)
    tampering.delete(engine, queue, 1410, 2990)
    with streaming(engine, queue) as stream:
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, *range(1401, 1410), *range(2991, 3001)]], 0)


@each_mode
@pytest.mark.parametrize("done", [True, False], ids=["done", "unfinished"])
def test_the_checkpoint_of_another_queue_is_refused(engine, queue, mode, done):
    """Nothing is touched."""
    other = engine.create_queue("invoices")
    queue.insert(5)
    other.insert(5)
    with (
        streaming(engine, queue, transactionMode=mode) as stream,
        streaming(engine, other, transactionMode=mode) as wrong,
    ):
        assert stream.construct()
        if done:
            stream.run()
        stream.crash()
        wrong.offsets, wrong.done = stream.offsets, stream.done
        name = stream.end(1)["queue"]
        with pytest.raises(ConfigurationError) as caught:
            wrong.trigger()
        assert str(caught.value) == (
            f"The checkpoint belongs to the queue {name}, not to {name.replace('orders', 'invoices')}; "
            "give every queue a checkpoint of its own, or correct the option queue; several sources of a "
            "query keep their order."
        )
        wrong.crash()
        taken = (mode, done) == ("none", True)
        assert (queue.count(), other.count()) == (0 if taken else 5, 5)


@pytest.mark.parametrize("offset", [{}, {"version": 2, "live": ""}, {"offset": 3}], ids=str)
def test_an_offset_that_is_not_ours_is_refused(engine, queue, offset):
    queue.insert(5)
    with streaming(engine, queue) as stream:
        with pytest.raises(
            ConfigurationError, match=r"^The checkpoint holds an offset that this version of sqlqueue "
        ):
            stream.receiver.latest(offset, 10)
        stream.crash()
        assert queue.count() == 5


def test_rows_that_lie_in_any_order_are_replayed(postgresql):
    """The queue has no index that gives them by their numbers."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    tampering.insert_at(postgresql, queue, 3, 1, 4, 2)
    with streaming(postgresql, queue) as stream:
        assert stream.construct()
        assert [*stream.end(1)["witnesses"]] == ["1", "2", "3", "4"]
        stream.crash()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4]], 0)


def test_witnesses_in_any_order_are_looked_for(engine, queue):
    """As earlier versions wrote them into a checkpoint where rows lay in any order."""
    queue.insert(4)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        written = stream.end(1)
        written["witnesses"] = {number: written["witnesses"][number] for number in "3142"}
        stream.offsets = [json.dumps(written)]
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4]], 0)
