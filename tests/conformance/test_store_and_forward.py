"""What senders have stored for another database goes there once; while that is down it waits, and holds nobody up."""

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send import Sent
from tests.support import messages
from tests.support.delayed import DelayedRows
from tests.support.driver import watched_connections
from tests.support.gate import gated
from tests.support.messages import body
from tests.support.stored import (
    WAITS_FOR,
    StoreAndForward,
    store,
)


@pytest.fixture
def outgoing(engine):
    """The queue in which senders store what goes elsewhere."""
    for name in ("error", "orders.local"):
        engine.create_queue(name)
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Forward")
    DelayedRows(engine, "outgoing").create()
    return engine.create_queue("outgoing")


@pytest.fixture
def other(elsewhere):
    """The other database, with the queues billing and shipping."""
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url}), "Forward")
    elsewhere.create_queue("shipping")
    return elsewhere


@pytest.fixture
def billing(other):
    return other.create_queue("billing")


@pytest.fixture
def gate(other):
    with gated(other.url) as gate:
        yield gate


@pytest.fixture
def job(engine, outgoing, billing, gate):
    job = StoreAndForward(engine, outgoing, gate.url)
    with watched_connections(job.opened):
        yield job
        job.stop()


def drained(job):
    """Run batches until there is nothing new; returns what became of all messages."""
    total = Sent()
    while job.trigger():
        total += job.sent
    return total


def test_a_message_goes_to_the_queue_that_it_names_and_loses_the_header_alone(job, outgoing, billing):
    store(outgoing, range(3))
    assert drained(job) == Sent(sent=3)
    assert [(row.headers, row.body) for row in billing.rows()] == [
        (messages.headers(n), body(n)) for n in range(3)
    ]
    assert outgoing.count() == 0


def test_while_the_database_is_down_messages_wait_and_go_when_it_is_back(
    job, engine, outgoing, billing, gate
):
    gate.shut()
    store(outgoing, range(3))
    job.databases.look()
    assert drained(job) == Sent(parked=3)
    assert (outgoing.count(), gate.entered) == (0, 0)
    waiting = DelayedRows(engine, "outgoing").rows()
    assert [each.body for each in waiting] == [body(n) for n in range(3)]
    assert {each.headers[WAITS_FOR] for each in waiting} == {"sink.url"}
    gate.open()
    assert job.databases.look() == 3
    assert job.databases.down() == {}
    assert drained(job) == Sent(sent=3)
    assert [row.headers for row in billing.rows()] == [messages.headers(n) for n in range(3)]
    assert DelayedRows(engine, "outgoing").count() == 0
