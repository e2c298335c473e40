"""Whatever a session's settings say of types and texts: functions, handlers, sinks and Delta do the same."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark import SqlQueueSink, functions
from sqlqueue_spark.administration import delayed_tables, outbox_tables
from sqlqueue_spark.handling import Send, each_message, recoverability
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline import as_outgoing, drain_to_delta, read_queue
from sqlqueue_spark.pipeline.delta.delta_stream import DeltaOptions
from tests.support.messages import HEADERS, body, message_id, row_id
from tests.support.outcomes import sent_to
from tests.support.session_settings import SETTINGS, session_settings, under_each_setting
from tests.support.streams import drain, interpreted, read_delta, to_each

SENT = datetime(2025, 11, 20, 8, 15, 30, 123456, tzinfo=UTC)
FAILED = {
    "NServiceBus.FailedQ": "orders",
    "NServiceBus.TimeOfFailure": "2025-11-20 08:15:30:123456 Z",
}


@pytest.fixture
def queues(postgresql):
    options = ConnectionOptions.parse({"url": postgresql.url})
    outbox_tables.create(options, "Shop.Spark")
    queues = [postgresql.create_queue(name) for name in ("orders", "billing", "error", "audit", "other")]
    delayed_tables.create(options, "orders")
    return queues


def handle(message):
    order = message.json()
    if order["order"] == 1:
        raise ValueError("it cannot be done")
    return Send("billing", "Shop.Bill, Shop", order)


def test_ansi_mode_is_on_as_it_is_by_default(spark):
    """What must not fail in the tests of functions is then shown not to fail for anybody."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_functions_say_the_same(spark, setting):
    with session_settings(spark, SETTINGS[setting]):
        rows = [("1", HEADERS, b"\xef\xbb\xbfbody"), ("2", json.dumps(FAILED), b""), ("3", "no JSON", None)]
        frame = spark.createDataFrame(rows, "Id string, Headers string, Body binary")
        told = functions.with_failure_columns(functions.with_message_columns(frame)).withColumns(
            {
                "Text": functions.body_text(),
                "Key": functions.deterministic_id("Id"),
                "Micros": F.unix_micros("SentAt"),
                "FailedMicros": F.unix_micros("TimeOfFailure"),
                "Map": functions.headers_map(),
            }
        )
        types = {name: type_ for name, type_ in told.dtypes if name in ("SentAt", "TimeOfFailure")}
        assert types == {"SentAt": "timestamp", "TimeOfFailure": "timestamp"}
        micros = round(SENT.timestamp() * 1_000_000)
        columns = ("MessageType", "Micros", "FailedQueue", "FailedMicros", "IsFailure", "Text")
        assert [tuple(row[name] for name in columns) for row in told.orderBy("Id").collect()] == [
            ("Shop.Messages.OrderPlaced", micros, None, None, False, "body"),
            (None, None, "orders", micros, True, ""),
            (None, None, None, None, True, None),
        ]
        assert [row.Map for row in told.orderBy("Id").collect()] == [json.loads(HEADERS), FAILED, None]
        assert told.orderBy("Id").collect()[0].Key == "885b0306-0fad-521c-9996-a11aec28153f"


@under_each_setting({"large types": "all"})
def test_a_handler_and_the_sink_do_the_same(spark, postgresql, queues, tmp_path, setting):
    """A message is answered, one is tried again later, and a copy of what was answered goes on."""
    orders, billing, error, audit, other = queues
    orders.insert(3)
    url = postgresql.url
    with session_settings(spark, SETTINGS[setting]):
        handled = read_queue(spark, {"url": url, "queue": "orders"}).transform(
            each_message(handle, queue="orders", immediateRetries=0)
        )
        sink = SqlQueueSink(url=url, endpoint="Shop.Spark", errorQueue="error", auditQueue="audit")
        drain(to_each(handled.transform(recoverability), tmp_path / "handled", sink))
        forward = SqlQueueSink(url=url, endpoint="Shop.Spark", queue="other")
        answers = as_outgoing(read_queue(spark, {"url": url, "queue": "billing"}))
        drain(to_each(answers, tmp_path / "forwarded", forward))
    assert (sent_to(other), sent_to(audit), billing.count(), error.count()) == ([0, 2], [0, 2], 0, 0)
    waiting = postgresql.fetch("SELECT count(*), max(due - now()) < interval '11 s' FROM \"orders.Delayed\"")
    assert waiting == [(1, True)]


@under_each_setting({"timestamps without a zone": "all"})
def test_a_delta_table_may_be_written_on_under_other_settings(spark, postgresql, tmp_path, setting):
    queue = postgresql.create_queue()
    options = DeltaOptions(
        path=str(tmp_path / "delta"), checkpoint=str(tmp_path / "checkpoint"), available_now=True
    )
    for number, settings in enumerate((SETTINGS[setting], {})):
        queue.insert(1, start=number)
        with session_settings(spark, settings), interpreted():
            query = drain_to_delta(spark, {"url": postgresql.url, "queue": "orders"}, options)
            assert query.awaitTermination(60)
    rows = read_delta(spark, tmp_path).orderBy("RowVersion").collect()
    assert [(row.Id, row.MessageId, bytes(row.Body), row.SentAt.astimezone(UTC)) for row in rows] == [
        (str(row_id(n)), message_id(n), body(n), SENT) for n in range(2)
    ]
