"""One stream over several queues: one batch, one transaction, a fair share of each."""

import json

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
