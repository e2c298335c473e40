"""A store-and-forward job dies at every step, while the other database goes down or comes back:
each message arrives there once.
"""

import contextlib
import itertools

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.waiting import databases_down, waiting_rows
from sqlqueue_spark.send.waiting.waiting_rows import put_back
from sqlqueue_spark.tables import delayed
from sqlqueue_spark.tables.delayed import DelayedTable
from tests.support import death_steps
from tests.support.delayed import DelayedRows
from tests.support.driver import STEPS, Crash, at_step, crash
from tests.support.gate import gated
from tests.support.messages import body, row_id
from tests.support.proxy import proxied
from tests.support.sending import steps
from tests.support.stored import create_home, create_outbox, numbers_in, running, store, stored_headers
from tests.support.waiting import eventually

MANY = 12
FEW = {"maxMessagesPerTrigger": "5"}
SENDING = (
    fail_points.IDS_CHECKED,
    fail_points.ROWS_INSERTED,
    fail_points.IDS_INSERTED,
    fail_points.CHUNK_SENT,
)


pytestmark = [pytest.mark.tier("all", variants="nightly"), pytest.mark.usefixtures("told_of_steps")]


@pytest.fixture
def told_of_steps():
    with steps():
        yield


@pytest.fixture
def outgoing(engine):
    return create_home(engine, "Forward", "outgoing")


@pytest.fixture
def billing(elsewhere):
    create_outbox(elsewhere, "Forward")
    return elsewhere.create_queue("billing")


@pytest.fixture
def gate(elsewhere):
    with gated(elsewhere.url) as gate:
        yield gate


def finish(job, gate):
    """Let the other database be there, and the job run until nothing is left."""
    with contextlib.suppress(OSError):
        gate.open()
    job.databases.look()
    job.drain()
    job.note_down()
    job.drain()


def places(engine, outgoing, billing):
    """Where the messages are: those that arrived, and how many stand in the queue, wait and have failed."""
    waiting = DelayedRows(engine, "outgoing").count()
    return numbers_in(billing), outgoing.count(), waiting, engine.queue("error").count()


ARRIVED = ([*range(MANY)], 0, 0, 0)


def in_order(found):
    numbers, *others = found
    return (sorted(numbers), *others)


@pytest.mark.parametrize("first, step", [*itertools.product(("up", "down"), (*STEPS, *SENDING))])
def test_each_message_arrives_once_if_the_job_dies_and_the_database_goes_down_or_comes_back(
    engine, outgoing, billing, gate, first, step
):
    store(outgoing, range(MANY))
    with running(engine, outgoing, gate.url, **FEW) as job:
        if first == "down":
            gate.shut()
            job.databases.look()
        with at_step(step, crash, on={2}) as crashes, contextlib.suppress(Crash):
            while job.trigger():
                pass
        if crashes:
            job.crash()
        if first == "up":
            gate.shut()
            job.databases.look()
            job.drain()
        finish(job, gate)
    assert in_order(places(engine, outgoing, billing)) == ARRIVED


@pytest.mark.parametrize("step", death_steps.PUT_BACK_STEPS)
def test_messages_go_back_once_if_the_job_dies_meanwhile(engine, outgoing, billing, gate, step, monkeypatch):
    monkeypatch.setattr(waiting_rows, "_PORTION", 5)
    store(outgoing, range(MANY))
    gate.shut()
    with running(engine, outgoing, gate.url, **FEW) as job:
        job.databases.look()
        job.drain()
        gate.open()
        with at_step(step, crash, on={2}) as crashes, pytest.raises(Crash):
            job.databases.look()
        assert crashes == [2]
        job.crash()
        finish(job, gate)
    assert in_order(places(engine, outgoing, billing)) == ARRIVED


@pytest.mark.parametrize("word", [b"COMMIT", b"INSERT", b"COPY"])
@pytest.mark.parametrize("deliver", [True, False])
def test_each_message_arrives_once_if_a_connection_to_the_other_database_breaks(
    engine, outgoing, billing, elsewhere, gate, word, deliver
):
    store(outgoing, range(MANY))
    with proxied(elsewhere.url) as proxy, running(engine, outgoing, proxy.url, **FEW) as job:
        job.databases.look()
        proxy.cut_at(word, deliver=deliver)
        job.drain()
        job.note_down()
        job.drain()
        assert proxy.cuts == 1
    assert in_order(places(engine, outgoing, billing)) == ARRIVED


@pytest.mark.parametrize("step", [fail_points.ROWS_INSERTED, fail_points.DELETED])
def test_each_message_arrives_once_though_the_servers_of_both_databases_are_killed(
    engine, outgoing, billing, elsewhere, server, step
):
    if engine.name != "postgresql":
        pytest.skip("the server is not ours to kill")
    store(outgoing, range(MANY))

    def kill():
        server.stop(immediate=True)
        server.start()

    with running(engine, outgoing, elsewhere.url, **FEW) as job:
        job.databases.look()
        with at_step(step, kill) as killed:
            job.drain()
        job.note_down()
        job.drain()
    assert killed == [1]
    assert in_order(places(engine, outgoing, billing)) == ARRIVED


def test_two_jobs_on_one_queue_send_each_message_once_though_the_database_comes_and_goes(
    engine, outgoing, billing, gate
):
    store(outgoing, range(MANY))
    with (
        running(engine, outgoing, gate.url, **FEW) as one,
        running(engine, outgoing, gate.url, **FEW) as other,
    ):
        for turn in range(4):
            for job in (one, other):
                job.databases.look()
                job.trigger()
            gate.shut() if turn % 2 == 0 else gate.open()
        finish(one, gate)
        finish(other, gate)
        finish(one, gate)
    assert in_order(places(engine, outgoing, billing)) == ARRIVED


def test_a_queue_of_the_other_database_that_is_dropped_meanwhile_fails_its_messages_alone(
    engine, outgoing, billing, gate, elsewhere
):
    store(outgoing, range(MANY // 2))
    with running(engine, outgoing, gate.url, **FEW) as job:
        job.databases.look()
        assert job.trigger()
        billing.execute("DROP TABLE {table}")
        job.drain()
        assert engine.queue("error").count() == 1
        again = elsewhere.create_queue("billing")
        store(outgoing, range(MANY // 2, MANY))
        finish(job, gate)
    assert numbers_in(again) == [*range(MANY // 2, MANY)]
    assert (numbers_in(engine.queue("error")), outgoing.count()) == ([5], 0)


def test_a_failed_row_that_comes_back_in_a_later_batch_is_not_sent(engine, outgoing, billing, elsewhere):
    """A server that fails over gives back a row that was settled, and its failure is at home."""
    row = dict.fromkeys(("CorrelationId", "ReplyToAddress", "Expires"))
    row |= {"Id": str(row_id(0)), "RowVersion": 1, "Headers": stored_headers(0), "Body": body(0)}
    billing.execute("DROP TABLE {table}")
    with running(engine, outgoing, elsewhere.url) as job:
        job.task(Destinations(job.home, job.other), "outgoing", [row])
        again = elsewhere.create_queue("billing")
        job.task(Destinations(job.home, job.other), "outgoing", [row])
    assert (numbers_in(again), numbers_in(engine.queue("error"))) == ([], [0])


def test_messages_that_begin_to_wait_while_the_driver_looks_are_put_back_at_its_next_look(
    engine, outgoing, billing, gate, monkeypatch
):
    def put_back_and_wait(*given):
        back = put_back(*given)
        if arriving:
            store(outgoing, [arriving.pop()])
            gate.shut()
            assert job.trigger()
        return back

    monkeypatch.setattr(databases_down, "put_back", put_back_and_wait)
    with running(engine, outgoing, gate.url) as job:
        arriving = [0]
        job.databases.look()
        assert (numbers_in(billing), DelayedRows(engine, "outgoing").count()) == ([], 1)
        gate.open()
        assert job.databases.look() == 1
        job.drain()
    assert places(engine, outgoing, billing) == ([0], 0, 0, 0)


def test_messages_that_were_held_when_the_driver_looked_are_put_back_at_a_later_look(
    engine, outgoing, billing, gate
):
    store(outgoing, [0])
    gate.shut()
    with running(engine, outgoing, gate.url) as job:
        job.databases.look()
        job.drain()
        gate.open()
        with connect(Target.of(job.home)) as other:
            table = delayed.table_of(Table(table="outgoing", schema=engine.default_schema))
            assert len(DelayedTable(other, table).lock_waiting(None, None, 10)) == 1
            assert job.databases.look() == 0
            other.rollback()
        assert sum(job.databases.look() for _ in range(30)) == 1
        job.drain()
    assert places(engine, outgoing, billing) == ([0], 0, 0, 0)


def test_an_error_of_any_kind_ends_no_look_for_good(engine, outgoing, billing, gate, monkeypatch, caplog):
    """The thread would end, and what waits would wait until it is given up."""
    errors = [ValueError("no time")]

    def put_back_or_fail(*given):
        if errors:
            raise errors.pop()
        return put_back(*given)

    store(outgoing, range(3))
    gate.shut()
    with running(engine, outgoing, gate.url, sink={"retryInterval": "50ms"}) as job:
        job.note_down()
        job.drain()
        gate.open()
        monkeypatch.setattr(databases_down, "put_back", put_back_or_fail)
        with job.watching():
            eventually(lambda: outgoing.count() == 3)
        job.drain()
    assert places(engine, outgoing, billing) == ([0, 1, 2], 0, 0, 0)
    said = [each.getMessage() for each in caplog.records if "not_put_back" in each.getMessage()]
    assert said == [f"not_put_back queue={job.table.address}: no time"]
