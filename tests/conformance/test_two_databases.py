"""A job that reaches several databases sends each message once, and what belongs to a row stays at home."""

import json
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver import tables_of_chunk
from sqlqueue_spark.send.sent import Sent
from tests.support import messages
from tests.support.crossing import crossing, drained, drained_twice, number_of
from tests.support.delayed import DelayedRows, move
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.error_rows import full
from tests.support.gate import gated
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import failure, outgoing
from tests.support.sending import batch, options, send
from tests.support.stored import DESTINATION, create_home, create_outbox, numbers_in

pytestmark = [pytest.mark.tier("all", variants="nightly"), pytest.mark.needs("reads_json_as_documented")]

RETRY_ID, SUCCESSFUL, TO = (
    f"ServiceControl.Retry.{name}" for name in ("UniqueMessageId", "Successful", "AcknowledgementQueue")
)
FAILED_QUEUE = "NServiceBus.FailedQ"


@pytest.fixture
def orders(engine):
    """The job's queue; beside it are the error queue, the outbox, and the table of messages that wait."""
    return create_home(engine, "Cross", "orders")


@pytest.fixture
def far(elsewhere, orders):
    """The other database, whose queues have the names of those at home, and the queue billing."""
    create_home(elsewhere, "Cross", "orders")
    elsewhere.create_queue("billing")
    return elsewhere


def leads(far, name="billing"):
    """The options that lead to a queue of the other database, by its name and by the database."""
    return {f"endpoint.{name}.url": far.url}, {"url": far.url}


def headers_in(queue):
    return [json.loads(row.headers) for row in queue.rows()]


def put_back(engine, queue, number, to="error", own=0):
    """A message as ServiceControl puts it back: as another row, which asks for an acknowledgement."""
    asks = {TO: full(engine, to), RETRY_ID: f"31ec6466-6a86-9984-a9d7-{number:012x}"}
    text = messages.headers(number)[:-1] + "," + json.dumps(asks)[1:]
    queue.insert_row(id=row_id(own or number), headers=text, body=body(number))


def far_from(engine, name="orders"):
    """How the address of a queue at home begins in a row of an error queue elsewhere."""
    return f"{name}@[{engine.default_schema}]@["


def database(engine):
    return engine.fetch("SELECT current_database()")[0][0]


def retry(engine, error="error"):
    return failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), error, Selection()).count


@pytest.mark.parametrize("way", [0, 1], ids=["endpoint.billing.url", "sink.url"])
def test_an_acknowledgement_goes_home_though_the_other_database_has_a_queue_of_that_name(
    engine, orders, far, way
):
    put_back(engine, orders, 1)
    orders.insert(1, start=2)
    with crossing(engine, orders, leads(far)[way], to=["billing"]) as job:
        assert drained_twice(job) == Sent(repeated=2)
    assert [(RETRY_ID in each, TO in each) for each in headers_in(far.queue("billing"))] == [
        (False, False)
    ] * 2
    assert [each[RETRY_ID][-12:] for each in headers_in(engine.queue("error"))] == [f"{1:012x}"]
    assert (SUCCESSFUL in headers_in(engine.queue("error"))[0], far.queue("error").count()) == (True, 0)


CENTRAL = {"errorQueue": "central.error", "auditQueue": "central.audit"}


@pytest.fixture
def central(far):
    """The error queue and the audit queue of all endpoints, in the other database."""
    return {name: far.create_queue(f"central.{name}") for name in ("error", "audit")}


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("tries", [1, 3])
def test_what_a_handled_row_owes_a_central_queue_is_stored_at_home_and_arrives_once(
    engine, orders, far, central, tries, outbox
):
    def handler(message):
        return {"Failure": failure()} if number_of(message) % 2 else ()

    orders.insert(4)
    sink = {"endpoint.central.*.url": far.url, "outbox": outbox, **CENTRAL}
    with crossing(engine, orders, sink, handler=handler) as job:
        for _ in range(tries - 1):
            with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
                job.trigger()
            job.crash()
        assert job.trigger()
        stored = orders.rows()[-4:]
        assert sorted(json.loads(row.headers)[DESTINATION].partition("@")[0] for row in stored) == [
            *[full(engine, "central.audit").partition("@")[0]] * 2,
            *[full(engine, "central.error").partition("@")[0]] * 2,
        ]
        drained_twice(job)
        assert (numbers_in(central["error"]), numbers_in(central["audit"])) == ([1, 3], [0, 2])
        assert [each[FAILED_QUEUE].startswith(far_from(engine)) for each in headers_in(central["error"])] == [
            True
        ] * 2
        assert [DESTINATION in each for each in headers_in(central["error"])] == [False] * 2
        # The same message comes back as another row, and fails again.
        put_back(engine, orders, 3, own=99)
        drained(job)
        assert numbers_in(central["error"]) == [1, 3, 3]
        assert RETRY_ID in headers_in(central["error"])[2]
    assert (orders.count(), engine.queue("error").count()) == (0, 0)


def test_a_retry_out_of_a_central_error_queue_reaches_no_queue_beside_it(postgresql, elsewhere):
    """There is a queue of the same name, but the messages have failed at home."""
    orders, far = create_home(postgresql, "Cross", "orders"), create_home(elsewhere, "Cross", "orders")
    elsewhere.create_queue("central.error")
    orders.insert(1)
    orders.insert_row(id=row_id(1), headers="no JSON", body=body(1))
    sink = {"endpoint.central.*.url": elsewhere.url, "errorQueue": "central.error"}
    with crossing(postgresql, orders, sink, handler=lambda _: {"Failure": failure()}) as job:
        drained_twice(job)
    failed = headers_in(elsewhere.queue("central.error"))
    assert [each[FAILED_QUEUE] for each in failed] == [f"{far_from(postgresql)}{database(postgresql)}]"] * 2
    assert (retry(elsewhere, "central.error"), far.count()) == (0, 0)


def test_an_error_row_of_a_retried_message_arrives_once_for_each_time_it_fails(engine, orders, far, central):
    """It waits in between, so that it fails as the row that it was at another move."""

    def handler(message):
        retried = json.loads(message["Headers"]).get("NServiceBus.Retries")
        return {"Failure": failure() if retried else failure(RetryAfter=timedelta(hours=1))}

    orders.insert(2)
    with crossing(engine, orders, {"endpoint.central.*.url": far.url, **CENTRAL}, handler=handler) as job:
        assert drained(job) == Sent(retried=2)
        DelayedRows(engine, "orders").make_due()
        assert move(engine, "orders") == (2, 0)
        drained_twice(job)
    assert (numbers_in(central["error"]), orders.count()) == ([0, 1], 0)


def test_what_a_forward_job_owes_a_central_error_queue_is_stored_where_it_says(engine, orders, far, central):
    stored = engine.create_queue("outgoing")
    orders.insert(2)
    orders.insert_row(id=row_id(2), headers="no JSON", body=body(2))
    sink = {"endpoint.central.*.url": far.url, "errorQueue": "central.error"}
    with (
        crossing(engine, orders, sink, to=["gone"]) as job,
        pytest.raises(ConfigurationError, match="as storeAndForward, from which a store-and-forward job"),
    ):
        job.trigger()
    with crossing(engine, orders, {**sink, "storeAndForward": "outgoing"}, to=["gone"]) as job:
        drained_twice(job)
    assert (numbers_in(stored), orders.count()) == ([0, 1, 2], 0)
    DelayedRows(engine, "outgoing").create()
    with crossing(engine, stored, sink, handler=lambda _: ()) as job:
        assert drained(job).sent == 3
    assert numbers_in(central["error"]) == [0, 1, 2]
    assert headers_in(central["error"])[2]["sqlqueue.RawHeaders"] == "no JSON"


def test_what_cannot_be_forwarded_to_another_database_fails_at_home_and_a_retry_forwards_it(
    engine, orders, far
):
    """Although the other database has queues orders, error and orders.Delayed too."""
    billing = far.queue("billing")
    wrong = "headers" if engine.name == "postgresql" else "Headers"
    billing.execute(
        f"ALTER TABLE {{table}} ADD CONSTRAINT no_two CHECK ({wrong} NOT LIKE '%8000-000000000002%')"
    )
    orders.insert(3)
    orders.insert_row(id=row_id(3), headers="no JSON", body=body(3))
    with crossing(engine, orders, {"url": far.url}, to=["billing"]) as job:
        drained_twice(job)
        error = engine.queue("error")
        assert (numbers_in(billing), sorted(numbers_in(error))) == ([0, 1], [2, 3])
        assert [each[FAILED_QUEUE].startswith(full(engine)) for each in headers_in(error)] == [True] * 2
        billing.execute("ALTER TABLE {table} DROP CONSTRAINT no_two")
        assert retry(engine) == 2
        assert sorted(numbers_in(orders)) == [2, 3]
        assert drained(job) == Sent(sent=1, failed=1)  # the other one cannot be read, still
    assert (numbers_in(billing), numbers_in(error)) == ([0, 1, 2], [3])
    assert [far.queue(name).count() for name in ("orders", "error")] == [0, 0]


def test_a_message_that_is_to_be_tried_again_waits_at_home(engine, orders, far):
    orders.insert(2)

    def handler(_):
        return {"Failure": failure(RetryAfter=timedelta(hours=1))}

    with crossing(engine, orders, {"url": far.url}, handler=handler) as job:
        assert drained(job) == Sent(retried=2)
    waiting = DelayedRows(engine, "orders")
    assert (waiting.count(), DelayedRows(far, "orders").count()) == (2, 0)
    waiting.make_due()
    assert move(engine, "orders") == (2, 0)
    assert (numbers_in(orders), far.queue("orders").count()) == ([0, 1], 0)


def test_what_two_regions_answer_to_one_event_arrives_both(engine, elsewhere, third):
    """Their rows have one message id and one RowVersion; only the Ids of the rows differ."""
    create_outbox(third, "Cross")
    invoices = third.create_queue("invoices")
    for number, region in enumerate((engine, elsewhere)):
        orders = create_home(region, "Cross", "orders")
        orders.insert_row(id=row_id(50 + number), headers=messages.headers(7), body=body(7))

        def handler(_, number=number):
            return [outgoing("invoices", 100 + number)]

        with crossing(region, orders, {"endpoint.invoices.url": third.url}, handler=handler) as job:
            drained_twice(job)
        assert orders.count() == 0
    assert numbers_in(invoices) == [100, 101]
    first, second = (each["NServiceBus.MessageId"] for each in headers_in(invoices))
    assert first != second


def test_one_row_of_two_regions_that_is_passed_on_is_one_message(engine, elsewhere, third):
    """It is passed on under its own id, and goes to one queue."""
    create_outbox(third, "Cross")
    invoices = third.create_queue("invoices")
    for number, region in enumerate((engine, elsewhere)):
        orders = create_home(region, "Cross", "orders")
        orders.insert_row(id=row_id(50 + number), headers=messages.headers(7), body=body(7))
        with crossing(region, orders, {"endpoint.invoices.url": third.url}, to=["invoices"]) as job:
            drained(job)
    assert [each["NServiceBus.MessageId"] for each in headers_in(invoices)] == [message_id(7)]


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_a_database_by_two_urls_loses_and_doubles_nothing(engine, orders, outbox):
    """Source and sink say it in other words; retries, answers and failures are where they belong."""
    twin = (
        f"{engine.url}?connect_timeout=9"
        if engine.name == "postgresql"
        else f"{engine.url};Connect Timeout=9"
    )
    billing = engine.create_queue("billing")

    def handler(message):
        number = number_of(message)
        retried = json.loads(message["Headers"]).get("NServiceBus.Retries")
        if number % 3 == 0 and not retried:
            return {"Failure": failure(RetryAfter=timedelta(hours=1))}
        return {"Failure": failure()} if number % 3 == 1 else [outgoing("billing", number)]

    orders.insert(6)
    with crossing(engine, orders, {"url": twin, "outbox": outbox}, handler=handler) as job:
        drained_twice(job)
        assert (sorted(numbers_in(billing)), numbers_in(engine.queue("error"))) == ([2, 5], [1, 4])
        DelayedRows(engine, "orders").make_due()
        assert move(engine, "orders") == (2, 0)
        drained(job)
    assert (sorted(numbers_in(billing)), numbers_in(engine.queue("error"))) == ([0, 2, 3, 5], [1, 4])
    assert (orders.count(), DelayedRows(engine, "orders").count()) == (0, 0)


def test_what_waits_until_it_is_due_and_goes_to_another_database_arrives_once(engine, orders, far):
    """A handler's message waits at home, is stored when it is due, and then passed on."""
    later = DelayedRows(engine, "Cross").create()
    orders.insert(2)

    def handler(message):
        return [outgoing("billing", number_of(message), DelayDeliveryFor=timedelta(hours=1))]

    with crossing(engine, orders, {"endpoint.billing.url": far.url}, handler=handler) as job:
        drained_twice(job)
        assert (later.count(), orders.count(), far.queue("billing").count()) == (2, 0, 0)
        later.make_due()
        assert move(engine, "Cross") == (2, 0)
        assert drained(job) == Sent(sent=2)
    assert (numbers_in(far.queue("billing")), orders.count(), later.count()) == ([0, 1], 0, 0)
    assert all("ForwardDestination" not in row.headers for row in far.queue("billing").rows())


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_a_plain_message_that_waits_until_it_is_due_waits_where_it_goes_to(engine, orders, far, outbox):
    later = DelayedRows(far, "Cross").create()
    given = options(
        engine, endpoint="Cross", outbox=outbox, queue="billing", **{"endpoint.billing.url": far.url}
    )
    rows = batch(range(2), DelayDeliveryFor=timedelta(minutes=30))
    assert [send(given, rows) for _ in range(2)] == [(2, 0), (0, 2)]
    assert (later.count(), far.queue("billing").count()) == (2, 0)
    later.make_due()
    assert move(far, "Cross") == (2, 0)
    assert send(given, rows) == (0, 2)
    assert (numbers_in(far.queue("billing")), later.count()) == ([0, 1], 0)


@pytest.mark.parametrize("names", ["two", "one"])
def test_a_plain_message_that_another_database_refuses_is_not_put_back_into_a_queue_at_home(
    postgresql, elsewhere, names, monkeypatch
):
    """Its address means home there, and a name that the databases of two servers share does, too."""
    create_home(postgresql, "Sales", "orders")
    create_outbox(elsewhere, "Sales")
    home = postgresql.create_queue("billing")
    if names == "one":
        here = database(postgresql)
        monkeypatch.setattr(tables_of_chunk, "database", lambda _: here)
    given = options(postgresql, queue="billing", errorQueue="error", **leads(elsewhere)[0])
    assert send(given, batch([1])) == (0, 0)
    named = database(elsewhere) if names == "two" else "endpoint.billing.url"
    (failed,) = headers_in(postgresql.queue("error"))
    assert (failed[FAILED_QUEUE], failed["NServiceBus.ProcessingEndpoint"]) == (
        f"billing@[public]@[{named}]",
        "billing",
    )
    assert (retry(postgresql), home.count(), postgresql.queue("error").count()) == (0, 0, 1)


@pytest.mark.parametrize("error_queue", ["central.error", "error"])
def test_the_failure_of_a_plain_message_waits_for_a_central_error_queue_however_long_it_is_down(
    engine, orders, far, central, error_queue
):
    """Given up, it would name the queue in which it waits, and nothing would tell where it is to go."""
    stored = engine.create_queue("outgoing")
    DelayedRows(engine, "outgoing").create()
    with gated(far.url) as gate:
        leads_there = {"endpoint.central.*.url": gate.url, "giveUpAfter": "1ms"}
        sink = {
            "endpoint": "Cross",
            **leads_there,
            "errorQueue": "central.error",
            "storeAndForward": "outgoing",
        }
        assert send(options(engine, **sink, queue="gone"), batch(range(2))) == (0, 0)
        gate.shut()
        with crossing(
            engine, stored, {**leads_there, "errorQueue": error_queue}, handler=lambda _: ()
        ) as job:
            for _ in range(2):
                assert drained(job) == Sent(waiting=2)
                DelayedRows(engine, "outgoing").make_due()
                assert move(engine, "outgoing") == (2, 0)
            gate.open()
            assert drained(job) == Sent(sent=2)
    assert (numbers_in(central["error"]), stored.count(), engine.queue("error").count()) == ([0, 1], 0, 0)
    failed_for = [
        each[FAILED_QUEUE].startswith(far_from(engine, "gone")) for each in headers_in(central["error"])
    ]
    assert failed_for == [True] * 2


def in_transit(engine, queue, number, to="billing"):
    """A message on its way to another queue, as a .NET endpoint's delayed message is when it is due."""
    text = messages.headers(number)[:-1] + f',"{FORWARD_DESTINATION}":{json.dumps(full(engine, to))}}}'
    queue.insert_row(id=row_id(number), headers=text, body=body(number))


@pytest.fixture(params=["passed on", "handled"])
def job_of(request, engine, orders, far):
    """A job that sends elsewhere what it receives for itself: it passes that on, or handles it."""
    engine.create_queue("Shipping")
    ways: dict[str, dict[str, object]] = {
        "passed on": {"to": ["Shipping"]},
        "handled": {"handler": lambda message: [outgoing("Shipping", number_of(message))]},
    }

    def job(url=far.url):
        leads_there = {"endpoint.billing.url": url}
        return crossing(engine, orders, leads_there, **leads_there, **ways[request.param])

    return job


def test_a_message_in_transit_to_another_database_is_passed_on_and_no_queue_at_home_gets_it(
    engine, orders, far, job_of
):
    """The transform and the handler have no say, and the queue of that name at home is another one."""
    billing = engine.create_queue("billing")
    in_transit(engine, orders, 1)
    orders.insert(1, start=2)
    with job_of() as job:
        assert drained_twice(job) == Sent(repeated=2)
    assert (numbers_in(far.queue("billing")), numbers_in(engine.queue("Shipping"))) == ([1], [2])
    assert (billing.count(), orders.count(), engine.queue("error").count()) == (0, 0, 0)
    assert [name for each in headers_in(far.queue("billing")) for name in (FORWARD_DESTINATION, DESTINATION)
            if name in each] == []  # fmt: skip


def test_a_message_in_transit_that_another_database_refuses_still_goes_there_when_it_is_put_back(
    engine, orders, far, job_of
):
    billing = far.queue("billing")
    wrong = "headers" if engine.name == "postgresql" else "Headers"
    billing.execute(
        f"ALTER TABLE {{table}} ADD CONSTRAINT no_one CHECK ({wrong} NOT LIKE '%8000-000000000001%')"
    )
    in_transit(engine, orders, 1)
    with job_of() as job:
        drained_twice(job)
        assert numbers_in(engine.queue("error")) == [1]
        billing.execute("ALTER TABLE {table} DROP CONSTRAINT no_one")
        assert retry(engine) == 1
        drained(job)
    assert (numbers_in(billing), engine.queue("Shipping").count(), orders.count()) == ([1], 0, 0)


def test_a_message_in_transit_to_a_database_that_is_down_still_goes_there_when_that_is_back(
    engine, orders, far, job_of
):
    in_transit(engine, orders, 1)
    with gated(far.url) as gate, job_of(gate.url) as job:
        gate.shut()
        assert drained_twice(job) == Sent(repeated=1)
        assert (DelayedRows(engine, "orders").count(), orders.count()) == (1, 0)
        gate.open()
        assert job.databases.look() == 1
        drained_twice(job)
    assert (numbers_in(far.queue("billing")), engine.queue("Shipping").count(), orders.count()) == ([1], 0, 0)


def test_a_due_message_for_another_database_goes_into_its_queue_whose_job_passes_it_on(
    engine, orders, far, job_of
):
    billing, later = engine.create_queue("billing"), DelayedRows(engine, "orders")
    in_transit(engine, orders, 1)
    past = "now()::timestamp - interval '1 day'" if engine.name == "postgresql" else "'2020-01-01'"
    engine.execute(
        f"INSERT INTO {later.quoted} (headers, body, due) SELECT headers, body, {past} FROM orders"
    )
    orders.execute("DELETE FROM {table}")
    assert move(engine, "orders", **leads(far)[0]) == (1, 0)
    assert (numbers_in(orders), later.count()) == ([1], 0)
    with job_of() as job:
        drained_twice(job)
    assert (numbers_in(far.queue("billing")), billing.count(), orders.count()) == ([1], 0, 0)
