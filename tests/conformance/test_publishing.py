"""An event goes to each table that has subscribed to its type or to one that it inherits from, once."""

import json
import pickle
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ATOMIC, ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.deliver.subscribed_queues import SubscribedQueues
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import scripts
from sqlqueue_spark.tables.insert import CHUNK
from tests.support.engines import without_place
from tests.support.forwarding import NAME
from tests.support.messages import body, message_id, message_ids
from tests.support.outboxes import OutboxRows
from tests.support.outcomes import failed_in, frame, outcome, outgoing, sent_to, settled_all, stage_all
from tests.support.outcomes import options as outcome_options
from tests.support.sending import batch, columns_of, composed, ids_in, options, send
from tests.support.stages import settled
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

PLACED, EVENT = "Shop.OrderPlaced", "Shop.IOrderEvent"
ENCLOSED = (
    f"{PLACED}, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null;"
    f"{EVENT}, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
)
TYPES = "NServiceBus.EnclosedMessageTypes"
OUTBOXES = ("optimistic", "pessimistic", "none")


@pytest.fixture
def routing(engine, queue):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return SubscriptionRows(engine).create()


@pytest.fixture
def billing(engine, routing):
    return engine.create_queue("billing")


@pytest.fixture
def queue_of_billing(postgresql):
    return postgresql.create_queue("billing")


@pytest.fixture
def shipping(engine, routing):
    return engine.create_queue("Interop.Shipping")


@pytest.fixture
def error(engine, routing):
    return engine.create_queue("error")


def publishing(engine, **more):
    """The options of a sink without a queue of its own."""
    return SinkOptions.parse({"url": engine.url, "endpoint": "Sales", **more})


def sent(given, *batches):
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        return sender.send(composed(given, *batches, destinations=destinations))


def headers_in(queue):
    return [json.loads(row.headers) for row in queue.rows()]


# -- who gets it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_each_table_that_has_subscribed_gets_it_once_under_one_id(
    engine, queue, routing, billing, shipping, outbox
):
    """By its type or by one that it inherits from, however often, and by however many endpoints."""
    routing.add(billing, PLACED, EVENT)
    routing.add(billing, EVENT, endpoint="Billing's other name")
    routing.add(shipping, EVENT)
    routing.add(queue, "Shop.OrderPlaced2")
    given = publishing(engine, outbox=outbox)
    events = batch(range(3), EventType=PLACED, Headers=json.dumps({TYPES: ENCLOSED}))
    assert sent(given, events) == Sent(sent=6)
    assert ids_in(billing) == ids_in(shipping) == message_ids(range(3))
    assert queue.count() == 0
    for each in (billing, shipping):
        assert [(it["NServiceBus.MessageIntent"], it[TYPES]) for it in headers_in(each)] == [
            ("Publish", ENCLOSED)
        ] * 3
        assert [row.body for row in each.rows()] == [body(number) for number in range(3)]
    assert headers_in(billing) == headers_in(shipping)
    assert set(billing.ids()).isdisjoint(shipping.ids())
    again = Sent(sent=6) if outbox == "none" else Sent(repeated=6)
    assert sent(given, events) == again


def test_a_row_without_a_type_of_event_is_sent_as_ever(engine, queue, routing, billing):
    routing.add(billing, PLACED)
    given = options(engine, messageType="Shop.Command")
    rows = batch(range(4), EventType=[PLACED, None, "", PLACED])
    assert sent(given, rows) == Sent(sent=4)
    assert ids_in(billing) == message_ids([0, 3])
    assert ids_in(queue) == message_ids([1, 2])
    told = [
        (each["NServiceBus.MessageIntent"], each[TYPES]) for each in headers_in(billing) + headers_in(queue)
    ]
    assert told == [("Publish", PLACED)] * 2 + [("Send", "Shop.Command")] * 2


@pytest.mark.parametrize(
    "headers, message_type",
    [({TYPES: ENCLOSED}, None), ({}, ENCLOSED), ({TYPES: f"Shop.X,Shop;{EVENT}"}, None)],
)  # fmt: skip
def test_with_the_option_publish_each_row_is_an_event_of_its_message_type(
    engine, routing, billing, headers, message_type
):
    routing.add(billing, EVENT)
    more = {} if message_type is None else {"messageType": message_type}
    given = publishing(engine, publish="true", **more)
    assert sent(given, batch(range(2), Headers=json.dumps(headers))) == Sent(sent=2)
    assert ids_in(billing) == message_ids(range(2))
    assert {each[TYPES] for each in headers_in(billing)} == {headers.get(TYPES, message_type)}


def test_headers_that_are_there_are_never_overwritten(engine, routing, billing):
    routing.add(billing, PLACED)
    own = {TYPES: "Shop.Other, Shop", "NServiceBus.MessageIntent": "Send"}
    assert sent(publishing(engine), batch([1], EventType=f"{PLACED}, Shop", Headers=json.dumps(own))) == Sent(
        sent=1
    )
    (found,) = headers_in(billing)
    assert {name: found[name] for name in own} == own


def test_types_are_found_in_headers_of_any_form(engine, routing, billing):
    """Written by hand, with escapes, as a map's; not in another header's value."""
    routing.add(billing, EVENT, "Shop.Größe")
    texts = [
        f'{{ "{TYPES}" : "Shop.X, Shop;{EVENT}, Shop" }}',
        f'{{"x":"\\"{TYPES}\\":\\"Shop.No\\"","{TYPES}":"Shop.Gr\\u00f6\\u00dfe"}}',
        f'{{"x":"\\"{TYPES}\\":\\"{EVENT}\\""}}',
    ]
    given = publishing(engine, publish="true", messageType="Shop.Nobody")
    assert sent(given, batch(range(3), Headers=texts)) == Sent(sent=2, unsubscribed=1)
    assert ids_in(billing) == message_ids(range(2))


def test_no_subscriber_is_a_count(engine, routing):
    given = publishing(engine)
    assert sent(given, batch(range(3), EventType=PLACED)) == Sent(unsubscribed=3)
    assert Sent(unsubscribed=3).others == " unsubscribed=3"
    assert OutboxRows(engine).rows() == []


def test_an_address_without_quotation_marks_is_read_as_a_net_endpoint_reads_it(postgresql, request):
    routing = SubscriptionRows(postgresql).create()
    there, literal = postgresql.create_queue("orders"), postgresql.create_queue("Interop.X")
    routing.add("public.orders", PLACED)
    routing.add("Interop.X", PLACED)
    assert sent(publishing(postgresql, outbox="none"), batch([1], EventType=PLACED)) == Sent(sent=2)
    assert ids_in(there) == ids_in(literal) == message_ids([1])


def test_a_large_batch_goes_out_in_transactions_as_large_as_any(engine, routing, billing, shipping, queue):
    for each in (billing, shipping, queue):
        routing.add(each, PLACED)
    given = publishing(engine)
    destinations = Destinations(given)
    chunks = composed(given, batch(range(CHUNK + 10), EventType=PLACED), destinations=destinations)
    with Sender(destinations) as sender:
        assert sender.send(chunks) == Sent(sent=3 * (CHUNK + 10))
    for each in (billing, shipping, queue):
        assert ids_in(each) == message_ids(range(CHUNK + 10))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns, said",
    [
        (
            {"Destination": "orders"},
            "a Destination, but an event goes to the queues that have subscribed to it",
        ),
        (
            {"DelayDeliveryFor": timedelta(hours=1)},
            "a time of delivery, but an event goes at once to those who have subscribed to it now",
        ),
    ],
)
def test_an_event_with_a_destination_or_a_time_is_refused(engine, routing, billing, columns, said):
    routing.add(billing, PLACED)
    given = publishing(engine)
    with pytest.raises(ConfigurationError) as caught:
        sent(given, batch([1], EventType=PLACED, **columns))
    assert str(caught.value) == (
        f"A row is an event (its EventType is 'Shop.OrderPlaced') and has {said}; leave one of the two NULL. "
        f"It is the row with MessageId {message_id(1)}."
    )
    assert billing.count() == 0


def test_an_event_without_a_type_is_refused_or_fails_alone(engine, routing, billing, error):
    routing.add(billing, PLACED)
    rows = batch(range(2), Headers=["{}", json.dumps({TYPES: PLACED})])
    with pytest.raises(
        ConfigurationError, match="A row is to be published and has no type that a queue could"
    ):
        sent(publishing(engine, publish="true"), rows)
    received = batch(
        range(2),
        Headers=["{}", json.dumps({TYPES: PLACED})],
        RowVersion=["1", "2"],
        Queue="orders",
        Id=[message_id(0), message_id(1)],
    )
    given = publishing(engine, publish="true", errorQueue="error")
    assert sent(given, received) == Sent(sent=1, failed=1)
    (failed,) = failed_in(error)
    assert failed["NServiceBus.MessageId"] == message_id(0)
    assert ids_in(billing) == message_ids([1])


def test_without_a_table_of_subscriptions_nothing_is_sent(engine, queue):
    given = publishing(engine, outbox="none")
    schema = engine.default_schema
    said = (
        f"There is no table SubscriptionRouting@[{schema}], in which subscriptions stand, in the database of "
        "Home; with that database's url (SQLQUEUE_URL or --url) create it with: sqlqueue subscriptions "
        f"--create --default-schema '{schema}', or set defaultSchema to the schema in which it is."
    )
    with pytest.raises(QueueError) as caught:
        prepare(Destinations(given), columns_of("EventType"), [])
    assert without_place(str(caught.value)) == f"{said} Nothing of this batch was sent."
    with pytest.raises(QueueError) as caught:
        sent(given, batch([1], EventType=PLACED))
    assert without_place(str(caught.value)) == said


def test_a_publisher_needs_what_the_script_gives(postgresql, queue_of_billing, guarded_url):
    """SELECT on the table of subscriptions, beside a sender's rights; without it the error says so."""
    rows = SubscriptionRows(postgresql).create()
    rows.add(queue_of_billing, PLACED)
    given = SinkOptions.parse({"url": guarded_url, "endpoint": "Sales", "outbox": "none"})
    grants = [
        scripts.grants("postgresql", "guarded", "sender", ["billing"], subscriptions=wanted)
        for wanted in (False, True)
    ]
    postgresql.execute(grants[0])
    with pytest.raises(
        ConfigurationError, match=r'a publisher needs SELECT ON "public"\."SubscriptionRouting"$'
    ):
        sent(given, batch([1], EventType=PLACED))
    postgresql.execute(grants[1])
    prepare(Destinations(given), columns_of("EventType"), ())
    assert sent(given, batch([1], EventType=PLACED)) == Sent(sent=1)


# -- a subscriber's queue that is gone ------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("when", ["before", "at the insert"])
def test_a_subscriber_that_is_gone_costs_the_others_nothing(
    engine, routing, billing, shipping, error, outbox, when
):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    given = publishing(engine, errorQueue="error", outbox=outbox)
    events = batch(range(3), EventType=PLACED)
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        if when == "at the insert":
            assert sender.send(composed(given, batch([9], EventType=PLACED))) == Sent(sent=2)
        shipping.execute("DROP TABLE {table}")
        assert sender.send(composed(given, events, destinations=destinations)) == Sent(sent=3, failed=3)
    assert ids_in(billing)[-3:] == message_ids(range(3))
    address = routing.address(shipping)
    told = [
        (each["NServiceBus.FailedQ"], each["NServiceBus.ProcessingEndpoint"]) for each in failed_in(error)
    ]
    assert told == [(address, "Interop.Shipping")] * 3
    assert ids_in(error) == message_ids(range(3))
    if outbox != "none":  # neither when it is there again nor while it is gone
        assert sent(given, events) == Sent(repeated=6)
        engine.create_queue("Interop.Shipping")
        assert sent(given, events) == Sent(repeated=6)


def test_without_an_error_queue_it_ends_the_batch_and_nothing_is_lost(engine, routing, billing, shipping):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    shipping.execute("DROP TABLE {table}")
    given = publishing(engine)
    with pytest.raises(
        QueueError,
        match=r"Interop\.Shipping.* It has subscribed to 'Shop\.OrderPlaced'; "
        r"where it is gone for good, end that",
    ):
        sent(given, batch(range(3), EventType=PLACED))
    assert billing.count() == 0
    routing.remove(shipping)
    assert sent(given, batch(range(3), EventType=PLACED)) == Sent(sent=3)


def test_an_address_that_cannot_be_read_fails_its_copies_alone(engine, routing, billing, error):
    routing.add(billing, PLACED)
    routing.add("orders@[open", PLACED)
    given = publishing(engine, errorQueue="error")
    assert sent(given, batch([1], EventType=PLACED)) == Sent(sent=1, failed=1)
    (failed,) = failed_in(error)
    assert failed["NServiceBus.FailedQ"] == failed["NServiceBus.ProcessingEndpoint"] == "orders@[open"


@pytest.mark.parametrize(
    "address", [None, "", "orders@[open", "x" * 100_000, "x@[\x1b]0;\u202e", "postgresql://me:secret@host/db"]
)
def test_what_is_no_address_ends_no_publisher(engine, routing, billing, caplog, address):
    """Without an error queue its row alone is left out, which the log says once."""
    widened = {
        "postgresql": 'ALTER TABLE "SubscriptionRouting" '
        "ALTER queueaddress DROP NOT NULL, ALTER queueaddress TYPE text",
        "sqlserver": "ALTER TABLE [SubscriptionRouting] ALTER COLUMN QueueAddress nvarchar(max) NULL",
    }
    engine.execute(widened[engine.name])
    routing.add(billing, PLACED)
    routing.add(address, PLACED, endpoint="Odd\x1b")
    given = publishing(engine, outbox="none")
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        for number in range(3):
            events = composed(given, batch([number], EventType=PLACED), destinations=destinations)
            assert sender.send(events) == Sent(sent=1)
    (said,) = [
        each for each in caplog.messages if each.startswith("subscription_left_out topic=Shop.OrderPlaced: ")
    ]
    assert "secret" not in said
    assert said.isprintable()
    assert len(said) < 300
    assert ids_in(billing) == message_ids(range(3))


@pytest.mark.parametrize("address, failed", [(None, 1), ("", 1), ("x" * 100_000, 0)])
def test_with_an_error_queue_the_copies_to_no_address_fail_unless_it_is_endless(
    engine, routing, billing, error, address, failed
):
    if engine.name != "postgresql":
        pytest.skip("its columns are made wider above")
    engine.execute(
        'ALTER TABLE "SubscriptionRouting" ALTER queueaddress DROP NOT NULL, ALTER queueaddress TYPE text'
    )
    routing.add(billing, PLACED)
    routing.add(address, PLACED, endpoint="Odd")
    given = publishing(engine, errorQueue="error")
    assert sent(given, batch([1], EventType=PLACED)) == Sent(sent=1, failed=failed)
    assert (ids_in(billing), ids_in(error)) == (message_ids([1]), message_ids([1] * failed))


# -- subscriptions that change --------------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES[:2])
def test_a_retry_after_subscriptions_changed_sends_what_is_missing_and_doubles_nothing(
    engine, queue, routing, billing, shipping, outbox
):
    routing.add(billing, PLACED)
    given = publishing(engine, outbox=outbox)
    events = batch(range(3), EventType=PLACED)
    assert sent(given, events) == Sent(sent=3)
    routing.add(shipping, PLACED)
    assert sent(given, events) == Sent(sent=3, repeated=3)
    routing.remove(billing)
    routing.add(queue, PLACED)
    assert sent(given, events) == Sent(sent=3, repeated=3)
    routing.add(billing, PLACED)
    assert sent(given, events) == Sent(repeated=9)
    assert [ids_in(each) for each in (billing, shipping, queue)] == [message_ids(range(3))] * 3


def test_a_copy_and_a_send_of_one_id_to_one_table_are_one(engine, queue, routing):
    routing.add(queue, PLACED)
    assert send(options(engine), batch([1])) == (1, 0)
    assert sent(publishing(engine), batch([1], EventType=PLACED)) == Sent(repeated=1)


def test_a_task_looks_again_after_a_few_seconds_and_takes_nothing_from_the_driver(
    engine, routing, billing, shipping
):
    now = [1000.0]
    given = publishing(engine)
    driver = Destinations(given)
    routing.add(billing, PLACED)
    with Sender(driver) as sender:
        assert sender.send(composed(given, batch([0], EventType=PLACED))) == Sent(sent=1)
    routing.add(shipping, PLACED)
    worker = pickle.loads(pickle.dumps(driver))  # noqa: S301 -- as Spark sends it
    with Sender(worker) as sender:
        sender._subscribed = SubscribedQueues(sender._routes, lambda: now[0])

        def publish(number):
            return sender.send(composed(given, batch([number], EventType=PLACED)))

        assert publish(1) == Sent(sent=2)
        routing.remove(shipping)
        now[0] += 4.9
        assert publish(2) == Sent(sent=2)
        now[0] += 0.2
        assert publish(3) == Sent(sent=1)


# -- outcomes -------------------------------------------------------------------------------------


def event(kind, number, **more):
    return outgoing(None, number, EventType=kind, **more)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_what_an_outcome_publishes_goes_out_with_all_that_it_sends(
    engine, queue, routing, billing, shipping, error, outbox
):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    given = outcome_options(engine, outbox=outbox)
    received = [
        outcome(1, event(PLACED, 10), outgoing("billing", 11), event("Shop.Nobody", 12)),
        outcome(2, event("Shop.Nobody", 20)),
        outcome(3, event(PLACED, 30), outgoing("gone", 31)),
    ]
    assert settled_all(given, frame(received)) == Sent(sent=3, handled=2, failed=1, unsubscribed=2)
    assert (sorted(sent_to(billing)), sent_to(shipping), sent_to(error)) == ([10, 11], [10], [3])
    published = [
        each
        for each in headers_in(billing) + headers_in(shipping)
        if each["NServiceBus.MessageIntent"] == "Publish"
    ]
    assert len({each["NServiceBus.MessageId"] for each in published}) == 1
    if outbox != "none":
        assert settled_all(given, frame(received)) == Sent(repeated=3, unsubscribed=2)


@pytest.mark.parametrize("when", ["before", "at the insert"])
def test_a_copy_of_an_outcome_fails_alone(engine, routing, billing, shipping, error, when):
    """The received message was handled, and its other messages go out."""
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    given = outcome_options(engine)
    if when == "before":
        shipping.execute("DROP TABLE {table}")
    else:
        refuse = {
            "postgresql": "ALTER TABLE {table} ADD CONSTRAINT shut CHECK (false) NOT VALID",
            "sqlserver": "ALTER TABLE {table} WITH NOCHECK ADD CONSTRAINT shut CHECK (1 = 0)",
        }
        shipping.execute(refuse[engine.name])
    received = [outcome(1, event(PLACED, 10), outgoing("billing", 11)), outcome(2, event(PLACED, 20))]
    assert settled_all(given, frame(received)) == Sent(sent=3, handled=2, failed=2)
    assert (sorted(sent_to(billing)), sent_to(error)) == ([10, 11, 20], [10, 20])
    address = routing.address(shipping)
    told = {
        (each["NServiceBus.FailedQ"], each["NServiceBus.ProcessingEndpoint"]) for each in failed_in(error)
    }
    assert told == {(address, "Interop.Shipping")}
    assert settled_all(given, frame(received)) == Sent(repeated=2)


def test_outcomes_with_many_copies_are_cut_between_received_messages(
    engine, routing, billing, shipping, error
):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    count = CHUNK // 2
    received = [outcome(number, event(PLACED, number), event(PLACED, number)) for number in range(count)]
    assert settled_all(outcome_options(engine), frame(received)) == Sent(sent=4 * count, handled=count)
    assert sent_to(billing) == sent_to(shipping) == [number for number in range(count) for _ in range(2)]


# -- atomically -----------------------------------------------------------------------------------


def atomic(engine, **more):
    return publishing(engine, transactionMode=ATOMIC, stream=NAME, **more)


def staged(given, *batches):
    """Stage and seal; returns what was counted, and the tables that the seal names."""
    destinations = Destinations(given)
    run = prepare(destinations, columns_of("EventType"), ())
    done = stage(destinations, composed(given, *batches, destinations=destinations))
    seal(given, [done], run)
    return done


def test_copies_are_staged_and_go_out_with_the_claim(engine, routing, billing, shipping, error):
    routing.add(billing, PLACED, EVENT)
    routing.add(shipping, EVENT)
    given = atomic(engine)
    with settled(engine):
        done = staged(given, batch(range(3), EventType=PLACED, Headers=json.dumps({TYPES: ENCLOSED})))
        assert (done.sent, done.rows, len(done.destinations)) == (Sent(sent=6), 6, 2)
        assert billing.count() == 0
    assert ids_in(billing) == ids_in(shipping) == message_ids(range(3))


def test_a_subscriber_that_is_gone_fails_its_staged_copies_alone(engine, routing, billing, shipping, error):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    shipping.execute("DROP TABLE {table}")
    with settled(engine):
        done = staged(atomic(engine, errorQueue="error"), batch(range(3), EventType=PLACED))
        assert (done.sent, done.rows) == (Sent(sent=3, failed=3), 6)
    assert (ids_in(billing), ids_in(error)) == (message_ids(range(3)), message_ids(range(3)))


def test_outcomes_publish_from_the_stage(engine, routing, billing, shipping, error):
    routing.add(billing, PLACED)
    routing.add(shipping, PLACED)
    given = outcome_options(engine, transactionMode=ATOMIC, stream=NAME)
    with settled(engine):
        assert stage_all(given, frame([outcome(1, event(PLACED, 10), outgoing("billing", 11))])) == (3, 0)
    assert (sorted(sent_to(billing)), sent_to(shipping)) == ([10, 11], [10])
    eventually(lambda: error.count() == 0)


def test_what_the_outbox_knows_is_not_staged_again(engine, routing, billing, shipping):
    routing.add(billing, PLACED)
    events = batch(range(3), EventType=PLACED)
    assert sent(publishing(engine), events) == Sent(sent=3)
    routing.add(shipping, PLACED)
    with settled(engine):
        done = staged(atomic(engine, endpoint="Sales"), events)
        assert done.sent == Sent(sent=3, repeated=3)
    assert ids_in(billing) == ids_in(shipping) == message_ids(range(3))


def test_the_option_names_no_queue_beside_it(engine):
    with pytest.raises(ConfigurationError, match="Both publish and queue"):
        options(engine, publish="true")
