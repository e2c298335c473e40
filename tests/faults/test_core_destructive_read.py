"""Mode ``none`` when things break: a message may be lost,
and the log says what could be; none comes twice.
"""

import dataclasses
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.receive import SliceReader
from tests.support import death_steps
from tests.support.driver import at_step, streaming
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine, restart
from tests.support.proxy import proxied

pytestmark = pytest.mark.tier("all", variants="nightly")


def one_slice(stream, *counts):
    """The next batch as one slice, taken in statements of these numbers of rows."""
    assert stream.construct()
    (part,) = stream.plan()
    return dataclasses.replace(part, counts=counts)


def test_a_worker_that_dies_loses_only_what_it_took(engine, queue):
    queue.insert(100)
    with streaming(engine, queue, transactionMode="none", maxConcurrency="1") as stream:
        part = one_slice(stream, 30, 30, 40)

        class Died(Exception):
            """The worker, not the driver."""

        def die():
            raise Died

        with at_step(fail_points.ROWS_TAKEN, die, on={2}), pytest.raises(Died):
            stream.read([part])
        assert queue.row_versions() == list(range(61, 101))
        stream.write(stream.read([part]))
        stream.done += 1
        stream.drain()
        assert (stream.batches(), queue.count()) == ([list(range(61, 101))], 0)


def test_rows_whose_commit_fails_are_not_yielded(postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue, transactionMode="none") as stream:
        part = one_slice(stream, 5, 5)
        queue.execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not at commit''; END'"
        )
        queue.execute(
            "CREATE CONSTRAINT TRIGGER no AFTER DELETE ON {table} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW WHEN (old.seq = 7) EXECUTE FUNCTION no()"
        )
        batches = SliceReader(Target.of(stream.options)).take(part)
        assert next(batches)["RowVersion"].to_pylist() == [1, 2, 3, 4, 5]
        with pytest.raises(SqlQueueError, match=r"not at commit"):
            next(batches)
        assert queue.row_versions() == [6, 7, 8, 9, 10]


def test_rows_whose_commit_gives_way_are_taken_again(postgresql):
    """Whatever language the server speaks."""
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue, transactionMode="none") as stream:
        part = one_slice(stream, 10)
        postgresql.execute("CREATE SEQUENCE tries")
        queue.execute(
            "CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "
            "IF nextval(''public.tries'') = 1 THEN RAISE ''Verklemmung entdeckt'' USING ERRCODE = ''40P01''; "
            "END IF; RETURN NULL; END'"
        )
        queue.execute(
            "CREATE CONSTRAINT TRIGGER once AFTER DELETE ON {table} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW WHEN (old.seq = 7) EXECUTE FUNCTION once()"
        )
        (batch,) = SliceReader(Target.of(stream.options)).take(part)
        assert (batch["RowVersion"].to_pylist(), queue.count()) == ([*range(1, 11)], 0)


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_connection_cut_at_commit_doubles_nothing(postgresql, deliver):
    queue = postgresql.create_queue()
    queue.insert(100)
    with (
        proxied(postgresql.url) as proxy,
        streaming(PostgresEngine(proxy.url), queue, transactionMode="none") as stream,
    ):
        part = one_slice(stream, 60, 40)
        proxy.cut_at(b"COMMIT", deliver=deliver)
        stream.write(stream.read([part]))
        stream.done += 1
        stream.drain()
        assert proxy.cuts == 1
        assert (stream.ids(), queue.count()) == (row_ids(range(60 if deliver else 0, 100)), 0)


@pytest.mark.parametrize("step", death_steps.TAKING_STEPS)
def test_connections_cut_at_any_step_cost_no_message(engine, queue, step):
    """And no restart."""
    queue.insert(100)
    options: dict[str, Any] = {"maxMessagesPerTrigger": "30", "minMessagesPerPartition": "10"}
    with streaming(engine, queue, transactionMode="none", **options) as stream:
        with at_step(step, engine.cut_connections, on={1, 3}) as cuts:
            stream.drain()
        assert cuts == [1, 3]
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


def test_a_restarted_server_costs_no_message(server, postgresql):
    """It is restarted between two batches."""
    queue = postgresql.create_queue()
    queue.insert(100)
    with streaming(postgresql, queue, transactionMode="none", maxMessagesPerTrigger="40") as stream:
        assert stream.trigger()
        restart(server)
        stream.drain()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


def test_a_row_committed_late_comes_in_a_later_batch(engine, queue):
    """Its number is lower than those of the batch before."""
    with queue.session() as late, streaming(engine, queue, transactionMode="none") as stream:
        late.insert(1, start=100)
        queue.insert(5)
        assert stream.trigger()
        late.commit()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[2, 3, 4, 5, 6], [1]], 0)


def test_new_messages_under_old_numbers_are_taken(engine, queue):
    """A table that was truncated, or created again: nothing goes by the numbers of a batch that is done."""
    queue.insert(10)
    with streaming(engine, queue, transactionMode="none", maxMessagesPerTrigger="8") as stream:
        assert stream.trigger()
        stream.crash()
        queue.execute("DROP TABLE {table}")
        engine.create_queue()
        queue.insert(10, start=1000)
        stream.drain()
        assert stream.ids() == [*row_ids(range(8)), *row_ids(range(1000, 1010))]
