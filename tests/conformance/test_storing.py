"""A sender stores what goes to another database in a queue of its own one, in its own transaction."""

import json

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send import Sent
from tests.support import outcomes
from tests.support.delayed import DelayedRows, move
from tests.support.engines import QueueTable
from tests.support.messages import message_id
from tests.support.outcomes import frame, outcome, outgoing, settled_all
from tests.support.sending import batch, ids_in, options, send
from tests.support.stored import DESTINATION
from tests.support.subscriptions import SubscriptionRows


@pytest.fixture
def orders(engine):
    """A queue of the sender's database; and the queues error and outgoing, and the sender's outbox."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    for name in ("error",):
        engine.create_queue(name)
    return engine.create_queue("orders")


@pytest.fixture
def stored(engine):
    """Where messages for the other database are stored."""
    return engine.create_queue("outgoing")


@pytest.fixture(params=["optimistic", "pessimistic"])
def given(request, engine, elsewhere, orders, stored):
    """Billing lies in the other database."""
    more = {"outbox": request.param, "storeAndForward": "outgoing", "endpoint.Billing.url": elsewhere.url}
    return options(engine, **more)


def named(engine, name):
    return f'"public"."{name}"' if engine.name == "postgresql" else f"{name}@[dbo]"


def stored_for(queue: QueueTable) -> list[str | None]:
    return [json.loads(row.headers).get(DESTINATION) for row in queue.rows()]


def test_what_goes_to_another_database_is_stored_and_the_rest_is_sent(engine, orders, stored, given):
    assert send(given, batch(range(4), Destination=["orders", "Billing", "orders", "Billing"])) == (4, 0)
    assert (ids_in(orders), stored_for(orders)) == ([message_id(0), message_id(2)], [None, None])
    assert (ids_in(stored), stored_for(stored)) == (
        [message_id(1), message_id(3)],
        [named(engine, "Billing")] * 2,
    )


def test_what_was_stored_is_not_stored_again_and_one_id_goes_to_both(stored, orders, given):
    rows = batch(range(2), Destination="Billing")
    assert send(given, rows) == (2, 0)
    assert send(given, rows) == (0, 2)
    # The same ids to the queue of storing itself are other sends.
    assert send(given, batch(range(2), Destination="outgoing")) == (2, 0)
    assert send(given, batch(range(2), Destination="orders")) == (2, 0)
    assert (stored.count(), orders.count()) == (4, 2)


def test_a_delayed_message_waits_in_the_senders_database_and_is_stored_when_it_is_due(
    engine, orders, stored, given
):
    waiting = DelayedRows(engine, "Sales").create()
    from datetime import timedelta

    rows = batch(range(2), Destination="Billing", DelayDeliveryFor=timedelta(minutes=30))
    assert send(given, rows) == (2, 0)
    assert (stored.count(), waiting.count()) == (0, 2)
    waiting.make_due()
    move(engine, "Sales")
    assert (ids_in(stored), stored_for(stored)) == (
        [message_id(0), message_id(1)],
        [named(engine, "Billing")] * 2,
    )
    assert waiting.count() == 0


def test_what_a_handler_sends_to_another_database_is_stored_with_its_outcome(
    engine, elsewhere, orders, stored
):
    given = outcomes.options(engine, storeAndForward="outgoing", **{"endpoint.Billing.url": elsewhere.url})
    done = settled_all(given, frame([outcome(1, outgoing("Billing", 7), outgoing("orders", 8))]))
    assert done == Sent(sent=2, handled=1)
    assert (outcomes.sent_to(stored), stored_for(stored)) == ([7], [named(engine, "Billing")])
    assert outcomes.sent_to(orders) == [8]


def test_a_copy_of_an_event_for_another_database_is_stored_for_its_own_subscriber(
    engine, elsewhere, orders, stored, given
):
    routing = SubscriptionRows(engine).create()
    for name in ("orders", "Billing"):
        routing.add(named(engine, name), "Shop.OrderPlaced", endpoint=name)
    events = batch(range(2), EventType="Shop.OrderPlaced")
    assert send(given, events) == (4, 0)
    assert send(given, events) == (0, 4)
    assert (ids_in(orders), stored_for(orders)) == ([message_id(0), message_id(1)], [None, None])
    assert (ids_in(stored), stored_for(stored)) == (
        [message_id(0), message_id(1)],
        [named(engine, "Billing")] * 2,
    )
