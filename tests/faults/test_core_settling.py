"""A batch that Spark has logged is settled, whatever is in the way:
its rows are not given back for a passing reason.
"""

import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError, SqlQueueError
from sqlqueue_spark.options import RECEIVE_ONLY, ConnectionOptions
from tests.support import tampering
from tests.support.clock import impatient_settling
from tests.support.driver import Crash, at_step, crash, streaming
from tests.support.forwarding import NAME, forwarding
from tests.support.messages import message_ids
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
    """Another session changes a table just now."""
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


def test_settling_waits_for_a_locked_destination(postgresql, orders, billing, caplog):
    """No other receiver gets the rows meanwhile."""
    with forwarding(postgresql, orders, **SOON) as stream, ThreadPoolExecutor(1) as pool:
        assert stream.trigger()
        with locked(postgresql.url, "billing"):
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert (free(orders), settled.done()) == (0, False)
        assert settled.result() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


@pytest.mark.parametrize("state", ["P0001", "42501"], ids=["for a reason of its own", "for want of a right"])
def test_a_destination_that_refuses_rows_gets_them_later(postgresql, orders, billing, caplog, state):
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


def test_a_batch_that_cannot_be_settled_ends_the_stream(postgresql, orders, billing):
    """After commandTimeout, with the remedy."""
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        refusing(billing)
        with impatient_settling(), pytest.raises(SqlQueueError) as caught:
            stream.trigger()
        assert str(caught.value).startswith("The last batch of orders@[public]@[")
        assert "is done but could not be settled within commandTimeout (300 s): " in str(caught.value)
        assert "not today" in str(caught.value)
        assert str(caught.value).endswith(
            "Its 10 rows are free again; remove the cause and start the stream, "
            "which settles them first: what another consumer takes before that is processed by both."
        )
        stream.crash()
        billing.execute("DROP TRIGGER refuse ON {table}")
        assert stream.trigger() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_a_recovery_keeps_its_rows_while_it_waits(postgresql, orders, billing, caplog):
    """A destination is locked."""
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


def test_an_atomic_batch_is_settled_by_its_stage_though_its_source_asks_an_outbox_since(
    postgresql, orders, billing
):
    """That outbox knows nothing of what the batch has staged."""
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), NAME)
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        stream.crash()
        stream.options = dataclasses.replace(
            stream.options, transaction_mode=RECEIVE_ONLY, outbox_endpoint=NAME
        )
        stream.drain()
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_settling_does_not_cut_off_a_long_statement(postgresql, orders, billing):
    """No limit is set while it runs."""
    billing.execute(
        "CREATE FUNCTION limited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF current_setting('statement_timeout') <> '0' THEN RAISE 'cut off'; END IF; RETURN NULL; END $$"
    )
    with forwarding(postgresql, orders) as stream, impatient_settling():
        assert stream.trigger()
        billing.execute("CREATE TRIGGER limited AFTER INSERT ON {table} EXECUTE FUNCTION limited()")
        assert stream.trigger() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_an_attempt_has_its_time_again_after_a_hurried_part_that_failed(postgresql):
    with connect(Target(url=postgresql.url)) as connection, connection.transaction(), connection.attempt():
        with pytest.raises(QueueError), connection.hurried(), connection.attempt():
            raise QueueError("It is refused.")
        assert connection.execute("SHOW statement_timeout") == [("0",)]


def test_a_deferred_constraint_leaves_the_rows_locked(postgresql, orders, billing, caplog):
    """It is checked at the commit."""
    billing.execute("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'later'; END $$")
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        billing.execute(
            "CREATE CONSTRAINT TRIGGER no AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            "EXECUTE FUNCTION no()"
        )
        with ThreadPoolExecutor(1) as pool:
            settled = pool.submit(stream.trigger)
            eventually(lambda: waits(caplog))
            assert free(orders) == 0
            billing.execute("DROP TRIGGER no ON {table}")
        assert settled.result() is False
    assert (ids_in(billing), orders.count()) == (message_ids(range(10)), 0)


def test_a_lost_connection_does_not_hide_a_crash(postgresql, orders):
    """Else the batch would be settled again, by a process that has crashed."""
    with streaming(postgresql, orders) as stream:

        def die():
            stream.cut()
            crash()

        assert stream.trigger()
        with at_step(fail_points.DELETED, die), pytest.raises(Crash):
            stream.trigger()


@pytest.mark.parametrize("ahead", ["true", "false"])
def test_a_change_of_a_destination_and_then_of_the_queue_goes_through_in_one_transaction(
    postgresql, orders, billing, ahead
):
    """It waits for the claim, which waits for it when it is settled. Only to give the claim up ends that."""
    ((name,),) = postgresql.fetch("SELECT current_database()")
    postgresql.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '100ms'")
    with (
        psycopg.connect(postgresql.url) as operator,
        ThreadPoolExecutor() as pool,
        forwarding(
            postgresql, orders, claimAhead=ahead, maxMessagesPerTrigger="4", commandTimeout="10s"
        ) as stream,
    ):
        assert stream.trigger()
        operator.execute("SET deadlock_timeout = '1min'")  # the server looks for a deadlock in our name
        operator.execute("ALTER TABLE billing ADD note text")
        altered = pool.submit(operator.execute, "ALTER TABLE orders ADD note text; COMMIT")
        eventually(lambda: tampering.a_session_waits(postgresql))
        stream.drain()
        altered.result()
        assert (stream.crashes, sorted(ids_in(billing))) == (0, message_ids(range(10)))
