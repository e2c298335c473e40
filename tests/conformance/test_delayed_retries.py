"""A message that has failed waits in the table of its queue, and is tried again;
after its last retry it goes to the error queue.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.message import (
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    MESSAGE_ID,
    ORIGIN,
    WAITS_FOR,
)
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.waiting_rows import put_back
from sqlqueue_spark.tables import queues
from tests.support import dotnet, messages
from tests.support.delayed import DelayedRows, move
from tests.support.driver import Crash, at_step, crash
from tests.support.engines import full_address
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import (
    failed_in,
    failure,
    frame,
    options,
    outcome,
    outgoing,
    sent_to,
    settle,
    settled_all,
    stage_all,
)
from tests.support.sending import steps, watched
from tests.support.stages import settled

pytestmark = pytest.mark.needs("reads_json_as_documented")

RETRIES, TIMESTAMP, DELIVER_AT = (
    "NServiceBus.Retries",
    "NServiceBus.Retries.Timestamp",
    "NServiceBus.DeliverAt",
)
HOUR = timedelta(hours=1)
LATER = failure(RetryAfter=HOUR)


@pytest.fixture
def orders(queue):
    """The queue in which the messages were received; their rows are gone."""
    return queue


@pytest.fixture
def billing(engine):
    return engine.create_queue("billing")


@pytest.fixture
def error(engine, billing):
    return engine.create_queue("error")


@pytest.fixture
def waiting(engine, orders, error):
    """The messages of the queue orders that wait."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return DelayedRows(engine, "orders").create()


@pytest.fixture(params=["optimistic", "pessimistic"])
def given(request, engine, waiting):
    return options(engine, outbox=request.param)


def come_back(orders):
    """The rows that came back, as outcomes want them told."""
    return [
        {"RowVersion": row.row_version, "Id": str(row.id), "Headers": row.headers, "Body": row.body}
        for row in orders.rows()
    ]


def test_a_message_that_failed_waits_and_comes_back(engine, given, orders, error, waiting):
    """With all that it had, and the count of its retries."""
    text = json.dumps(
        {"NServiceBus.MessageId": message_id(1), "NServiceBus.TimeToBeReceived": "00:10:00", "a": "é/"}
    )
    done = settled_all(given, frame([outcome(1, outgoing("billing", 10), fails=LATER, Headers=text)]))
    assert (done, error.count()) == (Sent(retried=1), 0)
    (row,) = waiting.rows()
    assert row.body == body(1)
    times = {row.headers[name] for name in (TIMESTAMP, DELIVER_AT)}
    assert len(times) == 2
    assert row.headers == {
        **json.loads(text),
        RETRIES: "1",
        TIMESTAMP: row.headers[TIMESTAMP],
        ORIGIN: row.headers[ORIGIN],
        DELIVER_AT: row.headers[DELIVER_AT],
        FORWARD_DESTINATION: full_address(engine, "orders"),
    }
    assert move(engine, "orders") == (0, 0)
    waiting.make_due()
    assert move(engine, "orders") == (1, 0)
    (back,) = orders.rows()
    assert (json.loads(back.headers)[RETRIES], back.body, back.expires) == ("1", body(1), None)
    if engine.name == "postgresql":  # the table of SQL Server has no Id, and the header names it
        assert row.headers[ORIGIN] == f"{back.id}:{row_id(1)}:1:1"
    assert back.headers.startswith(text[:-1])


def test_its_headers_are_those_of_a_recorded_retry(engine, given, orders, waiting):
    recorded = json.loads(dotnet.lines("delayed")[1]["headers"])
    received = {
        name: text
        for name, text in recorded.items()
        if name not in (RETRIES, TIMESTAMP, DELIVER_AT, FORWARD_DESTINATION)
    }
    settle(given, outcome(1, fails=LATER, Headers=json.dumps(received)))
    (row,) = waiting.rows()
    assert [name for name in row.headers if name != ORIGIN] == list(recorded)
    changed = {name for name, text in recorded.items() if row.headers[name] != text}
    assert changed == {TIMESTAMP, DELIVER_AT, FORWARD_DESTINATION}


def test_a_batch_that_comes_again_retries_nothing_twice(given, billing, error, waiting):
    """Whatever its function answers then."""
    settle(given, outcome(1, fails=LATER))
    for again in (outcome(1, fails=LATER), outcome(1, outgoing("billing", 10)), outcome(1, fails=failure())):
        assert settle(given, again) == (0, 1, 0)
    assert (waiting.count(), billing.count(), error.count()) == (1, 0, 0)


@pytest.mark.parametrize("succeeds", [True, False])
def test_it_is_tried_as_often_as_it_says_and_then_it_is_over(
    engine, given, orders, billing, error, waiting, succeeds
):
    row: dict[str, Any] = {}
    for number in (1, 2, 3):
        settle(given, outcome(1, fails=LATER, **row))
        waiting.make_due()
        move(engine, "orders")
        (row,) = come_back(orders)
        assert json.loads(row["Headers"])[RETRIES] == str(number)
        orders.take()
    last = outcome(1, outgoing("billing", 10), fails=None if succeeds else failure(), **row)
    assert settle(given, last) == ((1, 0, 0) if succeeds else (0, 0, 1))
    assert settle(given, last) == (0, 1, 0)
    assert (sent_to(billing), waiting.count()) == ([10] if succeeds else [], 0)
    for failed in failed_in(error):
        assert (
            failed["NServiceBus.FailedQ"],
            RETRIES in failed,
            TIMESTAMP in failed,
            DELIVER_AT in failed,
        ) == (
            full_address(engine, "orders"),
            False,
            True,
            True,
        )
    assert error.count() == (0 if succeeds else 1)


def test_a_message_without_an_id_keeps_that_of_its_first_row(engine, given, orders, waiting):
    settle(given, outcome(1, fails=LATER, Headers=None))
    (row,) = waiting.rows()
    assert row.headers["NServiceBus.MessageId"] == str(row_id(1))


def test_what_cannot_be_read_is_not_tried_again(given, error, waiting):
    settle(given, outcome(1, fails=LATER, Headers="no JSON"))
    assert (waiting.count(), [failed["sqlqueue.RawHeaders"] for failed in failed_in(error)]) == (
        0,
        ["no JSON"],
    )


def test_a_failure_may_name_another_error_queue(engine, given, error, waiting):
    other = engine.create_queue("other error")
    rows = [outcome(1, fails=failure(ErrorQueue="other error")), outcome(2, fails=failure())]
    assert settle(given, *rows) == (0, 0, 2)
    assert (sent_to(other), sent_to(error)) == ([1], [2])


def test_where_the_table_is_missing_a_message_fails_at_once_and_the_log_names_the_remedy(
    engine, orders, error, caplog
):
    """A new queue of a pattern has none yet, and must not stop the others."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    rows = [outcome(1, fails=LATER), outcome(2, fails=failure())]
    assert [settle(options(engine), *rows) for _ in range(2)] == [(0, 0, 2), (0, 2, 0)]
    assert sent_to(error) == [1, 2]
    assert "sqlqueue delayed create 'orders@" in caplog.text


def test_an_atomic_batch_has_its_retries_wait_when_it_is_settled(engine, orders, billing, error, waiting):
    given = options(engine, transactionMode="sendsAtomicWithReceive", stream="Sales")
    rows = [outcome(1, outgoing("billing", 10)), outcome(2, fails=LATER), outcome(3, fails=failure())]
    with settled(engine, "Sales"):
        assert stage_all(given, frame(rows)) == (3, 1)
        assert (waiting.count(), billing.count(), error.count()) == (0, 0, 0)
    assert (sent_to(billing), sent_to(error), [row.body for row in waiting.rows()]) == ([10], [3], [body(2)])
    waiting.make_due()
    assert move(engine, "orders") == (1, 0)
    assert json.loads(orders.rows()[0].headers)[RETRIES] == "1"


def test_what_a_handler_sends_may_wait_too(engine, given, billing, waiting):
    """One message to two queues, by way of one table."""
    later = DelayedRows(engine, "Sales").create()
    sends = [outgoing(to, 10, DelayDeliveryFor=HOUR, MessageId="mine") for to in ("billing", "orders")]
    done = settled_all(given, frame([outcome(1, *sends, outgoing("billing", 11))]))
    assert done == Sent(sent=3, handled=1, delayed=2)
    # No driver has told this task which database it reaches, so that the addresses could name it.
    assert (
        sorted(row.headers[FORWARD_DESTINATION] for row in later.rows())
        == {
            "postgresql": ['"public"."billing"', '"public"."orders"'],
            "sqlserver": ["billing@[dbo]", "orders@[dbo]"],
        }[engine.name]
    )
    assert settle(given, outcome(1, *sends)) == (0, 1, 0)
    assert (later.count(), sent_to(billing)) == (2, [11])


STEPS = (fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT)


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_dies_has_its_messages_tried_again_once(given, error, waiting, step):
    rows = [outcome(number, fails=LATER if number % 2 else failure()) for number in range(1, 9)]
    with watched(), at_step(step, crash) as crashes, steps(), pytest.raises(Crash):
        settle(given, *rows)
    settle(given, *rows)
    assert crashes == [1]
    assert sorted(row.body for row in waiting.rows()) == [body(number) for number in (1, 3, 5, 7)]
    assert sorted(sent_to(error)) == [2, 4, 6, 8]


def test_retries_of_odd_headers_begin_at_one(given, waiting):
    for number, odd in enumerate(["-1", "", "many", "99999999999"], 1):
        text = json.dumps({**json.loads(messages.headers(number)), RETRIES: odd})
        settle(given, outcome(number, fails=LATER, Headers=text))
    assert [row.headers[RETRIES] for row in waiting.rows()] == ["1"] * 4


@pytest.mark.parametrize(
    "after, waits", [(timedelta(days=36_524), 1), (timedelta(days=3_000_000), 0), (timedelta(days=-9_000), 1)]
)
def test_a_retry_that_no_mover_would_see_goes_to_the_error_queue_at_once(given, error, waiting, after, waits):
    """And one that is late already is due now."""
    settle(given, outcome(1, fails=failure(RetryAfter=after)))
    assert (waiting.count(), error.count()) == (waits, 1 - waits)
    for row in waiting.rows():
        assert row.due > datetime.now(UTC) - timedelta(minutes=1)


def test_a_message_out_that_would_be_expired_from_the_start_fails_the_one_that_sends_it(
    given, error, billing
):
    expired = outgoing("billing", 1, Headers={"NServiceBus.TimeToBeReceived": "00:00:00"})
    assert settle(given, outcome(1, expired), outcome(2, outgoing("billing", 5))) == (1, 0, 1)
    (failed,) = failed_in(error)
    assert "TimeToBeReceived is not above zero" in failed["NServiceBus.ExceptionInfo.Message"]
    assert sent_to(billing) == [5]


def test_a_message_out_that_no_table_can_hold_fails_the_one_that_sends_it(
    engine, given, error, billing, waiting
):
    DelayedRows(engine, "Sales").create()
    never = outgoing("billing", 1, DelayDeliveryFor=timedelta(days=3_000_000))
    assert settle(given, outcome(1, never), outcome(2, outgoing("billing", 5))) == (1, 0, 1)
    (failed,) = failed_in(error)
    assert "a time of delivery that no table can hold" in failed["NServiceBus.ExceptionInfo.Message"]
    assert sent_to(billing) == [5]


def test_a_retry_goes_back_whatever_destinations_are_allowed(engine, given, orders, error, waiting):
    """No message names its queue: a person or the job does."""
    assert settled_all(given, frame([outcome(1, fails=LATER)])) == Sent(retried=1)
    waiting.make_due()
    assert move(engine, "orders", allowedDestinations="billing") == (1, 0)
    assert (orders.count(), error.count()) == (1, 0)


def test_a_retry_of_a_row_that_has_waited_waits_for_no_database(engine, given, waiting):
    """Else it would be put back before it is due, without the headers behind the one that says so."""
    waited = {MESSAGE_ID: message_id(1), WAITS_FOR: "endpoint.billing.url", ENCLOSED_MESSAGE_TYPES: "A"}
    rows = frame([outcome(1, fails=LATER, Headers=json.dumps(waited, separators=(",", ":")))])
    assert settled_all(given, rows) == Sent(retried=1)
    with connect(Target.of(given)) as connection:
        with connection.transaction():
            table = queues.get(connection, "orders", given.naming(connection.dialect)).table
        assert put_back(connection, table, "endpoint.billing.url")[0] == 0
    assert waiting.count() == 1


def test_a_queue_without_the_table_has_its_message_in_error_and_the_others_of_a_batch_wait(
    engine, given, error, waiting
):
    """It is new, and a pattern has found it."""
    engine.create_queue("Sales.New")
    new = outcome(2, fails=LATER, Queue="Sales.New")
    assert settle(given, outcome(1, fails=LATER), new, outcome(3, fails=LATER)) == (0, 0, 1)
    assert ([row.body for row in waiting.rows()], sent_to(error)) == ([body(1), body(3)], [2])
