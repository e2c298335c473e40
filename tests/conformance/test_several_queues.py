"""One stream over several queues: one batch, one transaction, a fair share of each."""

import pytest

from tests.support.driver import streaming
from tests.support.messages import row_ids
from tests.support.several import Queues, by_queue, ids_of


@pytest.fixture
def queues(engine):
    return Queues(engine, "a", "b", "c")


def test_a_batch_has_rows_of_every_queue(queues, engine):
    """Each row says in which queue it was; the address is the one that jobs give to handlers."""
    for count, table in enumerate(queues, start=1):
        table.insert(count)
    with streaming(engine, queues, queues=queues.listed) as stream:
        assert stream.trigger()
        assert by_queue(stream.messages()) == {"a": [1], "b": [1, 2], "c": [1, 2, 3]}
        schema = engine.default_schema
        assert {each["Queue"] for each in stream.messages()} == {f"{name}@[{schema}]" for name in "abc"}
        assert not stream.trigger()
        assert queues.count() == 0


def test_order_within_a_queue_is_kept(queues, engine):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed, maxMessagesPerTrigger="31") as stream:
        stream.drain()
        everything = list(range(1, 51))
        assert by_queue(stream.messages()) == {"a": everything, "b": everything, "c": everything}
        assert [len(batch) for batch in stream.batches()] == [31, 31, 31, 31, 26]


def test_a_huge_backlog_does_not_starve_the_others(queues, engine):
    """What small queues leave of their share goes to the large one, from the second batch on."""
    queues["a"].insert(2000)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="300", claimAhead="false"
    ) as stream:
        for turn in range(4):
            queues["b"].insert(10, start=10 * turn)
            queues["c"].insert(20, start=20 * turn)
            assert stream.trigger()
        assert [{name: len(rows) for name, rows in by_queue(stream.sink[batch]).items()} for batch in range(4)] == [
            {"a": 100, "b": 10, "c": 20}, {"a": 270, "b": 10, "c": 20}, {"a": 270, "b": 10, "c": 20}, {"a": 270, "b": 10, "c": 20},
        ]  # fmt: skip


def test_where_a_batch_has_fewer_rows_than_there_are_queues_each_comes_in_turn(queues, engine):
    for table in queues:
        table.insert(4)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="2", claimAhead="false"
    ) as stream:
        for _ in range(3):
            assert stream.trigger()
        assert by_queue(stream.messages()) == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


def test_a_claim_ahead_has_rows_of_every_queue(queues, engine):
    for table in queues:
        table.insert(40)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="30", adaptiveBatch="false"
    ) as stream:
        stream.drain()
        shares = [
            {name: len(rows) for name, rows in by_queue(stream.sink[each]).items()} for each in stream.sink
        ]
        assert shares == [{"a": 10, "b": 10, "c": 10}] * 4


MODES = {"receiveOnly": {}, "none": {"transactionMode": "none"}}


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_every_message_comes_once(mode, queues, engine):
    for table in queues:
        table.insert(100)
    small = {"maxMessagesPerTrigger": "70", "minMessagesPerPartition": "20", "maxConcurrency": "2"}
    with streaming(engine, queues, queues=queues.listed, **small, **mode) as stream:
        stream.drain()
        assert [ids_of(stream, name) for name in "abc"] == [row_ids(range(100))] * 3
        assert queues.count() == 0


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_a_slice_goes_over_several_queues(mode, queues, engine):
    """A slice has a fixed cost, so ten small queues are no ten slices."""
    for table in queues:
        table.insert(10)
    small = {"minMessagesPerPartition": "15", "maxConcurrency": "2"}
    with streaming(engine, queues, queues=queues.listed, **small, **mode) as stream:
        assert stream.construct()
        slices = stream.plan()
        assert [[(address.partition("@")[0], len(part.rows)) for address, part in each.slices] for each in slices] == [
            [("a", 10), ("b", 5)], [("b", 5), ("c", 10)],
        ]  # fmt: skip
        stream.run()
        assert by_queue(stream.messages()) == {name: list(range(1, 11)) for name in "abc"}
