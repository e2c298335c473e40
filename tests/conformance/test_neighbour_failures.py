"""What fails or waits goes to and fro between a .NET endpoint and us: each reads, delays,
retries and puts back what the other wrote.
"""

import json
import threading
from collections import Counter
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import failed_retry, outbox_tables
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import RETRIES
from sqlqueue_spark.messages.servicecontrol import Ingestion, Verdict, ingestion
from sqlqueue_spark.messages.waiting_headers import retries_of
from sqlqueue_spark.options import ConnectionOptions
from tests.support.delayed import DelayedRows, move, mover
from tests.support.error_rows import full
from tests.support.messages import message_id, message_ids, row_id
from tests.support.neighbour import Habits, Neighbour
from tests.support.outcomes import failure, options, outcome, settle
from tests.support.sending import batch, ids_in, send
from tests.support.sending import options as sending
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

QUICK = timedelta(milliseconds=20)
HABITS = Habits(concurrency=2, rest=QUICK, longest_pause=QUICK, immediate_retries=1)
DELIVERS = Habits(concurrency=2, rest=QUICK, longest_pause=QUICK, immediate_retries=1, delivers_delayed=True)


@pytest.fixture
def error(engine, queue):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return engine.create_queue("error")


@pytest.fixture
def waiting(engine, error):
    """What waits for the queue orders, of the endpoint and of ours."""
    return DelayedRows(engine, "orders").create()


class Handled:
    """What a handler has seen; it fails at the messages with these ids."""

    def __init__(self, *failing):
        self.failing = set(failing)
        self.calls: Counter[str] = Counter()
        self.headers: dict[str, dict[str, str]] = {}

    def __call__(self, handling):
        message = handling.message
        self.calls[message.message_id] += 1
        self.headers[message.message_id] = message.headers
        if message.message_id in self.failing:
            raise ValueError("it cannot be handled")


def test_what_we_store_is_delivered_by_both_movers_once(engine, queue, error, waiting):
    """Beside each other, while more comes."""
    given = sending(engine, outbox="none", delayedEndpoint="orders")
    handled = Handled()
    stopping = threading.Event()
    ours = threading.Thread(target=mover(engine, "orders").run, args=[stopping.wait])
    with Neighbour(engine, queue, DELIVERS, handled).running() as neighbour:
        ours.start()
        for first in range(0, 200, 20):
            send(given, batch(range(first, first + 20), DelayDeliveryFor=timedelta(milliseconds=first)))
        eventually(lambda: len(handled.calls) == 200 and waiting.count() == 0 and queue.count() == 0)
        stopping.set()
        ours.join()
    assert handled.calls == Counter(message_ids(range(200)))
    assert (neighbour.counts().handled, error.count()) == (200, 0)


def test_a_message_that_we_try_again_later_is_delivered_and_read_by_an_endpoint(
    engine, queue, error, waiting
):
    settle(options(engine), outcome(1, fails=failure(RetryAfter=timedelta(milliseconds=1))))
    handled = Handled()
    with Neighbour(engine, queue, DELIVERS, handled).running() as neighbour:
        eventually(lambda: neighbour.counts().handled == 1)
    assert (neighbour.counts().delivered, waiting.count(), error.count()) == (1, 0, 0)
    assert handled.headers[message_id(1)][RETRIES] == "1"


def test_a_message_that_an_endpoint_tries_again_later_is_delivered_by_us_and_counted_on(
    engine, queue, error, waiting
):
    """All its retries have one count: the endpoint tries once, we twice, and then it is over."""
    queue.insert(1)
    habits = Habits(
        concurrency=1,
        rest=QUICK,
        immediate_retries=1,
        delayed_retries=1,
        delayed_retries_increase=timedelta(milliseconds=1),
    )
    handled = Handled(message_id(0))
    with Neighbour(engine, queue, habits, handled).running():
        eventually(lambda: waiting.count() == 1)
    for _ in range(3):
        eventually(lambda: move(engine, "orders") == (1, 0))
        (row,) = queue.rows()
        queue.take()
        retries = retries_of((parse_headers(row.headers) or {}).get(RETRIES))
        fails = failure(RetryAfter=timedelta(milliseconds=1) if retries < 3 else None)
        received = {"RowVersion": row.row_version, "Id": str(row.id), "Headers": row.headers}
        settle(options(engine), outcome(0, fails=fails, **received))
    assert (handled.calls[message_id(0)], waiting.count(), ids_in(error)) == (2, 0, [message_id(0)])


def test_a_message_of_ours_fails_at_an_endpoint_and_comes_back_by_our_hand(engine, queue, error, waiting):
    """It was sent by our sink, is tried again at once and later, fails,
    and is put back when the handler is mended.
    """
    send(sending(engine, outbox="none"), batch([1, 2]))
    habits = Habits(
        concurrency=2,
        rest=QUICK,
        longest_pause=QUICK,
        immediate_retries=1,
        delayed_retries=2,
        delayed_retries_increase=timedelta(milliseconds=1),
        delivers_delayed=True,
    )
    handled = Handled(message_id(1))
    with Neighbour(engine, queue, habits, handled).running() as neighbour:
        eventually(lambda: error.count() == 1)
        assert handled.calls == Counter({message_id(1): 6, message_id(2): 1})
        assert (neighbour.counts().retried_later, ids_in(error)) == (2, [message_id(1)])
        handled.failing.clear()
        done = failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), "error", Selection())
        assert done.count == 1
        eventually(lambda: neighbour.counts().handled == 2)
    told = handled.headers[message_id(1)]
    assert not [
        name for name in told if name.startswith(("NServiceBus.FailedQ", "NServiceBus.ExceptionInfo"))
    ]
    assert (RETRIES in told, queue.count(), error.count()) == (False, 0, 0)


def test_what_has_failed_at_us_is_put_back_for_an_endpoint(engine, queue, error, waiting):
    """Poison comes back as it was, and the endpoint moves it raw,
    which stops ServiceControl; ours did not.
    """
    settle(options(engine), outcome(1, fails=failure()), outcome(2, Headers="no JSON", Body=None))
    assert {ingestion(row.headers) for row in error.rows()} == {Ingestion(Verdict.TAKEN)}
    failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), "error", Selection())
    assert error.count() == 0
    handled = Handled()
    with Neighbour(engine, queue, HABITS, handled).running() as neighbour:
        eventually(lambda: (neighbour.counts().handled, neighbour.counts().poison) == (1, 1))
    assert handled.calls == Counter([message_id(1)])
    (raw,) = error.rows()
    assert (raw.headers, raw.body, ingestion(raw.headers).verdict) == ("no JSON", b"", Verdict.STOPS)
    done = failed_retry.retry(
        ConnectionOptions.parse({"url": engine.url}), "error", Selection(stopping=True), to="orders"
    )
    assert (done.count, [row.headers for row in queue.rows()]) == (1, ["no JSON"])


def test_a_poison_row_as_an_endpoint_left_it_is_handled_by_us_as_poison(engine, queue, error):
    """Its own error queue is received by a job of ours, whose error queue ServiceControl reads."""
    queue.insert_row(id=row_id(7), headers="no JSON", body=b"x")
    with Neighbour(engine, queue, HABITS).running():
        eventually(lambda: error.count() == 1)
    (raw,) = error.rows()
    ours = engine.create_queue("our error")
    received = {
        "Queue": "error",
        "RowVersion": raw.row_version,
        "Id": str(raw.id),
        "Headers": raw.headers,
        "Body": raw.body,
    }
    assert settle(options(engine, errorQueue="our error"), outcome(1, **received)) == (0, 0, 1)
    (row,) = ours.rows()
    assert (json.loads(row.headers)["NServiceBus.FailedQ"], ingestion(row.headers)) == (
        full(engine, "error"),
        Ingestion(Verdict.TAKEN),
    )
