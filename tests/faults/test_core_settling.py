"""A batch that Spark has logged is settled, whatever is in the way: its rows are not given back for a passing reason."""

import contextlib
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import psycopg
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.receive import Receiver, claim_ahead
from sqlqueue_spark.receive.done_file import DoneFile
from tests.support.driver import Crash, at_step, crash, streaming
from tests.support.forwarding import forwarding
from tests.support.messages import message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.streams import free
from tests.support.waiting import eventually

SOON = {"lockTimeout": "100ms"}


@pytest.fixture
def billing(postgresql):
    """An empty queue called billing, where what is received goes."""
    return postgresql.create_queue("billing")


@pytest.fixture
def orders(postgresql):
    """A queue with ten messages."""
    queue = postgresql.create_queue()
    queue.insert(10)
    return queue


@contextlib.contextmanager
def locked(url, table):
    """Somebody else changes a table just now."""
    with psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


def refusing(billing, state="P0001"):
    """The destination refuses every row."""
    billing.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '{state}'; END $$"
    )
    billing.execute("CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()")


def waits(caplog):
    return "settling_waits queue=orders@" in caplog.text


def test_a_destination_that_is_locked_is_waited_for_while_nobody_gets_the_rows(
    postgresql, orders, billing, caplog
):
    with forwarding(postgresql, orders, **SOON) as stream, ThreadPoolExecutor(1) as pool:
        assert stream.trigger()
        with locked(postgresql.url, "billing"):
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert (free(orders), settled.done()) == (0, False)
        assert settled.result() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


@pytest.mark.parametrize("state", ["P0001", "42501"], ids=["for a reason of its own", "for want of a right"])
def test_a_destination_that_refuses_rows_for_a_while_gets_them_later(
    postgresql, orders, billing, caplog, state
):
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        refusing(billing, state)
        with ThreadPoolExecutor(1) as pool:
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert free(orders) == 0
            billing.execute("DROP TRIGGER refuse ON {table}")
        assert settled.result() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_what_cannot_be_settled_within_the_command_timeout_ends_the_stream_with_the_remedy(
    postgresql, orders, billing
):
    with forwarding(postgresql, orders, commandTimeout="300ms") as stream:
        assert stream.trigger()
        refusing(billing)
        with pytest.raises(SqlQueueError) as caught:
            stream.trigger()
        assert str(caught.value).startswith("The last batch of orders@[public]@[")
        assert "is done but could not be settled within commandTimeout (0 s): " in str(caught.value)
        assert "not today" in str(caught.value)
        assert str(caught.value).endswith(
            "Its 10 rows are free again; remove the cause and start the stream, which settles them first: what another "
            "consumer takes before that is processed by both."
        )
        stream.crash()
        billing.execute("DROP TRIGGER refuse ON {table}")
        assert stream.trigger() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_a_recovery_keeps_its_rows_while_something_is_in_the_way(postgresql, orders, billing, caplog):
    with forwarding(postgresql, orders, **SOON) as stream, ThreadPoolExecutor(1) as pool:
        assert stream.trigger()
        stream.crash()
        with locked(postgresql.url, "billing"):
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert (free(orders), "recovered" in caplog.text) == (0, False)
        assert settled.result() is False
    assert caplog.text.count("recovered queue=orders@[public]@[") == 1
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_a_statement_that_only_takes_long_is_not_cut_off_while_settling(postgresql, orders, billing):
    billing.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN NULL; END $$"
    )
    with forwarding(postgresql, orders, commandTimeout="300ms") as stream:
        assert stream.trigger()
        billing.execute("CREATE TRIGGER slow AFTER INSERT ON {table} EXECUTE FUNCTION slow()")
        assert stream.trigger() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_a_constraint_that_is_checked_at_the_commit_leaves_the_rows_locked(
    postgresql, orders, billing, caplog
):
    billing.execute("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'later'; END $$")
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        billing.execute(
            "CREATE CONSTRAINT TRIGGER no AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()"
        )
        with ThreadPoolExecutor(1) as pool:
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert free(orders) == 0
            billing.execute("DROP TRIGGER no ON {table}")
        assert settled.result() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


@pytest.mark.parametrize("after", ["crash", "cut"])
@pytest.mark.parametrize("step", fail_points.LEFT_STEPS)
def test_a_process_that_dies_while_it_settles_what_was_left_loses_and_doubles_nothing(
    postgresql, orders, billing, step, after
):
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        stream.crash() if after == "crash" else stream.cut()
        with at_step(step, crash, on={1, 2}) as deaths:
            stream.drain()
        assert len(deaths) >= 1
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


# -- as soon as the batch is done -----------------------------------------------------------------


def told(path, end):
    """The program says that Spark has logged a batch."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps([{"of": "another source"}, end]))
    new.replace(path)


def test_a_batch_is_settled_when_the_program_says_that_it_is_done(engine, queue, tmp_path):
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, {**stream.end(1), "serial": 17})  # another batch's
        assert free(queue) == 0
        told(done, stream.end(1))
        eventually(lambda: queue.count() == 0)
        queue.insert(5, start=10)
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(15)), 0)


def test_a_stream_that_stops_settles_what_is_known_to_be_done(engine, queue, tmp_path, monkeypatch):
    monkeypatch.setattr("sqlqueue_spark.receive.done_file._LOOK_SECONDS", 3600)
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.stop()
        assert queue.count() == 0


def test_what_a_done_file_said_before_the_batch_was_planned_settles_nothing(engine, queue, tmp_path):
    """A batch that was logged may have been taken back since, and run again: the sink does not have it yet."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.crash()
        stream.options = dataclasses.replace(stream.options, done_file=str(done))
        stream.done -= 1
        stream.plan()
        stream.stop()
        assert free(queue) == 10


def test_a_stream_that_stops_gives_back_what_nobody_has_logged(engine, queue, tmp_path):
    queue.insert(10)
    with streaming(engine, queue, doneFile=str(tmp_path / "done")) as stream:
        assert stream.construct()
        stream.plan()
        stream.stop()
        eventually(lambda: free(queue) == 10)


def test_what_an_earlier_run_has_left_in_a_done_file_settles_nothing(engine, queue, tmp_path):
    """A new checkpoint gives the same rows the same offset."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.crash()
    with streaming(engine, queue, doneFile=str(done)) as anew:
        anew.drain()
        assert (anew.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_what_is_just_being_settled_is_not_given_back_by_a_stop(engine, queue, tmp_path):
    """The done file was read, but its batch not settled yet."""
    read, stops = Event(), Event()

    def settle(end):
        read.set()
        assert stops.wait(10)
        stream.receiver.settle(end)

    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert isinstance(stream.receiver, Receiver)
        stream.receiver._done_file = DoneFile(done, settle)
        assert stream.trigger()
        told(done, stream.end(1))
        assert read.wait(10)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stream.receiver.close)
            assert not stopped.done()
            stops.set()
            stopped.result()
        assert queue.count() == 0


@pytest.mark.parametrize("said", ["", "{", "7", "[7]", '[{"version": 1}]'])
def test_what_nobody_can_read_of_a_done_file_settles_and_stops_nothing(engine, queue, tmp_path, said):
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        done.write_text(said)
        assert free(queue) == 0
        told(done, stream.end(1))
        eventually(lambda: queue.count() == 0)


@pytest.mark.parametrize("known", [True, False], ids=["batch known to be done", "no trigger for long"])
def test_a_claim_ahead_that_nobody_asks_for_is_given_back(engine, queue, tmp_path, monkeypatch, known):
    monkeypatch.setattr(
        "sqlqueue_spark.receive.scanner.IDLE_SECONDS" if known else claim_ahead.__name__ + ".UNASKED_SECONDS",
        0.1,
    )
    queue.insert(30)
    done = tmp_path / "done"
    given: dict[str, Any] = {"doneFile": str(done)} if known else {}
    with streaming(engine, queue, maxMessagesPerTrigger="10", **given) as stream:
        assert stream.trigger()
        if known:
            told(done, stream.end(1))
        eventually(lambda: free(queue) == 20)
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(30)), 0)


# -- standing still -------------------------------------------------------------------------------


def test_a_settled_batch_that_comes_back_is_delivered_again(postgresql, orders):
    """A fail-over that lost the commit, or a restore, while the stream lives."""
    orders.execute("CREATE TABLE copy AS SELECT * FROM {table}")
    with streaming(postgresql, orders) as stream:
        assert stream.trigger()
        assert not stream.trigger()
        orders.execute("INSERT INTO {table} SELECT * FROM copy")
        eventually(stream.trigger)
        stream.drain()
        assert (stream.batches(), orders.count()) == ([list(range(1, 11))] * 2, 0)


def test_who_is_to_end_in_the_middle_is_not_told_of_a_lost_connection_instead(postgresql, orders):
    """Else the batch would be settled again, by a process that nobody wants any more."""
    with streaming(postgresql, orders) as stream:

        def die():
            stream.cut()
            crash()

        assert stream.trigger()
        with at_step(fail_points.DELETED, die), pytest.raises(Crash):
            stream.trigger()


def test_late_rows_let_a_claim_ahead_wait_for_one_batch_at_most(postgresql, monkeypatch):
    """There may be a late row for every batch, and what is claimed ahead is locked meanwhile."""
    monkeypatch.setattr("sqlqueue_spark.receive.claim.Head._SHARE", 0)  # look for late rows each time
    queue = postgresql.create_queue()
    with contextlib.ExitStack() as sessions:
        late = [sessions.enter_context(queue.session()) for _ in range(6)]
        for number, session in enumerate(late):
            session.insert(1, start=number)
        queue.insert(30, start=6)
        with streaming(postgresql, queue, maxMessagesPerTrigger="10") as stream:
            for session in late:
                assert stream.trigger()
                session.commit()
            stream.drain()
            assert [len(batch) for batch in stream.batches()][:4] == [10, 1, 10, 2]
            assert (sorted(stream.ids()), queue.count()) == (row_ids(range(36)), 0)
