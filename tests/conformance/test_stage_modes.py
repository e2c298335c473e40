"""Mode and stream change between two processes of a pipeline: each message still arrives once,
or a restart is refused.
"""

import dataclasses

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY, ConnectionOptions
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.forwarding import NAME, forwarding, mark_of, staged
from tests.support.messages import message_ids
from tests.support.sending import ids_in
from tests.support.stages import gives_way

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]


@pytest.fixture
def billing(engine):
    """An empty queue called billing, and the outbox of those that send to it by themselves."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    return engine.create_queue("billing")


def say(stream, mode, name=NAME):
    """What the next process is told; each has other limits,
    as the same claim once more would hide what was not deleted.
    """
    stream.options = dataclasses.replace(stream.options, transaction_mode=mode, stream=name)


def die_at(stream, step):
    with at_step(step, crash), pytest.raises(Crash):
        stream.trigger()
    stream.crash()


def test_a_batch_begun_under_another_stream_is_refused(engine, queue, billing):
    """Before it is logged."""
    queue.insert(20)
    with forwarding(engine, queue) as stream:
        die_at(stream, fail_points.STAGE_SEALED)
        say(stream, ATOMIC, "Renamed")
        with pytest.raises(ConfigurationError) as caught:
            stream.trigger()
        schema = engine.default_schema
        assert str(caught.value) == (
            f"The last batch of {queue.address}@[{_database(engine)}] was begun with the stage "
            f"Forward.Outgoing@[{schema}] and has not ended, but the option stream means the stage "
            f"Renamed.Outgoing@[{schema}]; start once with the stream of before, then with the new one."
        )
        stream.crash()
        assert (stream.done, queue.count(), billing.count()) == (0, 20, 0)
        say(stream, ATOMIC)
        assert stream.trigger()
        stream.crash()
        say(stream, ATOMIC, "Renamed")  # now that it is logged it goes out from where it was staged
        queue.insert(5, start=20)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(25)), 0, 0)


def test_a_batch_begun_in_another_mode_is_refused(engine, queue, billing):
    """By an atomic source, before it is logged."""
    queue.insert(20)
    with forwarding(engine, queue, transactionMode=RECEIVE_ONLY) as stream:
        die_at(stream, BATCH_WRITTEN)
        say(stream, ATOMIC)
        with pytest.raises(ConfigurationError) as caught:
            stream.trigger()
        assert str(caught.value) == (
            f"The last batch of {queue.address}@[{_database(engine)}] was begun with transactionMode "
            "receiveOnly and has not ended, and its offset cannot remember a stage; start once with "
            "transactionMode receiveOnly, then with sendsAtomicWithReceive."
        )
        stream.crash()
        say(stream, RECEIVE_ONLY)
        assert stream.trigger()
        stream.crash()
        say(stream, ATOMIC)
        queue.insert(5, start=20)
        stream.drain()
    assert (sorted(ids_in(billing)), queue.count(), staged(engine)) == (message_ids(range(25)), 0, 0)


def test_a_batch_sent_in_part_is_not_staged_again(engine, queue, billing):
    """Its sink has begun to send it by itself."""
    queue.insert(20)
    with forwarding(engine, queue) as stream:
        die_at(stream, fail_points.STAGE_SEALED)
        say(stream, RECEIVE_ONLY)
        die_at(stream, BATCH_WRITTEN)
        assert (mark_of(engine).mode, mark_of(engine).tasks) == (RECEIVE_ONLY, {})
        say(stream, ATOMIC)
        with pytest.raises(ConfigurationError) as caught:
            stream.trigger()
        assert str(caught.value) == (
            f"The unfinished batch whose messages Forward.Outgoing@[{engine.default_schema}] was to "
            "hold was taken up with transactionMode receiveOnly, so its sink may have sent some of it by "
            "itself; start once with transactionMode receiveOnly."
        )
        stream.crash()
        say(stream, RECEIVE_ONLY)
        assert stream.trigger()
        stream.crash()
        say(stream, ATOMIC)  # which finds it logged, and nothing to send for it
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(20)), 0, 0)


def _database(engine):
    ask = {"postgresql": "SELECT current_database()", "sqlserver": "SELECT DB_NAME()"}[engine.name]
    return engine.fetch(ask)[0][0]


def test_a_batch_of_mode_none_ends_in_an_atomic_stream(engine, queue, billing):
    """Workers were taking it. Nothing is taken again; the sink is given no rows, and finds its stage."""
    queue.insert(20)
    with forwarding(engine, queue, transactionMode=NO_TRANSACTION) as stream:
        die_at(stream, fail_points.OFFSET_LOGGED)
        say(stream, ATOMIC)
        assert stream.run()
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(20)), 0, 0)


def test_a_batch_without_rows_of_another_mode_is_refused(engine, queue, billing):
    """Spark runs it again before it asks the source for anything."""
    with forwarding(engine, queue, transactionMode=RECEIVE_ONLY) as stream:
        stream.construct_without_rows([])
        stream.crash()
        say(stream, ATOMIC)
        with pytest.raises(ConfigurationError) as caught:
            stream.run()
        assert str(caught.value).endswith(
            "Where the mode or the stream was changed while a batch had not ended, "
            "start once with those of before; where the database has lost what was committed, give a new "
            "checkpoint folder (a state that the query keeps is lost)."
        )
        stream.crash()
        say(stream, RECEIVE_ONLY)
        assert stream.run()
        stream.crash()
        say(stream, ATOMIC)
        queue.insert(5)
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(5)), 0)


def test_a_batch_that_a_sink_has_sent_by_itself_is_not_staged_again(engine, queue, billing):
    """Without an outbox it is not known what of it was sent."""
    queue.insert(5)
    with forwarding(engine, queue) as stream:
        stream.outbox = "none"
        die_at(stream, fail_points.STAGE_SEALED)
        say(stream, RECEIVE_ONLY)
        die_at(stream, BATCH_WRITTEN)
        assert ids_in(billing) == message_ids(range(5))
        say(stream, ATOMIC)
        with pytest.raises(ConfigurationError) as caught:
            stream.trigger()
        assert str(caught.value) == (
            f"The unfinished batch whose messages Forward.Outgoing@[{engine.default_schema}] was to "
            "hold was taken up with transactionMode receiveOnly, so its sink may have sent some of it by "
            "itself; start once with transactionMode receiveOnly."
        )
    assert (ids_in(billing), queue.count()) == (message_ids(range(5)), 5)
