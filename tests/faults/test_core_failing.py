"""Messages that fail while the tables for them are gone, refuse them, or live by another clock:
nothing is lost, nothing comes twice.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import QueueError, SqlQueueError
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import RETRIES
from sqlqueue_spark.messages.waiting_headers import retries_of
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.compose import message_builder
from sqlqueue_spark.send.deliver import error_and_audit_rows
from tests.support import death_steps
from tests.support.clock import wrong_clock
from tests.support.delayed import DelayedRows, move
from tests.support.driver import Crash, at_step, crash
from tests.support.outcomes import failed_in, failure, options, outcome, outgoing, sent_to, settle
from tests.support.sending import batch, send, steps, watched
from tests.support.sending import options as sending

pytestmark = pytest.mark.needs("reads_json_as_documented")

INCREASE = timedelta(seconds=10)
DYING = (fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT)


@pytest.fixture
def tables(engine, queue):
    """The queues orders, billing and error, and what waits for orders."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return (
        queue,
        engine.create_queue("billing"),
        engine.create_queue("error"),
        DelayedRows(engine, "orders").create(),
    )


def recovered(row):
    """What recoverability says of a message that always fails, with three retries."""
    retries = retries_of((parse_headers(row["Headers"]) or {}).get(RETRIES))
    return failure(RetryAfter=INCREASE * (retries + 1) if retries < 3 else None)


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("number, step", [*enumerate(DYING)])
def test_a_message_that_always_fails_has_its_retries_whatever_dies(engine, tables, outbox, number, step):
    """Each attempt dies once at its task and once at the mover; the delays are those that were asked for."""
    orders, _, error, waiting = tables
    given = options(engine, outbox=outbox)
    row: dict[str, Any] = {}
    for attempt in range(4):
        received = outcome(1, **row)
        received["Failure"] = recovered(received)
        began = datetime.now(UTC)
        with watched(), at_step(step, crash) as crashes, steps(), pytest.raises(Crash):
            settle(given, received)
        settle(given, received)
        assert crashes == [1]
        if attempt == 3:
            break
        (late,) = waiting.rows()
        assert timedelta(0) <= late.due - began - INCREASE * (attempt + 1) < timedelta(seconds=5)
        waiting.make_due()
        with watched(), at_step(death_steps.DUE_STEPS[number], crash), steps(), pytest.raises(Crash):
            move(engine, "orders")
        move(engine, "orders")
        (back,) = orders.rows()
        row = {"RowVersion": back.row_version, "Id": str(back.id), "Headers": back.headers, "Body": back.body}
        orders.take()
    assert (sent_to(error), waiting.count(), orders.count()) == ([1], 0, 0)
    (failed,) = failed_in(error)
    assert RETRIES not in failed


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_an_error_queue_that_is_gone_ends_the_batch_and_nothing_is_lost(engine, tables, outbox):
    _, billing, error, _ = tables
    given = options(engine, outbox=outbox)
    rows = [outcome(1, outgoing("billing", 10)), outcome(2, fails=failure())]
    error.execute("DROP TABLE {table}")
    with pytest.raises(QueueError, match="There is no queue table error"):
        settle(given, *rows)
    assert billing.count() == 0
    error = engine.create_queue("error")
    assert settle(given, *rows) == (1, 0, 1)
    assert (sent_to(billing), sent_to(error)) == ([10], [2])


def test_an_error_queue_that_takes_no_more_ends_the_batch_and_nothing_is_lost(engine, tables):
    """As one on a full disk: each insert is refused."""
    _, billing, error, _ = tables
    given = options(engine)
    rows = [outcome(1, outgoing("billing", 10)), outcome(2, fails=failure())]
    error.execute("ALTER TABLE {table} ADD CONSTRAINT full_up CHECK (1 = 0)")
    with pytest.raises(SqlQueueError, match="full_up"):
        settle(given, *rows)
    assert billing.count() == 0
    error.execute("ALTER TABLE {table} DROP CONSTRAINT full_up")
    assert settle(given, *rows) == (1, 0, 1)
    assert (sent_to(billing), sent_to(error)) == ([10], [2])


@pytest.mark.parametrize("days", [1, -1], ids=["ahead", "behind"])
def test_a_wrong_clock_of_the_job_does_not_move_a_delay(engine, tables, days):
    """The database's clock counts. Only a header that people read says the job's time."""
    *_, waiting = tables
    later = DelayedRows(engine, "Sales").create()
    now = datetime.now(UTC)
    with wrong_clock(message_builder, days=days), wrong_clock(error_and_audit_rows, days=days):
        send(sending(engine), batch([1], DelayDeliveryFor=timedelta(hours=1)))
        settle(options(engine), outcome(2, fails=failure(RetryAfter=timedelta(hours=1))))
    for rows in (later, waiting):
        (row,) = rows.rows()
        assert abs(row.due - now - timedelta(hours=1)) < timedelta(minutes=1)
