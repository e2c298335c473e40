"""Messages with a time of delivery wait in a table until they are due,
and then go to their queue, each once.
"""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from sqlqueue_spark.administration import delayed_tables, outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, RETRIES, format_time
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.waiting import delayed_mover
from tests.support.delayed import DelayedRows, headers_of, in_an_hour, move, mover
from tests.support.engines import full_address
from tests.support.messages import body, message_id, message_ids
from tests.support.sending import batch, columns_of, composed, ids_in, options, send, watched
from tests.support.stages import settled

pytestmark = pytest.mark.needs("reads_json_as_documented")
DELIVER_AT = "NServiceBus.DeliverAt"


@pytest.fixture
def billing(engine):
    return engine.create_queue("billing")


@pytest.fixture
def error(engine):
    return engine.create_queue("error")


@pytest.fixture
def waiting(engine, queue, billing, error):
    """What waits in the table of the endpoint Sales, which has an outbox and sends to the queue orders."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return DelayedRows(engine, "Sales").create()


# -- storing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic", "none"])
def test_a_message_with_a_time_of_delivery_waits(engine, queue, waiting, outbox):
    due = in_an_hour()
    given = options(engine, outbox=outbox)
    assert send(given, batch([1, 2], DeliverAt=[due, None])) == (2, 0)
    (row,) = waiting.rows()
    assert (row.body, row.due) == (body(1), due)
    assert (row.headers["NServiceBus.MessageId"], row.headers[DELIVER_AT]) == (
        message_id(1),
        format_time(due),
    )
    assert row.headers[FORWARD_DESTINATION] == full_address(engine, "orders")
    assert ids_in(queue) == [message_id(2)]
    assert not {DELIVER_AT, FORWARD_DESTINATION} & headers_of(queue.rows())[0].keys()


def test_a_delay_counts_from_now(engine, queue, waiting):
    before = datetime.now(UTC).replace(microsecond=0)
    send(options(engine), batch([1], DelayDeliveryFor=timedelta(hours=2)))
    (row,) = waiting.rows()
    assert before <= row.due - timedelta(hours=2) <= datetime.now(UTC) + timedelta(seconds=1)
    assert abs(row.due - _time(row.headers[DELIVER_AT])) < timedelta(seconds=2)


def _time(text):
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)


def test_a_delayed_message_is_known_by_where_it_goes(engine, queue, billing, waiting):
    """One id may wait for two queues; sent again at once, or later, it is the same send."""
    given = options(engine)
    due = in_an_hour()
    both = batch([1, 1], DeliverAt=due, Destination=["orders", "billing"])
    assert send(given, both) == (2, 0)
    assert send(given, both) == (0, 2)
    assert send(given, batch([1, 2])) == (1, 1)
    assert sorted(row.headers[FORWARD_DESTINATION] for row in waiting.rows()) == [
        full_address(engine, "billing"),
        full_address(engine, "orders"),
    ]
    assert ids_in(queue) == [message_id(2)]


def test_another_table_may_hold_what_waits(engine, waiting):
    elsewhere = DelayedRows(engine, "Timeouts").create()
    send(options(engine, delayedEndpoint="Timeouts"), batch([1], DeliverAt=in_an_hour()))
    assert (elsewhere.count(), waiting.count()) == (1, 0)


def test_a_table_that_is_missing_is_an_error_with_the_remedy(engine, queue):
    given = options(engine, outbox="none")
    with pytest.raises(QueueError, match="create it with: sqlqueue delayed create 'Sales@"):
        send(given, batch([1], DeliverAt=in_an_hour()))
    with pytest.raises(QueueError, match="sqlqueue delayed create"):
        prepare(Destinations(given), columns_of("DeliverAt"), ["orders"])
    assert queue.count() == 0


def test_a_header_that_would_send_it_elsewhere_does_not_go_out(engine, queue, waiting):
    """It was for another hop."""
    headers = json.dumps({FORWARD_DESTINATION: "billing", RETRIES: "3"})
    assert send(options(engine), batch([1], DeliverAt=in_an_hour(), Headers=headers)) == (1, 0)
    assert send(options(engine), batch([2], Headers=headers)) == (1, 0)
    (later,), (now,) = waiting.rows(), queue.rows()
    assert "orders" in later.headers[FORWARD_DESTINATION]
    assert not {FORWARD_DESTINATION, RETRIES} & json.loads(now.headers).keys()
    assert RETRIES not in later.headers


@pytest.mark.parametrize(
    "column",
    [{"DelayDeliveryFor": timedelta(days=3_000_000)}, {"DeliverAt": datetime(1700, 1, 1, tzinfo=UTC)}],
)
def test_a_time_that_no_table_can_hold_is_refused(engine, queue, waiting, column):
    with pytest.raises(ConfigurationError, match="a time of delivery that no table can hold"):
        send(options(engine), batch([1], **column))
    assert (queue.count(), waiting.count()) == (0, 0)


def test_a_destination_that_is_missing_fails_the_message_at_once(engine, error, waiting):
    given = options(engine, errorQueue="error")
    send(given, batch([1, 2], DeliverAt=in_an_hour(), Destination=["gone", "orders"]))
    assert [row.headers["NServiceBus.MessageId"] for row in waiting.rows()] == [message_id(2)]
    (failed,) = headers_of(error.rows())
    assert failed["NServiceBus.FailedQ"] == full_address(engine, "gone")
    assert FORWARD_DESTINATION not in failed


def test_an_atomic_batch_stores_when_it_is_settled(engine, queue, waiting):
    due = in_an_hour()
    given = options(engine, transactionMode="sendsAtomicWithReceive", stream="Sales")
    with settled(engine, "Sales"):
        destinations = Destinations(given)
        run = prepare(destinations, columns_of("DeliverAt"), ["orders"])
        rows = batch([1, 2, 3], DeliverAt=[due, None, due])
        seal(given, [stage(destinations, composed(given, rows, destinations=destinations))], run)
        assert waiting.count() == 0
    assert [(row.body, row.due) for row in waiting.rows()] == [(body(1), due), (body(3), due)]
    assert ids_in(queue) == [message_id(2)]


# -- delivering -----------------------------------------------------------------------------------


def test_what_is_due_goes_to_its_queue(engine, queue, billing, waiting):
    """Without the header that led there; all else stays byte for byte. What is not due stays."""
    given = options(engine)
    send(given, batch(range(10), DeliverAt=in_an_hour(), Destination=["orders", "billing"] * 5))
    send(given, batch([20], DeliverAt=in_an_hour() + timedelta(hours=5)))
    waited = {row.headers["NServiceBus.MessageId"]: row for row in waiting.rows()}
    assert move(engine, "Sales") == (0, 0)
    waiting.make_due()
    assert move(engine, "Sales") == (10, 0)
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(0, 10, 2)), message_ids(range(1, 10, 2)))
    for row, headers in zip(queue.rows(), headers_of(queue.rows()), strict=True):
        before = waited[headers["NServiceBus.MessageId"]]
        assert row.body == before.body
        assert headers == {name: text for name, text in before.headers.items() if name != FORWARD_DESTINATION}
    assert waiting.count() == 1


def test_messages_go_in_the_order_in_which_they_are_due(engine, queue, waiting):
    start = in_an_hour() - timedelta(hours=2)
    dues = [start + timedelta(seconds=(7 * number) % 100) for number in range(100)]
    send(options(engine), batch(range(100), DeliverAt=dues))
    assert move(engine, "Sales") == (100, 0)
    in_order = sorted(range(100), key=dues.__getitem__)
    assert ids_in(queue) == message_ids(in_order)


def test_a_message_that_cannot_be_delivered_goes_to_the_error_queue(engine, queue, error, waiting):
    gone = engine.create_queue("gone")
    send(options(engine), batch([1, 2], DeliverAt=in_an_hour(), Destination=["gone", "orders"]))
    gone.execute("DROP TABLE {table}")
    waiting.make_due()
    assert move(engine, "Sales") == (1, 1)
    assert ids_in(queue) == [message_id(2)]
    (row,) = error.rows()
    headers = json.loads(row.headers)
    assert (headers["NServiceBus.FailedQ"], headers["NServiceBus.ProcessingEndpoint"]) == (
        full_address(engine, "gone"),
        "gone",
    )
    assert (row.body, headers["NServiceBus.MessageId"]) == (body(1), message_id(1))
    assert "There is no queue table gone" in headers["NServiceBus.ExceptionInfo.Message"]
    assert waiting.count() == 0


def test_an_error_queue_that_is_missing_ends_the_mover_and_moves_nothing(engine, queue, waiting):
    send(options(engine), batch([1], DeliverAt=in_an_hour()))
    waiting.make_due()
    with pytest.raises(QueueError, match="There is no queue table nowhere"):
        move(engine, "Sales", "nowhere")
    assert (waiting.count(), queue.count()) == (1, 0)


def test_a_row_that_says_no_queue_goes_to_the_owner_of_the_table(engine, queue, error):
    """As a .NET endpoint of that name would handle it. Without that queue it has failed."""
    orders, sales = DelayedRows(engine, "orders").create(), DelayedRows(engine, "Sales").create()
    for rows in (orders, sales):
        _put(engine, rows, headers='{"a":"b"}', body="NULL")
    assert (move(engine, "orders"), move(engine, "Sales")) == ((1, 0), (0, 1))
    assert [(row.headers, row.body) for row in queue.rows()] == [('{"a":"b"}', b"")]
    assert headers_of(error.rows())[0]["NServiceBus.FailedQ"] == full_address(engine, "Sales")


@pytest.mark.parametrize(
    "written, why",
    [
        (r'"\q"', "is no JSON that can be read"),
        (r'"\u0000"', r"The queue address '\x00' holds a character that no name can have"),
        ('"' + "a" * 5_000 + '"', "has 5,000 characters, which no table's has"),
    ],
    ids=["escape", "NUL", "long"],
)
def test_what_names_no_queue_fails_alone_and_the_others_go_on(engine, queue, error, waiting, written, why):
    """Whatever text stands there, it is no sign of ours."""
    odd = f'{{"a":"b","{FORWARD_DESTINATION}":{written}}}'
    end = f',"{FORWARD_DESTINATION}":"orders"}}'
    for headers in ('{"a":"b"' + end, odd, '{"a":"c"' + end):
        _put(engine, waiting, headers=headers, body="NULL")
    assert move(engine, "Sales") == (2, 1)
    assert (waiting.count(), [row.headers for row in queue.rows()]) == (0, ['{"a":"b"}', '{"a":"c"}'])
    (failed,) = headers_of(error.rows())
    assert why in failed["NServiceBus.ExceptionInfo.Message"]


def test_headers_that_are_the_end_of_others_are_poison(engine, queue, error, waiting):
    """What is remembered of an end says nothing of a whole."""
    end = f',"{FORWARD_DESTINATION}":"orders"}}'
    for headers in ('{"a":"b"' + end, end):
        _put(engine, waiting, headers=headers, body="NULL")
    assert move(engine, "Sales") == (1, 1)
    assert [row.headers for row in queue.rows()] == ['{"a":"b"}']
    assert headers_of(error.rows())[0]["sqlqueue.RawHeaders"] == end


def _put(engine, rows, *, headers, body):
    clock = "now() AT TIME ZONE 'UTC'" if engine.name == "postgresql" else "GETUTCDATE()"
    engine.execute(f"INSERT INTO {rows.quoted} (headers, body, due) VALUES ('{headers}', {body}, {clock})")


def test_a_mover_looks_once_a_second_where_nothing_is_due(engine, queue, waiting, monkeypatch):
    """Each look is one statement, and one for the zone. It comes sooner where something is due sooner."""
    assert delayed_mover._QUIET_SECONDS == 1.0
    quiet = 600.0  # so that nothing is due before the test ends
    monkeypatch.setattr(delayed_mover, "_QUIET_SECONDS", quiet)
    send(options(engine), batch(range(100), DeliverAt=in_an_hour()))
    waits: list[float] = []
    said: list[int] = []

    def pause(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            tell = stack.enter_context(mock.patch.object(seen.last, "execute", wraps=seen.last.execute))
            stack.callback(lambda: said.append(tell.call_count))
        if len(waits) == 4:
            send(options(engine), batch([200], DeliverAt=datetime.now(UTC) + timedelta(seconds=500)))
        return len(waits) == 6

    moving = mover(engine, "Sales")
    with contextlib.ExitStack() as stack, watched() as seen:
        moving.run(pause)
    assert (waits[:4], said) == ([0.0, quiet, quiet, quiet], [8 if engine.name == "postgresql" else 4])
    assert all(300 < each < 500 for each in waits[4:])


# -- looking --------------------------------------------------------------------------------------


def test_the_length_tells_what_waits_and_what_is_due(engine, waiting):
    own = ConnectionOptions.parse({"url": engine.url})
    assert delayed_tables.length(own, "Sales").first_due_in is None
    now = datetime.now(UTC)
    dues = [now - timedelta(hours=1), now + timedelta(hours=1)]
    send(options(engine), batch([1, 2], DeliverAt=dues))
    found = delayed_tables.length(own, "Sales")
    assert (found.rows, found.due) == (2, 1)
    assert found.first_due_in is not None
    assert found.first_due_in.total_seconds() == pytest.approx(-3600, abs=60)


@pytest.mark.parametrize("due", ["'infinity'", "NULL"])
def test_a_row_that_is_never_due_hides_no_other_and_stops_no_look(postgresql, due):
    """A job looks at its start for which databases rows wait. Another program may have written anything."""
    waiting = DelayedRows(postgresql, "Sales").create()
    postgresql.execute(f"ALTER TABLE {waiting.quoted} ALTER due DROP NOT NULL")
    postgresql.execute(f"INSERT INTO {waiting.quoted} (headers, due) VALUES ('{{}}', {due})")
    found = delayed_tables.length(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    assert found == delayed_tables.DelayedLength(
        table=found.table,
        rows=1,
        due=0,
        first_due_in=None,
        waiting=0,
        waits_for=(),
        first_given_up_in=None,
    )


@pytest.mark.parametrize("due", ["-infinity", "infinity"])
def test_no_time_holds_a_mover_up(postgresql, due):
    """Before version 17 the server cannot subtract from infinity."""
    for name in ("Sales", "error"):
        postgresql.create_queue(name)
    waiting = DelayedRows(postgresql, "Sales").create()
    postgresql.execute(f"INSERT INTO {waiting.quoted} (headers, due) VALUES ('{{}}', '{due}')")
    pauses = iter([False, False, True])
    moving = mover(postgresql, "Sales")
    assert moving.run(lambda _: next(pauses)).sent == (due == "-infinity")


def test_a_table_is_created_once(engine):
    own = ConnectionOptions.parse({"url": engine.url})
    assert [delayed_tables.create(own, "Sales").new for _ in range(2)] == [True, False]
    engine.create_queue("Odd.Delayed")
    with pytest.raises(QueueError, match="has no column due"):
        delayed_tables.create(own, "Odd")
    with pytest.raises(QueueError, match="sqlqueue delayed create"):
        delayed_tables.length(own, "Other")


def test_a_message_that_an_index_of_its_queue_refuses_fails_alone(engine, queue, billing, error, waiting):
    if engine.name != "postgresql":
        pytest.skip("there no index may be on bodies")
    given, ids = options(engine), ["a", "b", "c"]
    billing.execute("CREATE UNIQUE INDEX one_body ON {table} (body)")
    send(given, batch([1, 1, 2], Destination="billing", MessageId=ids, DeliverAt=in_an_hour()))
    send(given, batch([7], Destination="orders", DeliverAt=in_an_hour()))
    waiting.make_due("3 hours")
    assert move(engine, "Sales") == (3, 1)
    assert (billing.count(), queue.count(), error.count(), waiting.count()) == (2, 1, 1, 0)
