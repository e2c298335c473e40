"""A sender stores what goes to another database in a queue of its own one, in its own transaction."""

import json

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.sent import Sent
from tests.support import outcomes
from tests.support.delayed import DelayedRows, move
from tests.support.engines import QueueTable, full_address, with_catalog
from tests.support.messages import message_id, message_ids, row_id
from tests.support.outcomes import frame, outcome, outgoing, settled_all
from tests.support.sending import PLAIN, batch, ids_in, options, send
from tests.support.stages import settled
from tests.support.stored import DESTINATION, create_outbox
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


def test_a_message_with_an_empty_header_of_its_destination_is_stored_for_it_all_the_same(
    engine, stored, given
):
    """As the message names no queue, it would not reach the other database."""
    rows = batch([1], Destination="Billing", Headers=json.dumps({DESTINATION: ""}, separators=(",", ":")))
    assert send(given, rows) == (1, 0)
    assert stored_for(stored) == [named(engine, "Billing")]


def test_messages_are_stored_for_a_database_that_was_never_reached(engine, orders, stored):
    url = "postgresql://127.0.0.1:9/nowhere"
    down = options(engine, storeAndForward="outgoing", errorQueue="error", **{"endpoint.Billing.url": url})
    prepare(Destinations(down), PLAIN, ["Billing"])
    assert send(down, batch(range(2), Destination="Billing")) == (2, 0)
    assert ids_in(stored) == message_ids(range(2))


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


# -- what was stored is passed on -----------------------------------------------------------------


def passed_on(row, number):
    """The row of a queue as a job of that queue passes it on."""
    return outcome(
        number, RowVersion=row.row_version, Id=str(row.id), Headers=row.headers, Body=row.body, Outgoing=None
    )


def test_what_a_handler_stores_in_its_own_queue_is_passed_on(engine, elsewhere, orders):
    """Also where storeAndForward names that queue."""
    create_outbox(elsewhere, "Sales")
    billing = elsewhere.create_queue("Billing")
    given = outcomes.options(engine, storeAndForward="orders", **{"endpoint.Billing.url": elsewhere.url})
    handled = outcome(1001, outgoing("Billing", 7, MessageId=message_id(7)))
    assert settled_all(given, frame([handled])) == Sent(sent=1, handled=1)
    (row,) = orders.rows()
    assert stored_for(orders) == [named(engine, "Billing")]
    for done in (Sent(sent=1), Sent(repeated=1)):
        assert settled_all(given, frame([passed_on(row, 7)])) == done
    assert (outcomes.sent_to(billing), ids_in(billing)) == ([7], message_ids([7]))
    assert (orders.row_versions(), engine.queue("error").count()) == ([row.row_version], 0)


def test_an_atomic_pipeline_stores_nothing_in_the_queue_that_it_receives_from(engine, elsewhere, orders):
    """It reaches no other database: what it stored there would come again as another failed message."""
    elsewhere.create_queue("Billing")
    near, error = engine.create_queue("near"), engine.queue("error")
    atomic = {"transactionMode": ATOMIC, "stream": "Sales"}
    rows = frame([outcome(1, outgoing("Billing", 10)), outcome(2, outgoing("near", 11))])
    with settled(engine, "Sales"):
        given = outcomes.options(engine, **atomic, **{"endpoint.Billing.url": elsewhere.url})
        assert outcomes.stage_all(given, rows) == (2, 1)
        for queue in ("errorQueue", "auditQueue"):
            far = outcomes.options(engine, **atomic, **{queue: "far", "endpoint.far.url": elsewhere.url})
            with pytest.raises(
                ConfigurationError, match=r"^The queue 'far' lies in another database, and nothing"
            ):
                outcomes.stage_all(far, rows)
    (failed,) = outcomes.failed_in(error)
    assert "The destination 'Billing' lies in another database" in failed["NServiceBus.ExceptionInfo.Message"]
    assert (outcomes.sent_to(near), outcomes.sent_to(error), orders.count()) == ([11], [1], 0)


@pytest.mark.parametrize("catalog", [False, True])
def test_an_atomic_pipeline_passes_a_stored_message_on_to_the_queue_that_stores(
    engine, elsewhere, orders, catalog
):
    """No transaction of its own reaches the other database, so the job of that queue sends it there."""
    billing, near = elsewhere.create_queue("Billing"), engine.create_queue("near")
    to = with_catalog(elsewhere, "Billing") if catalog else "Billing"
    headers = json.dumps({"NServiceBus.MessageId": message_id(1), DESTINATION: to})
    given = outcomes.options(
        engine,
        transactionMode=ATOMIC,
        stream="Sales",
        storeAndForward="near",
        **{"endpoint.Billing.url": elsewhere.url},
    )
    with settled(engine, "Sales"):
        assert outcomes.stage_all(given, frame([outcome(1, Headers=headers, Outgoing=None)])) == (1, 0)
    known_as = full_address(elsewhere, "Billing") if catalog else named(engine, "Billing")
    assert (ids_in(near), stored_for(near)) == ([message_id(1)], [known_as])
    assert (billing.count(), orders.count(), engine.queue("error").count()) == (0, 0, 0)


def forged_headers(number: int, to: str, known_as: str) -> str:
    """Headers with which a sender has stored a message. They say by what it is known, in a form of ours."""
    return json.dumps(
        {"NServiceBus.MessageId": message_id(number), DESTINATION: to, "sqlqueue.Stored": known_as}
    )


def result_of(number: int, kind: str) -> str:
    """What tells of the received row of this number is known by this."""
    return f"{row_id(number)}-{number}/{kind}"


@pytest.mark.parametrize("known_as", [result_of(9, "failed"), message_id(1)], ids=["result", "message"])
@pytest.mark.parametrize("catalog", [False, True])
def test_an_error_queue_of_another_database_that_is_missing_ends_the_batch(
    engine, elsewhere, orders, catalog, known_as
):
    """Whatever its address says: what was for it is not stored again as another failed message."""
    create_outbox(elsewhere, "Sales")
    given = outcomes.options(engine, **{"endpoint.error.url": elsewhere.url})
    to = with_catalog(elsewhere, "error") if catalog else "error"
    row = outcome(1, Headers=forged_headers(1, to, known_as), Outgoing=None)
    with pytest.raises(QueueError, match=r"There is no queue table error@.* to send to"):
        settled_all(given, frame([row]))
    assert orders.count() == 0
    error = elsewhere.create_queue("error")
    assert settled_all(given, frame([row])) == Sent(sent=1)
    assert (orders.count(), ids_in(error)) == (0, [message_id(1)])


@pytest.mark.parametrize("to", ["gone", "far"])
@pytest.mark.parametrize("kind", ["failed", "audited"])
def test_a_message_that_poses_as_a_result_of_another_row_fails_alone(engine, elsewhere, orders, to, kind):
    """Only what goes to the error or audit queue is one."""
    create_outbox(elsewhere, "Sales")
    given = outcomes.options(engine, **{"endpoint.far.url": elsewhere.url})
    rows = [
        outcome(1, Headers=forged_headers(1, to, result_of(9, kind)), Outgoing=None),
        outcome(2, outgoing("orders", 2)),
    ]
    assert settled_all(given, frame(rows)) == Sent(sent=1, handled=1, failed=1)
    assert settled_all(given, frame(rows)) == Sent(repeated=2)
    assert outcomes.sent_to(orders) == [2]
    (failed,) = outcomes.failed_in(engine.queue("error"))
    told = ("NServiceBus.MessageId", DESTINATION, "NServiceBus.ExceptionInfo.ExceptionType")
    assert [failed.get(name) for name in told] == [message_id(1), to, "sqlqueue_spark.errors.QueueError"]
    assert "sqlqueue.Stored" not in failed


def test_an_answer_to_a_message_that_poses_as_an_acknowledgement_fails_it_where_it_cannot_go(engine, orders):
    """It names no queue that it was stored for, so it is a message as any other."""
    posing = {"NServiceBus.MessageId": message_id(1), "sqlqueue.Stored": result_of(9, "acknowledged")}
    row = outcome(1, outgoing("gone", 2), Headers=json.dumps(posing))
    assert settled_all(outcomes.options(engine), frame([row])) == Sent(failed=1)
    (failed,) = outcomes.failed_in(engine.queue("error"))
    assert failed["NServiceBus.MessageId"] == message_id(1)
