"""A function for each message under Spark: what it answers goes out once,
what it raises goes to the error queue, in each mode.
"""

import itertools
import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling import Publish, Reply, Send, each_message
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.declared import jobs
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering
from sqlqueue_spark.send.compose.database_of_address import Places
from tests.support import dotnet
from tests.support.delayed import DelayedRows, move
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import failed_in, sent_to
from tests.support.sending import batch, send
from tests.support.streams import drain, stream, to_each
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

MODES = {
    "receiveOnly": {"outbox": "optimistic", "endpoint": "Shop.Spark"},
    "atomic": {"transactionMode": "sendsAtomicWithReceive", "stream": "Shop.Spark"},
}
MODE_OF_SOURCE = ("transactionMode", "stream")
TEXT = json.dumps(
    {"NServiceBus.MessageId": "{id}", "NServiceBus.ReplyToAddress": "web", "NServiceBus.ConversationId": "c"}
)


@pytest.fixture
def queues(postgresql):
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Shop.Spark")
    return [postgresql.create_queue(name) for name in ("orders", "web", "shipping", "error")]


def place(orders, numbers):
    """Orders whose sender waits for a reply."""
    for number in numbers:
        text = TEXT.replace("{id}", message_id(number))
        orders.insert_row(id=row_id(number), headers=text, body=body(number))


def handler():
    """A function that Spark sends to its workers by value."""

    def handle(message):
        order = message.json()["order"]
        if order % 3 == 0:
            raise ValueError(f"order {order} cannot be done")
        return [
            Reply("Shop.Accepted, Shop", {"order": order}),
            Send("shipping", "Shop.Ship, Shop", message.body),
        ]

    return handle


@pytest.mark.parametrize("mode", MODES)
def test_a_reply_and_a_message_go_out_or_the_order_fails(spark, postgresql, queues, tmp_path, mode):
    orders, web, shipping, error = queues
    place(orders, range(9))
    given = {name: value for name, value in MODES[mode].items() if name in MODE_OF_SOURCE}
    messages = stream(spark, postgresql, orders, **given)
    sink = SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES[mode]})
    drain(
        to_each(
            messages.transform(each_message(handler(), queue="orders", immediateRetries=1)), tmp_path, sink
        )
    )
    good = [number for number in range(9) if number % 3]
    assert (sent_to(web), sent_to(shipping), sent_to(error), orders.count()) == (good, good, [0, 3, 6], 0)
    reply = json.loads(web.rows()[0].headers)
    expected = {
        "RelatedTo": message_id(1),
        "CorrelationId": message_id(1),
        "ConversationId": "c",
        "MessageIntent": "Reply",
        "ReplyToAddress": '"public"."orders"',
    }
    assert {name: reply[f"NServiceBus.{name}"] for name in expected} == expected
    assert {failed["NServiceBus.ExceptionInfo.Message"] for failed in failed_in(error)} == {
        f"order {number} cannot be done" for number in (0, 3, 6)
    }


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("size, count", [(25 << 20, 0), (0, 100_000)], ids=["body", "headers"])
def test_a_large_body_and_100_000_headers_are_handled(spark, postgresql, queues, tmp_path, size, count):
    """The answer has as large a body, and what fails keeps its own. For 100 MB Spark would need 3 GB."""
    orders, _, shipping, error = queues
    more = json.dumps({f"h{number}": f"v{number}" for number in range(count)})
    large = b"0123456789abcdef" * (size // 16)
    for number in range(2):
        orders.insert_row(id=row_id(number), headers=more, body=large + str(number).encode())

    def handle(message):
        if message.body.endswith(b"1"):
            raise ValueError("it cannot be done")
        return Send("shipping", "Shop.Ship, Shop", message.body)

    sink = SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]})
    handled = stream(spark, postgresql, orders, maxBytesPerTrigger="1m").transform(
        each_message(handle, queue="orders", immediateRetries=0)
    )
    drain(to_each(handled, tmp_path, sink))
    assert [row.body for row in shipping.rows()] == [large + b"0"]
    (failed,) = error.rows()
    assert (failed.body, json.loads(more).items() <= json.loads(failed.headers).items()) == (
        large + b"1",
        True,
    )
    assert orders.count() == 0


def test_bytes_that_are_no_text_stop_no_batch_that_reads_bodies_as_text(spark, postgresql, queues, tmp_path):
    """Spark takes them as they are, and anyone who sends may write them."""
    orders, web, _, error = queues
    for number, sent in enumerate([b"a", b"\xff", b"\xfe"]):
        text = TEXT.replace("{id}", message_id(number))
        orders.insert_row(id=row_id(number), headers=text, body=sent)
    as_text = F.col("Body").cast("string")
    messages = stream(spark, postgresql, orders).withColumn("CorrelationId", as_text)
    handled = messages.transform(each_message(lambda message: Reply("T", message.body), queue="orders"))
    told = F.struct(F.lit("shop.Error").alias("ExceptionType"), as_text.alias("Message"))
    failing = handled.withColumn("Failure", F.when(F.col("Body") == F.lit(b"\xfe"), told))
    given = {"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]}
    drain(to_each(failing, tmp_path, SqlQueueSink(options=given)))
    assert sorted(row.body for row in web.rows()) == [b"a", b"\xff"]
    assert [row.body for row in error.rows()] == [b"\xfe"]
    assert failed_in(error)[0]["NServiceBus.ExceptionInfo.Message"] == "\ufffd"
    assert orders.count() == 0


def test_an_audited_copy_says_when_its_handler_was_called(spark, postgresql, queues, tmp_path):
    orders, *_ = queues
    audit = postgresql.create_queue("audit")
    place(orders, [1])

    def handle(_):
        time.sleep(0.25)

    sink = SqlQueueSink(
        options={"url": postgresql.url, "errorQueue": "error", "auditQueue": "audit", **MODES["receiveOnly"]}
    )
    began = datetime.now(UTC)
    drain(
        to_each(
            stream(spark, postgresql, orders).transform(each_message(handle, queue="orders")), tmp_path, sink
        )
    )
    (headers,) = failed_in(audit)
    started, ended = (
        datetime.strptime(headers[f"NServiceBus.Processing{name}"], "%Y-%m-%d %H:%M:%S:%f Z").replace(
            tzinfo=UTC
        )
        for name in ("Started", "Ended")
    )
    assert began < started < ended - timedelta(seconds=0.24) < ended < datetime.now(UTC)


def test_a_message_that_comes_again_is_handled_once(spark, postgresql, queues):
    """Its function is called again, and what it answers then does not count."""
    orders, _, shipping, error = queues
    place(orders, [1, 2])
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    sink = SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]})
    answers = [
        lambda _: Send("shipping", body=b'{"order":1}'),
        lambda _: Send("shipping", body=b'{"order":2}'),
    ]
    for answer in answers:
        sink(messages.transform(each_message(answer, queue="orders")), 0)
    assert (sent_to(shipping), error.count()) == ([1, 1], 0)


def test_a_message_that_ends_or_hangs_its_worker_fails_alone(spark, postgresql, queues, tmp_path):
    """Spark's tasks survive. The function has what Spark brings it, like a broadcast variable."""
    orders, _, shipping, error = queues
    place(orders, range(9))
    known = spark.sparkContext.broadcast({"to": "shipping"})

    def handle(message):
        order = message.json()["order"]
        if order == 3:
            os._exit(1)
        if order == 5:
            sum(itertools.repeat(0))  # in C, where no alarm is heard
        return Send(known.value["to"], "Shop.Ship, Shop", message.body)

    calls = each_message(handle, queue="orders", immediateRetries=0, handlerTimeout="500ms")
    messages = stream(spark, postgresql, orders, maxConcurrency="1").transform(calls)
    sink = SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]})
    drain(to_each(messages, tmp_path, sink))
    assert (sorted(sent_to(shipping)), orders.count()) == ([0, 1, 2, 4, 6, 7, 8], 0)
    names = ("NServiceBus.MessageId", "NServiceBus.ExceptionInfo.ExceptionType")
    assert [tuple(failed[name] for name in names) for failed in failed_in(error)] == [
        (message_id(3), "sqlqueue_spark.errors.WorkerDied"),
        (message_id(5), "sqlqueue_spark.errors.HandlerTimeout"),
    ]


def test_a_reply_and_an_event_relate_as_recorded_ones(spark, postgresql, queues, tmp_path):
    """The recorded command is handled, and the reply compared with that of the .NET endpoint
    that handled one of them.

    The recorded events were published outside of a handler: they relate to no message,
    and begin a conversation.
    """
    orders, *_, _ = queues
    command = next(row for row in dotnet.rows("queue") if "Interop.OrderPlaced" in row.headers)
    orders.insert_row(id=command.id, headers=command.headers, body=command.body)
    replies = postgresql.create_queue("Interop.Recorder")
    sink = SqlQueueSink(options={"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]})
    published = next(
        found for row in dotnet.rows("queue")
        if (found := json.loads(row.headers)).get("NServiceBus.MessageIntent") == "Publish"
    )  # fmt: skip
    types = published["NServiceBus.EnclosedMessageTypes"]
    events = postgresql.create_queue("events")
    SubscriptionRows(postgresql).create().add(events, "Interop.IOrderEvent")
    answer = each_message(
        lambda _: [Reply("Interop.OrderReply, Interop", b"{}"), Publish(types, b"{}")], queue="orders"
    )
    drain(to_each(stream(spark, postgresql, orders).transform(answer), tmp_path, sink))
    (ours,) = [json.loads(row.headers) for row in replies.rows()]
    asked = json.loads(command.headers)
    theirs = next(
        found for row in dotnet.rows("audit")
        if (found := json.loads(row.headers)).get("NServiceBus.MessageIntent") == "Reply"
    )  # fmt: skip
    of_processing = ("Processing", "diagnostics", "NServiceBus.Version")
    assert set(ours) == {name for name in theirs if not any(each in name for each in of_processing)}
    for name in ("ConversationId", "CorrelationId"):
        assert ours[f"NServiceBus.{name}"] == asked[f"NServiceBus.{name}"]
    assert ours["NServiceBus.RelatedTo"] == asked["NServiceBus.MessageId"]
    (event,) = [json.loads(row.headers) for row in events.rows()]
    of_dotnet = {
        "NServiceBus.OpenTelemetry.StartNewTrace",
        "$.diagnostics.originating.hostid",
        "NServiceBus.Version",
    }
    assert set(event) == {*(published.keys() - of_dotnet), "NServiceBus.RelatedTo"}
    for name in ("MessageIntent", "EnclosedMessageTypes", "ContentType"):
        assert event[f"NServiceBus.{name}"] == published[f"NServiceBus.{name}"]
    for name in ("ConversationId", "CorrelationId", "RelatedTo", "ReplyToAddress"):
        assert event[f"NServiceBus.{name}"] == ours[f"NServiceBus.{name}"]


def test_a_frame_without_a_queue_is_refused(spark, postgresql, queues):
    messages = spark.read.format("sqlqueue").options(url=postgresql.url, queue="orders").load()
    with pytest.raises(ConfigurationError, match="each_message needs the column Queue"):
        messages.transform(each_message(lambda _: None))
    with pytest.raises(ConfigurationError, match="each_message needs the column Body"):
        messages.drop("Body").transform(each_message(lambda _: None, queue="orders"))


# -- the job --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_job_handles_what_is_there(spark, postgresql, queues, tmp_path, monkeypatch, capsys, mode):
    orders, _, shipping, error = queues
    place(orders, range(6))
    (tmp_path / "shop_orders.py").write_text(
        "from sqlqueue_spark.handling import Publish, Send\n\n"
        "def handle(message):\n"
        "    if message.json()['order'] == 4:\n"
        "        raise ValueError('no')\n"
        "    event = Publish(['Shop.Odd', 'Shop.Placed, Shop'][message.json()['order'] % 2], message.body)\n"
        "    return [Send('shipping', 'Shop.Ship, Shop', message.body), event]\n"
    )
    reports = postgresql.create_queue("reports")
    SubscriptionRows(postgresql).create().add(reports, "Shop.Placed")
    spark.sparkContext.addPyFile(str(tmp_path / "shop_orders.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    source = {"url": postgresql.url, "queue": "orders", "pollInterval": "100ms"}
    given = {
        "checkpoint": str(tmp_path / "checkpoint"),
        "availableNow": "true",
        "handler": "shop_orders:handle",
    }
    given |= {"delayedRetries": "1", "delayedRetriesIncrease": "5m"}
    sections = {"source": source, "sink": {"errorQueue": "error", **MODES[mode]}, "handle": given}
    waiting = DelayedRows(postgresql, "orders").create()
    totals = jobs.handle.understood(sections).start(spark)
    assert (sent_to(shipping), error.count(), orders.count(), totals.messages) == ([0, 1, 2, 3, 5], 0, 0, 6)
    assert [row.body for row in waiting.rows()] == [body(4)]
    first, batch, _ = capsys.readouterr().out.splitlines()
    assert first == "handling queue=orders"
    assert batch.endswith(" retried=1 unsubscribed=2")
    assert sent_to(reports) == [1, 3, 5]
    waiting.make_due()
    assert move(postgresql, "orders") == (1, 0)
    jobs.handle.understood(sections).start(spark)
    assert (sent_to(error), waiting.count(), orders.count()) == ([4], 0, 0)
    assert capsys.readouterr().out.splitlines()[1].endswith(" failed=1")


def test_the_job_delivers_what_is_due_while_it_runs(spark, postgresql, queues, tmp_path):
    """A message that a .NET endpoint, or an earlier run, has left waiting."""
    _, _, shipping, _ = queues
    waiting = DelayedRows(postgresql, "Shop.Spark").create()
    sink = {"url": postgresql.url, "errorQueue": "error", **MODES["receiveOnly"]}
    past = datetime.now(UTC) - timedelta(minutes=1)
    send(SinkOptions.parse({**sink, "queue": "shipping"}), batch([1], DeliverAt=past))
    source = SourceOptions.parse({"url": postgresql.url, "queue": "orders"})
    given = SinkOptions.parse(sink)
    with delivering(source, Places(given, given)) as delivery:
        eventually(lambda: waiting.count() == 0)
        eventually(lambda: delivery.details() == " delivered=1")
    assert (sent_to(shipping), delivery.details()) == ([1], "")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--handler", "shop"], "handler"),
        (
            ["--handler", "a:b", "--set", "handle.handlerTimeout=soon", "--error-queue", "error"],
            "handlerTimeout",
        ),
        (["--handler", "a:b"], "There is no option errorQueue of the sink"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(tmp_path, arguments, said):
    flags = [
        "--url",
        "postgresql://nobody@127.0.0.1:1/x",
        "--queue",
        "orders",
        "--endpoint",
        "E",
        "--checkpoint",
        str(tmp_path),
    ]
    ran = CliRunner().invoke(jobs.handle, [*flags, *arguments])
    assert (ran.exit_code, said in ran.stderr) == (2, True), ran.stderr


def test_a_module_that_is_missing_is_named(spark, postgresql, queues, tmp_path):
    source = {"url": postgresql.url, "queue": "orders"}
    given = {"checkpoint": str(tmp_path / "checkpoint"), "handler": "no_such_module:handle"}
    sections = {"source": source, "sink": {"errorQueue": "error", **MODES["receiveOnly"]}, "handle": given}
    with pytest.raises(
        (ConfigurationError, PySparkException), match="The module of the function no_such_module:handle"
    ):
        jobs.handle.understood(sections).start(spark)


def flaky(folder):
    """A function that raises when it is first called for a message, and the next time does not."""

    def handle(message):
        called = folder / message.row_id
        if not called.exists():
            called.touch()
            raise ValueError("not yet")
        return Send("shipping", "Shop.Ship, Shop", message.body)

    return handle


@pytest.mark.parametrize("persists", [True, False])
def test_a_batch_for_two_sinks_is_handled_once_where_it_is_persisted(
    spark, postgresql, queues, tmp_path, caplog, persists
):
    """Each sink reads the batch, so without that each calls the function,
    which may answer otherwise: that is warned of.
    """
    orders, _, shipping, error = queues
    place(orders, range(4))
    given = {"url": postgresql.url, "endpoint": "Shop.Spark", "errorQueue": "error"}
    done, failed = SqlQueueSink(options=given), SqlQueueSink(options=given)

    def both(batch, number):
        if persists:
            batch.persist()
        try:
            done(batch.filter("Failure IS NULL"), number)
            failed(batch.filter("Failure IS NOT NULL"), number)
        finally:
            batch.unpersist()

    handled = each_message(flaky(tmp_path), queue="orders", immediateRetries=0)
    drain(to_each(stream(spark, postgresql, orders).transform(handled), tmp_path, both))
    said = [each.message.partition(":")[0] for each in caplog.records if "computed_again" in each.message]
    found = (sent_to(shipping), sent_to(error), orders.count(), said)
    assert found == (
        [],
        [0, 1, 2, 3] if persists else [],
        0,
        [] if persists else ["outcomes_computed_again batch=0"],
    )
