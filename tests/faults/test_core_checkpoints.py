"""A checkpoint that goes back, whose sink knows messages and not batch numbers:
nothing is lost and nothing comes twice.

The outbox goes by message ids, the stage by the name of a claim. What a sink that goes by batch numbers
loses, is shown first.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.fail_points import CHUNK_SENT
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from sqlqueue_spark.tables.outbox import Outbox
from tests.support.death_steps import STEPS
from tests.support.driver import BATCH_WRITTEN, Crash, Stream, at_step, crash, streaming, watched_connections
from tests.support.forwarding import NAME, forwarding
from tests.support.messages import message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.stages import gives_way

pytestmark = gives_way

LIMIT: dict[str, Any] = {"maxMessagesPerTrigger": "5", "claimAhead": "false"}
#: How many batches of four the offsets and the commits are moved back to;
#: of (2, 1) the last is begun and not done.
BACKUPS = [(0, 0), (1, 0), (1, 1), (2, 1), (3, 3), (4, 3)]


def move_back(stream, begun, done):
    """The folder is what it was when these numbers of batches had been begun and done."""
    stream.stop()
    stream.offsets = stream.offsets[:begun]
    stream.done = done


@pytest.fixture
def pipelines(engine):
    """Pipelines from the queue orders, by what drops their repeats, and the message ids that have arrived."""
    queue = engine.create_queue()
    billing = engine.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)

    def by(kind):
        mode = {"atomic": {}, "outbox": {"transactionMode": "receiveOnly"}}[kind]
        return queue, forwarding(engine, queue, **LIMIT, **mode)

    return by, lambda: sorted(ids_in(billing))


def test_a_sink_that_knows_batch_numbers_loses_messages(engine, queue):
    """Those that come after a checkpoint went back; which is why that sink has to look,
    as write_delta does.
    """
    queue.insert(20)
    with streaming(engine, queue, **LIMIT) as stream:
        stream.drain()
        move_back(stream, 1, 1)
        queue.insert(10, start=20)
        stream.drain()
        assert sorted(stream.ids()) == list(row_ids(range(20)))


@pytest.mark.parametrize("kind", ["outbox", "atomic"])
@pytest.mark.parametrize("begun,done", BACKUPS)
def test_a_checkpoint_moved_back_costs_no_message(pipelines, kind, begun, done):
    by, arrived = pipelines
    queue, pipeline = by(kind)
    queue.insert(20)
    with pipeline as stream:
        stream.drain()
        assert stream.done == 4
        move_back(stream, begun, done)
        queue.insert(12, start=20)
        stream.drain()
    assert (arrived(), queue.count()) == (sorted(message_ids(range(32))), 0)


@pytest.mark.parametrize("kind", ["outbox", "atomic"])
@pytest.mark.parametrize("begun,done", [(1, 0), pytest.param(2, 1, marks=pytest.mark.tier("nightly"))])
@pytest.mark.parametrize("step", [*STEPS, BATCH_WRITTEN])
def test_a_checkpoint_moved_back_after_a_crash_costs_no_message(pipelines, kind, begun, done, step):
    """The batch in which the process died is in doubt: sent or not, sealed or not, logged or not."""
    by, arrived = pipelines
    queue, pipeline = by(kind)
    queue.insert(20)
    with pipeline as stream:
        with at_step(step, crash, on=(3,)), contextlib.suppress(Crash):
            while stream.trigger():
                pass
        stream.crash()
        assert stream.done >= 1
        move_back(stream, min(begun, len(stream.offsets)), min(done, stream.done))
        queue.insert(12, start=20)
        stream.drain()
    assert (arrived(), queue.count()) == (sorted(message_ids(range(32))), 0)


@pytest.mark.parametrize("kind", ["outbox", "atomic"])
def test_two_streams_on_copies_of_a_checkpoint_cost_no_message(engine, pipelines, kind):
    """In turn, batch by batch.

    The atomic ones share a stage, so that one of them ends and gives its rows back.
    """
    by, arrived = pipelines
    queue, pipeline = by(kind)
    queue.insert(20)
    with pipeline as stream:
        stream.trigger()
        stream.stop()
        copy = type(stream)(
            engine,
            queue,
            **{**LIMIT, "transactionMode": stream.options.transaction_mode, "lockTimeout": "1s"},
        )
        copy.offsets, copy.done = list(stream.offsets), stream.done
        stream.options = copy.options
        queue.insert(12, start=20)
        with watched_connections(copy.opened):
            refused = pytest.raises(ConfigurationError, match=r"^Two sources use the stage ")
            with refused if kind == "atomic" else contextlib.nullcontext():
                while copy.trigger() | stream.trigger():
                    pass
            copy.stop()
        stream.drain()
    assert (arrived(), queue.count()) == (sorted(message_ids(range(32))), 0)


@pytest.mark.parametrize("step", [CHUNK_SENT, BATCH_WRITTEN, None], ids=["half sent", "written", "logged"])
@pytest.mark.parametrize("begun", [0, 1], ids=["a new checkpoint", "an older checkpoint"])
def test_an_atomic_pipeline_knows_what_it_sent_before_it_was_atomic(pipelines, step, begun):
    """The rows of a batch that was sent in another mode are still in the queue,
    and no checkpoint tells of the batch.
    """
    by, arrived = pipelines
    queue, pipeline = by("outbox")
    queue.insert(8)
    with pipeline as stream:
        assert stream.trigger()
        queue.insert(3, start=8)
        dies = contextlib.nullcontext() if step is None else at_step(step, crash)
        with dies, contextlib.suppress(Crash):
            stream.trigger()
        stream.crash()
        move_back(stream, begun, begun)
        stream.options = dataclasses.replace(stream.options, transaction_mode=ATOMIC)
        stream.drain()
    assert (arrived(), queue.count()) == (sorted(message_ids(range(11))), 0)


class Processing(Stream):
    """Hands what it receives to a function that writes with :meth:`Outbox.process`."""

    connect: Callable[[], Any]

    def write(self, messages):
        ids = [str(message["Id"]) for message in messages]
        with contextlib.closing(self.connect()) as connection:
            new = Outbox("Sales").process(connection, ids)
            with contextlib.closing(connection.cursor()) as cursor:
                for each in new:
                    cursor.execute(f"INSERT INTO placed (id) VALUES ('{each}')")
            connection.commit()


@pytest.mark.parametrize("begun,done", BACKUPS)
def test_a_function_with_an_outbox_writes_messages_once(postgresql, begun, done):
    import psycopg

    queue = postgresql.create_queue()
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    postgresql.execute("CREATE TABLE placed (id varchar(200))")
    queue.insert(20)
    stream = Processing(postgresql, queue, **LIMIT)
    stream.connect = lambda: psycopg.connect(postgresql.url)
    with watched_connections(stream.opened):
        stream.drain()
        move_back(stream, begun, done)
        queue.insert(12, start=20)
        stream.drain()
        stream.stop()
    placed = sorted(UUID(each) for (each,) in postgresql.fetch("SELECT id FROM placed"))
    assert (placed, queue.count()) == (list(row_ids(range(32))), 0)
