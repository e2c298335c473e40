"""Several queues in one atomic pipeline: one stage, and one transaction that settles
all of them and sends.
"""

import dataclasses
import itertools
import json
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, ConnectionOptions
from tests.support import tampering
from tests.support.driver import STEPS, Crash, at_step, crash
from tests.support.forwarding import forwarding, mark_of, staged
from tests.support.messages import message_ids
from tests.support.sending import ids_in
from tests.support.several import Queues
from tests.support.stages import gives_way

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]

SMALL: dict[str, Any] = {
    "maxMessagesPerTrigger": "70",
    "minMessagesPerPartition": "20",
    "maxConcurrency": "3",
}
EVERY_STEP = (*STEPS, fail_points.ROWS_STAGED, fail_points.STAGE_SEALED)


@pytest.fixture
def queues(engine):
    """Three queues, with 80 messages in each."""
    queues = Queues(engine, "a", "b", "c")
    for number, table in enumerate(queues):
        table.insert(80, start=80 * number)
    return queues


@pytest.fixture
def billing(engine):
    """An empty queue called billing."""
    return engine.create_queue("billing")


@pytest.mark.parametrize("step", EVERY_STEP)
def test_each_message_is_sent_once_whatever_the_crash(engine, queues, billing, step):
    with forwarding(engine, queues, queues=queues.listed, **SMALL) as stream:
        limits = itertools.cycle((40, 100))

        def die():
            stream.options = dataclasses.replace(stream.options, max_messages_per_trigger=next(limits))
            crash()

        with at_step(step, die, on={1, 2, 4}):
            stream.drain()
        assert stream.crashes == 3
    assert (sorted(ids_in(billing)), queues.count(), staged(engine)) == (message_ids(range(240)), 0, 0)


@pytest.mark.parametrize("step", [fail_points.COMMIT_LOGGED, fail_points.DELETED, fail_points.COMMITTED])
def test_a_lost_connection_sends_once(engine, queues, billing, step):
    with forwarding(engine, queues, queues=queues.listed, **SMALL) as stream:
        with at_step(step, engine.cut_connections, on={1, 3}) as cuts:
            stream.drain(survives=Exception)
        assert cuts == [1, 3]
    assert (sorted(ids_in(billing)), queues.count(), staged(engine)) == (message_ids(range(240)), 0, 0)


@pytest.mark.parametrize("step", [fail_points.STAGE_SEALED, fail_points.COMMIT_LOGGED])
def test_a_queue_taken_off_the_list_has_its_last_batch_sent(engine, queues, billing, step):
    with forwarding(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        with at_step(step, crash), pytest.raises(Crash):
            assert [stream.trigger() for _ in range(9)] == []
        stream.crash()
        stream.options = dataclasses.replace(
            stream.options, queues=(queues["a"].address, queues["b"].address)
        )
        stream.table = queues["a"]
        stream.drain()
        stream.table = queues["b"]
        stream.drain()
    left = [row.row_version for row in queues["c"].rows()]
    gone = [160 + number - 1 for number in range(1, 81) if number not in left]
    assert 0 < len(gone) < 80
    assert sorted(ids_in(billing)) == sorted(message_ids([*range(160), *gone]))


def test_a_truncated_queue_does_not_keep_the_others_rows_from_being_sent(engine, queues, billing):
    """The batch was logged and its process has died: what is left of it goes out,
    as all of it stood on the stage.
    """
    with forwarding(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        assert stream.trigger()
        stream.crash()
        tampering.truncate(engine, queues["c"])
        queues["c"].insert(80, start=500)
        stream.drain()
    ids = ids_in(billing)
    assert len(ids) == len(set(ids))
    assert set(message_ids(range(160))) <= set(ids)
    assert set(message_ids(range(500, 580))) <= set(ids)
    assert (queues.count(), staged(engine)) == (0, 0)


def test_the_stage_names_the_queues_of_its_batch(engine, queues, billing):
    with forwarding(engine, queues, queues=queues.listed, **SMALL) as stream:
        assert stream.construct()
        stream.plan()
        assert [name.partition("@")[0] for name in mark_of(engine).queue.split("\n")] == ["a", "b", "c"]


def test_a_queue_with_a_line_feed_in_its_name_is_one_queue(engine, billing):
    """Who may create a table that queuePattern finds keeps no stream from its start."""
    queues = Queues(engine, "a", "b\nc")
    for number, table in enumerate(queues):
        table.insert(80, start=80 * number)
    with forwarding(engine, queues, queues=queues.listed, **SMALL) as stream:
        assert stream.construct()
        stream.write(stream.read(stream.plan()))
        stream.crash()
        stream.offsets.clear()
        stream.sink.clear()
        stream.drain()
    assert (sorted(ids_in(billing)), queues.count()) == (message_ids(range(160)), 0)


def test_a_batch_sealed_for_queues_of_another_list_is_refused(engine, queues, billing):
    """With a new checkpoint, and without one of its queues:
    what it has sealed may be all that is left of it.
    """
    with forwarding(engine, queues, queues=queues.listed, **SMALL) as stream:
        assert stream.construct()
        stream.write(stream.read(stream.plan()))
        stream.crash()
        stream.offsets.clear()
        stream.options = dataclasses.replace(
            stream.options, queues=(queues["a"].address, queues["b"].address)
        )
        with pytest.raises(ConfigurationError, match=r"has what a batch of the queue c@.* sends"):
            stream.trigger()
        stream.options = dataclasses.replace(stream.options, queues=tuple(json.loads(queues.listed)))
        stream.crash()
        stream.sink.clear()
        stream.drain()
    assert (sorted(ids_in(billing)), queues.count()) == (message_ids(range(240)), 0)


@pytest.mark.parametrize("modes", [(ATOMIC, RECEIVE_ONLY), (ATOMIC, "none"), ("none", RECEIVE_ONLY)])
def test_the_mode_changes_between_two_batches(engine, queues, billing, modes):
    begun, then = modes
    outbox_tables.create(ConnectionOptions(url=engine.url), "Forward")
    with forwarding(engine, queues, queues=queues.listed, transactionMode=begun, **SMALL) as stream:
        assert stream.trigger()
        assert stream.trigger()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, transaction_mode=then)
        stream.drain()
    assert (sorted(ids_in(billing)), queues.count()) == (message_ids(range(240)), 0)
