"""Rows that merely carry the numbers of a claim are other messages, as its witnesses tell:
none is ever deleted unprocessed.
"""

import pytest

from sqlqueue_spark.errors import ClaimLost
from sqlqueue_spark.row_set import RowSet
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids
from tests.support.waiting import eventually


def truncated(engine, queue):
    """The same table, and its numbers begin again."""
    tampering.truncate(engine, queue)
    queue.insert(60, start=1000)
    return queue.ids()


def truncated_and_half_taken(engine, queue):
    """Likewise, and other receivers have taken the first of the new messages."""
    tampering.truncate(engine, queue)
    queue.insert(60, start=1000)
    tampering.delete(engine, queue, 1, 25)
    return queue.ids()


def recreated(engine, queue):
    """Another table of this name."""
    tampering.drop(queue)
    engine.create_queue()
    queue.insert(60, start=1000)
    return queue.ids()


def recreated_with_the_same_ids(engine, queue):
    """Another table of this name, into which the first messages were sent again."""
    tampering.drop(queue)
    engine.create_queue()
    queue.insert(60)
    return queue.ids()


def restored_with_other_messages(engine, queue):
    """Every number belongs to another message."""
    tampering.put_other_messages(engine, queue, 1, 100)
    return queue.ids()


def restored_from_half_the_claim(engine, queue):
    """A copy from the middle of the claim, after which other messages came."""
    tampering.put_other_messages(engine, queue, 41, 100)
    return queue.ids()[40:]


def restored_and_one_came(engine, queue):
    """A copy from the middle of the claim, after which one message came: its number is no witness's."""
    tampering.delete(engine, queue, 42, 100)
    tampering.put_other_messages(engine, queue, 41, 41)
    return queue.ids()[40:]


ACCIDENTS = [
    truncated,
    truncated_and_half_taken,
    recreated,
    recreated_with_the_same_ids,
    restored_with_other_messages,
    restored_from_half_the_claim,
    restored_and_one_came,
]


def each_once(new, stream):
    """How often each of the new messages is in the sink beyond the first batch."""
    later = [message["Id"] for batch in sorted(stream.sink) if batch for message in stream.sink[batch]]
    return [later.count(str(each)) for each in new]


@pytest.mark.parametrize("after", ["crash", "cut"])
@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda each: each.__name__)
def test_settling_again_deletes_no_new_message(engine, queue, accident, after):
    """What was left of a logged batch is settled by the next process, or by this one."""
    queue.insert(100)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.crash() if after == "crash" else engine.cut_connections()
        new = accident(engine, queue)
        stream.drain()
        assert stream.batches()[0] == list(range(1, 101))
        assert (each_once(new, stream), queue.count()) == ([1] * len(new), 0)


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda each: each.__name__)
def test_a_replay_deletes_no_new_message(engine, queue, accident):
    """The sink has the batch already."""
    queue.insert(100)
    with streaming(engine, queue) as stream:
        stream.construct()
        stream.write(stream.read(stream.plan()))
        stream.crash()
        new = accident(engine, queue)
        stream.drain()
        assert stream.batches()[0] == list(range(1, 101))
        assert (each_once(new, stream), queue.count()) == ([1] * len(new), 0)


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda each: each.__name__)
def test_a_replay_loses_no_new_message(engine, queue, accident):
    """The sink lacks the batch."""
    queue.insert(100)
    with streaming(engine, queue) as stream:
        stream.construct()
        stream.crash()
        new = accident(engine, queue)
        stream.drain()
        sunk = stream.ids()
        assert ([sunk.count(each) for each in new], queue.count()) == ([1] * len(new), 0)


def test_a_claim_that_lost_its_witnesses_comes_again(engine, queue, caplog):
    """Others took all of them; what is left of the claim is left alone."""
    queue.insert(1000)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.crash()
        tampering.delete(engine, queue, 1, 1)
        tampering.delete(engine, queue, 3, 1000)
        assert stream.trigger()
        assert stream.batches() == [list(range(1, 1001)), [2]]
    assert "not_the_same_rows queue=" in caplog.text


def test_the_last_witness_recovers_the_rest_of_a_claim(engine, queue, caplog):
    """Others took the rows before it."""
    queue.insert(1000)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.crash()
        tampering.delete(engine, queue, 1, 990)
        assert not stream.trigger()
        assert (stream.ids(), queue.count()) == (row_ids(range(1000)), 0)
    assert " deleted=10: rows of the last logged batch" in caplog.text


@pytest.mark.parametrize("refilled", [10, 25])
def test_new_rows_are_not_read_for_those_of_a_lost_claim(engine, queue, refilled):
    """They have the same numbers."""
    queue.insert(10)
    with streaming(engine, queue, minMessagesPerPartition="5") as stream:
        assert stream.construct()
        slices = stream.plan()
        assert [(part.rows, len(part.witnesses)) for part in slices] == [
            (RowSet([(1, 5)]), 5),
            (RowSet([(6, 10)]), 5),
        ]
        stream.cut()
        eventually(lambda: not tampering.holds_a_transaction(engine, stream.name))
        tampering.truncate(engine, queue)
        queue.insert(refilled, start=100)
        expected = (
            rf"^The row with RowVersion 1 of orders@\S+ was the message {row_id(0)} when it was claimed, and "
            rf"is {row_id(100)} now: .* start the stream again, which leaves the rows of others alone\.$"
        )
        with pytest.raises(ClaimLost, match=expected):
            stream.read(slices)
        stream.crash()
        stream.drain()  # the replay is empty, and the new rows come in a batch of their own
        assert stream.batches() == [[], list(range(1, refilled + 1))]
        assert (stream.ids(), queue.count()) == (row_ids(range(100, 100 + refilled)), 0)
