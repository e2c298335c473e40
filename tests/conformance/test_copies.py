"""A received row may go to several queues. Each copy has its own fate, whatever chunk or try it is in."""

import json
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import failed_retry, outbox_tables
from sqlqueue_spark.engines.open_connection import open_reader
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.original_rows import with_original_rows
from sqlqueue_spark.send.sent import Sent
from tests.support import messages
from tests.support.engines import with_catalog
from tests.support.messages import body, message_ids, row_id
from tests.support.outcomes import failed_in
from tests.support.sending import batch, ids_in, options, send, sent_all
from tests.support.stored import create_home
from tests.support.subscriptions import SubscriptionRows


@pytest.fixture
def orders(engine):
    """The queue in which the rows were received; beside it are the error queue and the outbox of Sales."""
    return create_home(engine, "Sales", "orders")


@pytest.fixture
def near(engine, orders):
    return engine.create_queue("near")


@pytest.fixture(params=["optimistic", "pessimistic"])
def given(request, engine, near):
    return options(engine, outbox=request.param, errorQueue="error")


@pytest.fixture
def error(engine, orders):
    return engine.queue("error")


def copies(*to: str, number: int = 1) -> pa.RecordBatch:
    """The row of this number, as it was received, once for each queue."""
    row = {
        "Queue": "orders",
        "RowVersion": number,
        "Id": str(row_id(number)),
        "Headers": messages.headers(number),
        "Body": body(number),
    }
    return pa.RecordBatch.from_pylist([{**row, "Destination": each} for each in to])


def plain(*to: str) -> pa.RecordBatch:
    """A message that was not received, once for each queue."""
    return batch([1] * len(to), Destination=list(to))


# -- an address with the own catalog --------------------------------------------------------------


@pytest.mark.parametrize("rows", [copies, plain])
def test_what_failed_for_an_address_with_its_catalog_is_not_delivered_when_its_table_appears(
    engine, near, error, given, rows
):
    """It would be in error and delivered."""
    both = rows(with_catalog(engine, "late"), "near")
    assert sent_all(given, both) == Sent(sent=1, failed=1)
    late = engine.create_queue("late")
    assert sent_all(given, both) == Sent(repeated=2)
    assert (ids_in(near), late.count(), error.count()) == (message_ids([1]), 0, 1)


@pytest.mark.parametrize("rows", [copies, plain])
def test_what_went_to_an_address_with_its_catalog_does_not_fail_when_its_table_is_gone(
    engine, near, error, given, rows
):
    late = engine.create_queue("late")
    both = rows(with_catalog(engine, "late"), "near")
    assert sent_all(given, both) == Sent(sent=2)
    assert ids_in(late) == message_ids([1])
    late.execute("DROP TABLE {table}")
    assert sent_all(given, both) == Sent(repeated=2)
    assert (ids_in(near), error.count()) == (message_ids([1]), 0)


@pytest.mark.parametrize("rows", [copies, plain])
def test_an_address_with_its_catalog_is_known_without_it(engine, near, error, given, rows):
    """Whether its table is there or not."""
    full = with_catalog(engine, "late")
    short = full.rpartition("@")[0]
    assert sent_all(given, rows(full, "near")) == Sent(sent=1, failed=1)
    assert sent_all(given, rows(short, "near")) == Sent(repeated=2)
    late = engine.create_queue("late")
    assert [sent_all(given, rows(each, "near")) for each in (full, short)] == [Sent(repeated=2)] * 2
    assert (ids_in(near), late.count(), error.count()) == (message_ids([1]), 0, 1)


# -- copies that fail -----------------------------------------------------------------------------


def test_equal_copies_that_are_refused_fail_once(near, error, given):
    rows = copies("gone", "gone", "near")
    assert sent_all(given, rows) == Sent(sent=1, repeated=1, failed=1)
    assert sent_all(given, rows) == Sent(repeated=3)
    assert (ids_in(near), [each["NServiceBus.MessageId"] for each in failed_in(error)]) == (
        message_ids([1]),
        message_ids([1]),
    )


def test_only_rows_that_fail_are_read_again(engine, orders, near, error):
    """As they were received: a transform has changed them. Rows between them are none of its business."""
    given = options(engine, errorQueue="error")
    orders.insert(400)
    failing = {1, 200, 400}
    rows = [
        {
            "Queue": "orders",
            "RowVersion": each.row_version,
            "Id": str(each.id),
            "Headers": each.headers,
            "Body": b"changed",
            "Destination": "gone" if each.row_version in failing else "near",
        }
        for each in orders.rows()
    ]
    read: list[int] = []

    class Counting:
        """A reader that notes the numbers of the rows that it reads."""

        def __init__(self, target):
            self.reader = open_reader(target)

        def batches(self, *statement):
            for each in self.reader.batches(*statement):
                read.extend(each["RowVersion"].to_pylist())
                yield each

        def close(self):
            self.reader.close()

    with mock.patch("sqlqueue_spark.send.deliver.original_rows.open_reader", Counting):
        assert sent_all(given, pa.RecordBatch.from_pylist(rows)) == Sent(sent=397, failed=3)
    assert sorted(read) == sorted(failing)
    assert sorted(row.body for row in error.rows()) == sorted(body(number - 1) for number in failing)
    assert {row.body for row in near.rows()} == {b"changed"}


def test_rows_that_fail_and_are_large_are_read_and_written_in_parts(engine, orders, near, error):
    """A transform made them small, so that many go out together; here a chunk has room for four."""
    given = options(engine, errorQueue="error")
    orders.insert(16)
    orders.execute("UPDATE {table} SET Body = convert_to(repeat('x', 250000) || Id, 'UTF8')")
    whole = {row.body for row in orders.rows()}
    rows = received(orders, Body=b"small").append_column(
        "Destination", pa.array(["gone", "gone", "near", "gone"] * 4)
    )
    sizes: list[int] = []

    def noting(*given):
        made = with_original_rows(*given)
        sizes.append(made.frame["Body"].nbytes)
        return made

    with (
        mock.patch("sqlqueue_spark.send.deliver.sender.with_original_rows", noting),
        mock.patch("sqlqueue_spark.send.deliver.original_rows.CHUNK_BYTES", 1_100_000),
    ):
        assert sent_all(given, rows) == Sent(sent=4, failed=12)
    assert max(sizes) <= 1_100_000
    assert {row.body for row in near.rows()} == {b"small"}
    failed = [row.body for row in error.rows()]
    assert (len(failed), len(whole & set(failed))) == (12, 12)
    assert sent_all(given, rows) == Sent(repeated=16)


def test_a_chunk_for_many_tables_goes_out_in_parts(engine, orders, near):
    """Each table takes locks, of which a server has some thousands. Here a transaction writes into two."""
    queues = [engine.create_queue(f"to{number}") for number in range(5)]
    rows = batch(range(10), Destination=[f"to{number % 5}" for number in range(10)])
    with mock.patch("sqlqueue_spark.send.deliver.sender._MOST_TABLES", 2):
        assert [send(options(engine), rows) for _ in range(2)] == [(10, 0), (0, 10)]
    assert [ids_in(each) for each in queues] == [message_ids([number, number + 5]) for number in range(5)]


# -- copies that are put back ---------------------------------------------------------------------


def received(queue, **more):
    """The rows that stand in a queue as they are received."""
    rows = [
        {
            "Queue": "orders",
            "RowVersion": each.row_version,
            "Id": str(each.id),
            "Headers": each.headers,
            "Body": each.body,
            **more,
        }
        for each in queue.rows()
    ]
    return pa.RecordBatch.from_pylist(rows)


def put_back(engine, queue):
    """What stands in the queue is settled, and what has failed is put back."""
    queue.execute("DELETE FROM {table}")
    return failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), "error", Selection()).count


PUBLISHED = "Shop.Messages.OrderPlaced"


@pytest.mark.parametrize("by", ["option", "column"])
def test_a_copy_of_an_event_that_is_put_back_reaches_the_subscriber_that_was_gone(
    engine, orders, near, error, by
):
    """It is no event any more, also where all rows are."""
    routing = SubscriptionRows(engine).create()
    late = engine.create_queue("late")
    for each in (near, late):
        routing.add(each, PUBLISHED)
    late.execute("DROP TABLE {table}")
    sink = {"url": engine.url, "endpoint": "Sales", "errorQueue": "error"}
    given = SinkOptions.parse({**sink, **({"publish": "true"} if by == "option" else {})})
    types = {"EventType": PUBLISHED} if by == "column" else {}
    orders.insert(2)
    assert sent_all(given, received(orders, **types)) == Sent(sent=2, failed=2)
    late = engine.create_queue("late")
    assert put_back(engine, orders) == 2
    assert sent_all(given, received(orders, **types)) == Sent(sent=2)
    assert (ids_in(near), ids_in(late), error.count()) == (message_ids(range(2)), message_ids(range(2)), 0)


def test_a_copy_that_is_put_back_reaches_its_queue_alone_whatever_its_headers_are(
    engine, orders, near, error, given
):
    """A time like this goes to no error queue as it is, so the headers as they were stand there aside.

    The outbox has forgotten what went: errors are put back after weeks, too.
    """
    told = {**json.loads(messages.headers(1)), "NServiceBus.TimeSent": "2026-11-29T06:00:00Z"}
    orders.insert_row(id=row_id(1), headers=json.dumps(told), body=body(1))
    late = engine.create_queue("late")
    late.execute("DROP TABLE {table}")
    both = pa.concat_batches([received(orders, Destination=each) for each in ("near", "late")])
    assert sent_all(given, both) == Sent(sent=1, failed=1)
    late = engine.create_queue("late")
    outbox_tables.cleanup(ConnectionOptions.parse({"url": engine.url}), "Sales", timedelta())
    assert put_back(engine, orders) == 1
    again = [received(orders, Destination=each) for each in ("near", "late")]
    sent_all(given, pa.concat_batches(again))
    assert (near.count(), late.count(), error.count()) == (1, 1, 0)
