"""What senders have stored for another database goes there once; while that is down it waits,
and holds up no other message.
"""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline.declared import store_and_forward
from sqlqueue_spark.send.sent import Sent
from tests.support import messages
from tests.support.delayed import DelayedRows, move
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.engines import full_address
from tests.support.gate import gated
from tests.support.messages import body, row_id
from tests.support.sending import steps
from tests.support.stored import (
    DESTINATION,
    EVENT,
    GIVE_UP_AT,
    WAITS_FOR,
    StoreAndForward,
    create_home,
    create_outbox,
    drained,
    numbers_in,
    running,
    store,
    stored_headers,
)
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")


@pytest.fixture
def outgoing(engine):
    """The queue in which senders store what goes elsewhere."""
    engine.create_queue("orders.local")
    return create_home(engine, "Forward", "outgoing")


@pytest.fixture
def other(elsewhere):
    """The other database, with the queues billing and shipping."""
    create_outbox(elsewhere, "Forward")
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
    with running(engine, outgoing, gate.url) as job:
        yield job


def test_a_message_goes_to_the_queue_that_it_names_and_loses_the_header_alone(job, outgoing, billing):
    store(outgoing, range(3))
    assert drained(job) == Sent(sent=3)
    assert [(row.headers, row.body) for row in billing.rows()] == [
        (messages.headers(n), body(n)) for n in range(3)
    ]
    assert outgoing.count() == 0


def failures(engine):
    """Of each row of the error queue: the number of its message, its FailedQ,
    where it was to go, and its exception.
    """
    found = []
    for row in engine.queue("error").rows():
        headers = json.loads(row.headers)
        number = json.loads(row.body)["order"]
        kind = headers["NServiceBus.ExceptionInfo.ExceptionType"].rpartition(".")[2]
        found.append((number, headers["NServiceBus.FailedQ"], headers.get(DESTINATION), kind))
    return found


def put_back(engine):
    """Put all failed messages back, as ``sqlqueue errors retry`` does."""
    return failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), "error", Selection()).count


def without_retry(row):
    """A row's headers and body, but for the two headers of a failure that a retry leaves,
    as ServiceControl does.
    """
    added = r"NServiceBus\.Processing(?:Machine|Endpoint)|\$\.diagnostics\.host(?:id|displayname)"
    return re.sub(rf',"(?:{added})":"[^"]*"', "", row.headers), row.body


def test_while_the_database_is_down_messages_wait_and_go_when_it_is_back(
    job, engine, outgoing, billing, gate
):
    gate.shut()
    store(outgoing, range(3))
    job.databases.look()
    assert drained(job) == Sent(waiting=3)
    assert (outgoing.count(), gate.entered) == (0, 0)
    waiting = DelayedRows(engine, "outgoing").rows()
    assert [each.body for each in waiting] == [body(n) for n in range(3)]
    assert {each.headers[WAITS_FOR] for each in waiting} == {"sink.url"}
    gate.open()
    assert job.databases.look() == 3
    assert job.databases.down() == set()
    assert drained(job) == Sent(sent=3)
    assert [row.headers for row in billing.rows()] == [messages.headers(n) for n in range(3)]
    assert DelayedRows(engine, "outgoing").count() == 0


def test_a_batch_that_finds_the_database_down_lets_rows_wait_and_tries_it_no_more(
    job, outgoing, gate, caplog
):
    gate.shut()
    store(outgoing, range(3))
    with job.watching():
        assert drained(job) == Sent(waiting=3)
        eventually(job.databases.down)  # long before retryInterval is over
    said = [each.getMessage().partition(":")[0] for each in caplog.records if each.levelname == "WARNING"]
    assert sorted(said) == [
        "database_down database=sink.url retry_interval=10s",
        "rows_wait database=sink.url",
        "rows_wait database=sink.url",
    ]  # a line a task, and one of the driver, which may find it out between them
    caplog.clear()
    store(outgoing, range(3, 6))
    assert drained(job) == Sent(waiting=3)
    assert caplog.records == []


def test_messages_go_back_in_their_order_and_keep_the_first_deadline(job, engine, outgoing, billing, gate):
    gate.shut()
    store(outgoing, range(5))
    job.databases.look()
    assert drained(job) == Sent(waiting=5)
    first = [each.headers[GIVE_UP_AT] for each in DelayedRows(engine, "outgoing").rows()]
    gate.open()
    assert job.databases.look() == 5
    assert numbers_in(outgoing) == [*range(5)]
    gate.shut()
    job.note_down()
    assert drained(job) == Sent(waiting=5)
    assert [each.headers[GIVE_UP_AT] for each in DelayedRows(engine, "outgoing").rows()] == first
    gate.open()
    job.databases.look()
    assert drained(job) == Sent(sent=5)
    assert [(row.headers, row.body) for row in billing.rows()] == [
        (messages.headers(n), body(n)) for n in range(5)
    ]


def test_another_database_is_not_held_up_by_one_that_is_down(engine, outgoing, other, billing, gate):
    shipping, cut_off = other.queue("shipping"), other.create_queue("Cut.Off")
    sink = {"endpoint.Cut.*.url": gate.url}
    gate.shut()
    store(outgoing, range(4), "shipping")
    store(outgoing, range(4, 6), "Cut.Off")
    with running(engine, outgoing, other.url, sink=sink) as job:
        assert drained(job) == Sent(sent=4, waiting=2)
        assert numbers_in(shipping) == [0, 1, 2, 3]
        waiting = DelayedRows(engine, "outgoing").rows()
        assert {each.headers[WAITS_FOR] for each in waiting} == {"endpoint.cut.*.url"}
        gate.open()
        assert job.databases.look() == 2
        assert drained(job) == Sent(sent=2)
    assert numbers_in(cut_off) == [4, 5]


def test_a_destination_that_is_missing_fails_its_messages_alone_and_a_retry_sends_them_on(
    job, engine, outgoing, other, billing
):
    store(outgoing, range(2))
    store(outgoing, range(2, 4), "gone")
    store(outgoing, [4], "not@an@address[")
    assert drained(job) == Sent(sent=2, failed=3)
    own = full_address(engine, "outgoing")
    assert failures(engine) == [
        (2, own, "gone", "QueueError"),
        (3, own, "gone", "QueueError"),
        (4, own, "not@an@address[", "ConfigurationError"),
    ]
    gone = other.create_queue("gone")
    assert put_back(engine) == 3
    assert drained(job) == Sent(sent=2, failed=1)
    assert [without_retry(row) for row in gone.rows()] == [(messages.headers(n), body(n)) for n in (2, 3)]


def test_a_message_that_its_table_refuses_fails_alone(job, engine, outgoing, other, billing):
    if engine.name == "postgresql":
        billing.execute("ALTER TABLE {table} ADD CHECK (headers NOT LIKE '%000000000002%')")
    else:
        billing.execute("ALTER TABLE {table} ADD CHECK (Headers NOT LIKE '%000000000002%')")
    store(outgoing, range(5))
    assert drained(job) == Sent(sent=4, failed=1)
    assert numbers_in(billing) == [0, 1, 3, 4]
    assert [number for number, *_ in failures(engine)] == [2]


def test_a_message_that_names_no_other_database_goes_to_the_local_queue(engine, outgoing, billing, gate):
    store(outgoing, range(2))
    store(outgoing, range(2, 4), None)
    store(outgoing, [4], "")
    with running(engine, outgoing, gate.url, job={"localQueue": "orders.local"}) as job:
        assert drained(job) == Sent(sent=5, handled=3)
    assert (numbers_in(billing), numbers_in(engine.queue("orders.local"))) == ([0, 1], [2, 3, 4])


@pytest.mark.parametrize("fate", ["gone", "down"])
def test_a_message_that_goes_elsewhere_is_not_done_because_one_of_its_id_stays(
    engine, outgoing, billing, gate, fate
):
    outgoing.insert_row(id=row_id(1), headers=stored_headers(0, None), body=body(0))
    outgoing.insert_row(id=row_id(2), headers=stored_headers(0), body=body(0))
    if fate == "gone":
        billing.execute("DROP TABLE {table}")
    else:
        gate.shut()
    with running(engine, outgoing, gate.url, job={"localQueue": "orders.local"}) as job:
        done = drained(job)
    assert (done.handled, done.failed + done.waiting) == (1, 1)


def test_without_a_local_queue_the_job_ends_and_names_the_row(job, outgoing, billing):
    store(outgoing, range(2))
    store(outgoing, [2], None)
    with pytest.raises(
        ConfigurationError, match=f"the row with RowVersion 3, Id {row_id(2)}, Queue outgoing@"
    ):
        drained(job)
    assert (outgoing.count(), job.done) == (3, 0)


def test_what_is_stored_in_the_queue_that_the_job_stores_in_goes_on(engine, outgoing, billing, gate):
    with running(engine, outgoing, gate.url, sink={"storeAndForward": "outgoing"}) as job:
        store(outgoing, range(3))
        assert drained(job) == Sent(sent=3)
    assert [(row.headers, row.body) for row in billing.rows()] == [
        (messages.headers(n), body(n)) for n in range(3)
    ]
    assert (outgoing.count(), engine.queue("error").count()) == (0, 0)


def test_poison_fails_and_does_not_hold_the_others_up(job, engine, outgoing, billing):
    store(outgoing, range(2))
    outgoing.insert_row(id=row_id(2), headers="no JSON", body=body(2))
    assert drained(job) == Sent(sent=2, failed=1)
    assert [number for number, *_ in failures(engine)] == [2]


def test_a_message_waits_for_a_day(job, engine, outgoing, billing, gate):
    gate.shut()
    store(outgoing, range(2))
    assert drained(job) == Sent(waiting=2)
    waits = [each.due - datetime.now(UTC) for each in DelayedRows(engine, "outgoing").rows()]
    assert all(timedelta(hours=23) < each <= timedelta(days=1) for each in waits)


def test_a_message_whose_time_is_over_goes_back_and_is_given_up_if_its_database_is_still_down(
    engine, outgoing, billing, gate
):
    """Any mover puts it back, also that of a .NET endpoint, and the job judges it."""
    gate.shut()
    store(outgoing, range(2))
    with running(engine, outgoing, gate.url, sink={"giveUpAfter": "1ms"}) as job:
        assert drained(job) == Sent(waiting=2)
        DelayedRows(engine, "outgoing").make_due()
        assert move(engine, "outgoing") == (2, 0)
        assert drained(job) == Sent(failed=2)
        assert failures(engine) == [
            (n, full_address(engine, "outgoing"), "billing", "GaveUp") for n in range(2)
        ]
        gate.open()
        assert (job.databases.look(), put_back(engine)) == (0, 2)
        assert drained(job) == Sent(sent=2)
    assert [without_retry(row) for row in billing.rows()] == [
        (messages.headers(n), body(n)) for n in range(2)
    ]


def test_a_message_whose_time_is_over_is_delivered_if_its_database_is_back(engine, outgoing, billing, gate):
    gate.shut()
    store(outgoing, range(2))
    with running(engine, outgoing, gate.url, sink={"giveUpAfter": "1ms"}) as job:
        assert drained(job) == Sent(waiting=2)
        DelayedRows(engine, "outgoing").make_due()
        gate.open()
        assert move(engine, "outgoing") == (2, 0)
        assert drained(job) == Sent(sent=2)
    assert numbers_in(billing) == [0, 1]


@pytest.mark.parametrize("forged", ["9999-12-31 23:59:59:999999 Z", "2100-01-01 00:00:00:000000 Z"])
def test_a_message_waits_no_longer_because_it_says_so(job, engine, outgoing, billing, gate, forged):
    """A sender may write any header."""
    gate.shut()
    store(outgoing, range(3), **{GIVE_UP_AT: forged})
    before = datetime.now(UTC)
    assert drained(job) == Sent(waiting=3)
    waiting = DelayedRows(engine, "outgoing").rows()
    ends = [before + timedelta(days=1), datetime.now(UTC) + timedelta(days=1)]
    given_up = [
        datetime.strptime(each.headers[GIVE_UP_AT], "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)
        for each in waiting
    ]
    assert [ends[0] <= each <= ends[1] for each in given_up] == [True] * 3
    assert [each.due <= ends[1] for each in waiting] == [True] * 3
    gate.open()
    assert job.databases.look() == 3
    assert drained(job) == Sent(sent=3)
    assert [row.headers for row in billing.rows()] == [messages.headers(n) for n in range(3)]


def test_a_batch_that_runs_again_sends_nothing_of_what_waits(job, engine, outgoing, billing, gate):
    gate.shut()
    store(outgoing, range(3))
    job.databases.look()
    with steps(), at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
        job.trigger()
    gate.open()
    job.crash()
    assert job.databases.look() == 3
    assert job.trigger()
    assert (job.sent, billing.count()) == (Sent(repeated=3), 0)
    assert drained(job) == Sent(sent=3)
    assert numbers_in(billing) == [0, 1, 2]


def test_a_batch_whose_rows_wait_though_they_were_sent_sends_nothing_twice(
    job, engine, outgoing, billing, gate
):
    store(outgoing, range(3))
    with steps(), at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
        job.trigger()
    assert numbers_in(billing) == [0, 1, 2]
    gate.shut()
    job.crash()
    job.databases.look()
    assert drained(job) == Sent(waiting=3)
    gate.open()
    assert job.databases.look() == 3
    assert drained(job) == Sent(repeated=3)
    assert (numbers_in(billing), outgoing.count()) == ([0, 1, 2], 0)


def test_a_message_that_servicecontrol_had_put_back_is_acknowledged_where_it_was(
    job, engine, outgoing, billing
):
    retried = {
        "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
        "ServiceControl.Retry.AcknowledgementQueue": "error",
    }
    store(outgoing, [0], **retried)
    store(outgoing, [1])
    assert drained(job) == Sent(sent=2, acknowledged=1)
    (acknowledgement,) = engine.queue("error").rows()
    told = json.loads(acknowledgement.headers)
    assert told["ServiceControl.Retry.UniqueMessageId"] == retried["ServiceControl.Retry.UniqueMessageId"]
    assert [row.headers for row in billing.rows()] == [messages.headers(n) for n in range(2)]


def test_options_that_no_two_databases_allow_are_refused(engine, outgoing, gate):
    for sink, said in (
        ({"url": ""}, "url"),
        ({"queue": "billing"}, "The sink has the option queue"),
        (
            {"transactionMode": "sendsAtomicWithReceive", "stream": "s"},
            "no transaction reaches two databases",
        ),
        ({"outbox": "none"}, "outbox is 'none'"),
        ({"giveUpAfter": "8d"}, "The option giveUpAfter is not shorter than keepDeduplicationDataFor"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            StoreAndForward(engine, outgoing, gate.url, sink=sink)


def test_what_waits_for_a_database_that_an_option_named_otherwise_goes_back_at_the_next_start(
    engine, outgoing, other, billing, gate
):
    gate.shut()
    store(outgoing, range(3))
    with running(engine, outgoing, gate.url, sink={"endpoint.Billing.url": gate.url}) as job:
        job.databases.look()
        assert drained(job) == Sent(waiting=3)
    with running(engine, outgoing, other.url) as job:
        assert job.databases.look() == 3
        assert drained(job) == Sent(sent=3)
    assert numbers_in(billing) == [0, 1, 2]


EVENT_TYPE = "Shop.OrderPlaced, Shop, Version=1.0.0.0"


def test_a_job_subscribes_its_queue_to_what_its_options_name(engine, elsewhere, tmp_path, capsys):
    outgoing = create_home(engine, "Shop.Forward", "outgoing")
    options = store_and_forward.StoreAndForwardOptions.parse(
        {"checkpoint": str(tmp_path), "subscribe": "Shop.OrderPlaced"}
    )
    sink = {"url": elsewhere.url, "endpoint": "Shop.Forward", "errorQueue": "error"}
    source = {"url": engine.url, "queue": "outgoing"}
    store_and_forward.StoreAndForward(source, sink, options).make_ready(create=True)
    rows = SubscriptionRows(engine)
    address = rows.address(outgoing)
    assert rows.rows() == [(address, "Shop.Forward", "Shop.OrderPlaced")]
    line = f"subscribed event=Shop.OrderPlaced endpoint=Shop.Forward queue={address}"
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("create", [True, False])
def test_an_error_queue_in_another_database_is_not_looked_for_at_home(engine, elsewhere, capsys, create):
    """Nor is it created there. Its database may be down when the job starts."""
    create_home(engine, "Shop.Forward", "outgoing")
    create_outbox(elsewhere, "Shop.Forward")
    ends = {"errorQueue": "failed", "auditQueue": "done"}
    urls = {f"endpoint.{name}.url": elsewhere.url for name in ends.values()}
    options = store_and_forward.StoreAndForwardOptions.parse({"checkpoint": "none"})
    job = store_and_forward.StoreAndForward(
        {"url": engine.url, "queue": "outgoing"},
        {"url": elsewhere.url, "endpoint": "Shop.Forward", **ends, **urls},
        options,
    )
    job.make_ready(create)
    assert "created queue=" not in capsys.readouterr().out


def test_an_event_goes_to_all_that_have_subscribed_in_the_other_database(
    job, engine, outgoing, other, billing
):
    routing = SubscriptionRows(other).create()
    for name in ("billing", "shipping"):
        routing.add(full_address(other, name), "Shop.OrderPlaced", endpoint=name)
    store(outgoing, [0], None, **{EVENT: EVENT_TYPE})
    store(outgoing, [1])
    store(outgoing, [2], None, **{EVENT: "Shop.OrderLost, Shop"})
    # A message that names a queue goes there.
    store(outgoing, [3], **{EVENT: EVENT_TYPE})
    assert drained(job) == Sent(sent=4, unsubscribed=1)
    assert numbers_in(other.queue("shipping")) == [0]
    assert sorted(numbers_in(billing)) == [0, 1, 3]
    assert {row.headers for row in billing.rows()} == {messages.headers(n) for n in (0, 1, 3)}


def test_an_event_waits_while_its_subscribers_are_not_known(job, engine, outgoing, other, billing, gate):
    SubscriptionRows(other).create().add(
        full_address(other, "billing"), "Shop.OrderPlaced", endpoint="billing"
    )
    gate.shut()
    store(outgoing, [0, 1], None, **{EVENT: EVENT_TYPE})
    store(outgoing, [2])
    assert drained(job) == Sent(waiting=3)
    gate.open()
    assert job.databases.look() == 3
    assert drained(job) == Sent(sent=3)
    assert sorted(numbers_in(billing)) == [0, 1, 2]


@pytest.mark.parametrize("known", [True, False])
def test_an_event_whose_time_is_over_is_given_up_as_a_message_is(
    job, engine, outgoing, other, billing, gate, known
):
    """Also where the batch is the first to find the database down."""
    SubscriptionRows(other).create().add(
        full_address(other, "billing"), "Shop.OrderPlaced", endpoint="billing"
    )
    over = {GIVE_UP_AT: "2020-01-01 00:00:00:000000 Z"}
    gate.shut()
    if known:
        job.databases.look()
    store(outgoing, [0], None, **{EVENT: EVENT_TYPE, **over})
    store(outgoing, [1], **over)
    store(outgoing, [2], None, **{EVENT: EVENT_TYPE})
    assert drained(job) == Sent(failed=2, waiting=1)
    own = full_address(engine, "outgoing")
    assert sorted(failures(engine)) == [(0, own, None, "GaveUp"), (1, own, "billing", "GaveUp")]
    gate.open()
    assert (job.databases.look(), put_back(engine)) == (1, 2)
    assert drained(job) == Sent(sent=3)
    assert sorted(numbers_in(billing)) == [0, 1, 2]


def test_a_subscriber_whose_queue_is_gone_fails_the_event_and_a_retry_reaches_it_alone(
    job, engine, outgoing, other, billing
):
    routing = SubscriptionRows(other).create()
    for name in ("billing", "gone"):
        routing.add(full_address(other, name), "Shop.OrderPlaced", endpoint=name)
    store(outgoing, [0], None, **{EVENT: EVENT_TYPE})
    assert drained(job) == Sent(sent=1, failed=1)
    assert [(number, queue) for number, queue, *_ in failures(engine)] == [
        (0, full_address(engine, "outgoing"))
    ]
    gone = other.create_queue("gone")
    assert put_back(engine) == 1
    assert drained(job) == Sent(sent=1)  # the row names the one queue that lacks its copy
    assert (numbers_in(billing), numbers_in(gone)) == ([0], [0])


def test_events_fail_where_the_other_database_has_no_table_of_subscriptions(job, engine, outgoing, billing):
    store(outgoing, [0], None, **{EVENT: EVENT_TYPE})
    store(outgoing, [1])
    assert drained(job) == Sent(sent=1, failed=1)
    assert (numbers_in(billing), [number for number, *_ in failures(engine)]) == ([1], [0])
