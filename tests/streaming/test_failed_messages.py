"""Frames of outcomes under Spark: each received message sends all that it sends,
or goes to the error queue, in each mode.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions
from tests.support.delayed import DelayedRows
from tests.support.messages import message_id
from tests.support.streams import drain, stream, to_each

MODES = {
    "receiveOnly": {"outbox": "pessimistic", "endpoint": "Shop.Spark"},
    "atomic": {"transactionMode": "sendsAtomicWithReceive", "stream": "Shop.Spark"},
    "none": {"transactionMode": "none", "outbox": "none"},
}
MODE_OF_SOURCE = ("transactionMode", "stream")
OUTGOING = """
    array(
        named_struct('Destination', 'billing', 'Body', Body, 'MessageId', concat('bill-', RowVersion)),
        named_struct('Destination', 'shipping', 'Body', Body, 'MessageId', concat('ship-', RowVersion))
    )
"""
#: Every third message fails.
FAILURE = """
    IF(RowVersion % 3 = 0,
       named_struct('ExceptionType', 'shop.OutOfStock', 'Message', 'nothing left',
                    'Data', map('the "article"', 'é/7')), NULL)
"""


@pytest.fixture
def queues(postgresql):
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Shop.Spark")
    return [postgresql.create_queue(name) for name in ("orders", "billing", "shipping", "error")]


def handled(messages):
    """Two messages out for each message in, by SQL."""
    return messages.withColumns(
        {"Queue": F.lit("orders"), "Outgoing": F.expr(OUTGOING), "Failure": F.expr(FAILURE)}
    )


def sink(postgresql, mode, **more):
    return SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES[mode], **more})


def ids(queue):
    return sorted(json.loads(row.headers)["NServiceBus.MessageId"] for row in queue.rows())


def test_outcomes_need_an_outbox_or_an_atomic_source(spark, postgresql, queues):
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    with pytest.raises(ConfigurationError, match="set outbox to optimistic"):
        sink(postgresql, "none")(handled(messages), 0)


@pytest.mark.parametrize("mode", ["receiveOnly", "atomic"])
def test_each_message_sends_all_or_fails(spark, postgresql, queues, tmp_path, mode):
    orders, billing, shipping, error = queues
    orders.insert(9)
    given = {name: value for name, value in MODES[mode].items() if name in MODE_OF_SOURCE}
    sends = sink(postgresql, mode)
    drain(to_each(handled(stream(spark, postgresql, orders, **given)), tmp_path, sends))
    good = [number for number in range(1, 10) if number % 3]
    assert (ids(billing), ids(shipping)) == (
        [f"bill-{each}" for each in good],
        [f"ship-{each}" for each in good],
    )
    assert (ids(error), orders.count()) == ([message_id(each - 1) for each in (3, 6, 9)], 0)
    told = [json.loads(row.headers) for row in error.rows()]
    assert {each["NServiceBus.ExceptionInfo.ExceptionType"] for each in told} == {"shop.OutOfStock"}
    assert {each['NServiceBus.ExceptionInfo.Data.the "article"'] for each in told} == {"é/7"}


@pytest.mark.parametrize("mode", ["receiveOnly", "atomic"])
def test_a_failure_without_outgoing_passes_the_others_on(spark, postgresql, queues, tmp_path, mode):
    """The message itself is what goes out: a pipeline that forwards, and marks what it cannot."""
    orders, billing, _, error = queues
    orders.insert(9)
    given = {name: value for name, value in MODES[mode].items() if name in MODE_OF_SOURCE}
    marked = stream(spark, postgresql, orders, **given).withColumns(
        {"Queue": F.lit("orders"), "Failure": F.expr(FAILURE)}
    )
    drain(to_each(marked, tmp_path, sink(postgresql, mode, queue="billing")))
    assert ids(billing) == [message_id(number - 1) for number in range(1, 10) if number % 3]
    assert (ids(error), orders.count()) == ([message_id(each - 1) for each in (3, 6, 9)], 0)


def test_a_batch_called_again_sends_nothing(spark, postgresql, queues):
    """Whatever it would send now."""
    orders, billing, _, error = queues
    orders.insert(9)
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    sends = sink(postgresql, "receiveOnly")
    sends(handled(messages), 0)
    details = [sends.details(0)]
    sends(handled(messages).withColumn("Failure", F.lit(None)), 0)
    details.append(sends.details(0))
    assert details == ["sent=12 repeated=0 handled=6 failed=3", "sent=0 repeated=9"]
    assert (billing.count(), error.count()) == (6, 3)


def test_a_frame_of_outcomes_needs_an_error_queue(spark, postgresql, queues):
    orders, *_ = queues
    orders.insert(1)
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    with pytest.raises(ConfigurationError, match="there is no option errorQueue"):
        SqlQueueSink(options={"url": postgresql.url, **MODES["receiveOnly"]})(handled(messages), 0)


#: Each field that a failure may have, of the types that SQL gives them.
WHOLE = """
    named_struct('exceptiontype', IF(RowVersion = 1, NULL, 'shop.OutOfStock'),
        'Message', 'a\\nb \\u0000 "é" \U0001f600',
        'StackTrace', 'at shop', 'InnerExceptionType', NULL, 'HelpLink', 'https://shop/7', 'Source', 'shop',
        'Data', map('a/b', '"', 'none', NULL), 'TimeOfFailure', TIMESTAMP '2026-03-08 06:59:59.123456Z',
        'RetryAfter', IF(RowVersion = 3, {delay}, NULL), 'Unrecoverable', true)
"""


@pytest.mark.parametrize(
    "delay, milliseconds",
    [
        ("INTERVAL '200 01:02:03.456' DAY TO SECOND", 17_283_723_456),
        ("INTERVAL '5' HOUR", 18_000_000),
        ("INTERVAL '-5' MINUTE", 0),
    ],
)
def test_each_field_of_a_failure_is_told_as_it_was_given(spark, postgresql, queues, delay, milliseconds):
    """Also in a time zone whose clocks are put forward within the delay."""
    orders, *_, error = queues
    waiting = DelayedRows(postgresql, "orders")
    waiting.create()
    orders.insert(3)
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    failing = messages.withColumns({"Queue": F.lit("orders"), "Failure": F.expr(WHOLE.format(delay=delay))})
    before = datetime.now(UTC)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        sink(postgresql, "receiveOnly", queue="billing")(failing, 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    told = sorted(
        (json.loads(row.headers) for row in error.rows()), key=lambda each: each["NServiceBus.MessageId"]
    )
    begin = "NServiceBus.ExceptionInfo."
    whole = {name.removeprefix(begin): value for name, value in told[1].items() if name.startswith(begin)}
    assert whole == {
        "ExceptionType": "shop.OutOfStock",
        "Message": 'a\nb  "é" \U0001f600',
        "StackTrace": "at shop",
        "HelpLink": "https://shop/7",
        "Source": "shop",
        "Data.a/b": '"',
    }
    assert told[1]["NServiceBus.TimeOfFailure"] == "2026-03-08 06:59:59:123456 Z"
    assert told[0]["NServiceBus.ExceptionInfo.ExceptionType"] == "Failure"
    (late,) = waiting.rows()
    assert 0 <= (late.due - before) / timedelta(milliseconds=1) - milliseconds < 60_000
