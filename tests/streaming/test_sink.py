"""The sink under Spark: for ``foreachBatch`` and for ``df.write``,
the same messages in the same queues, each once.
"""

import json
import pickle
import re
from datetime import UTC, datetime, timedelta

import pytest
from chispa import assert_df_equality
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.sink import SqlQueueSink
from tests.conftest import GUARDED_PASSWORD, GUARDED_ROLE
from tests.support.engines import full_address
from tests.support.forwarding import staged
from tests.support.messages import body, headers, message_ids
from tests.support.outboxes import OutboxRows
from tests.support.sending import ids_in
from tests.support.streams import drain, logged, stream, to_each


@pytest.fixture
def sent(engine, queue):
    """The outbox table of the endpoint Sales beside the queue orders, both empty."""
    return create_outbox(engine, "Sales")


def create_outbox(engine, endpoint):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), endpoint)
    return OutboxRows(engine, endpoint)


def orders(spark, numbers, parts=2):
    """Bodies and message ids, in several tasks."""
    rows = [(body(number), each) for number, each in zip(numbers, message_ids(numbers), strict=True)]
    return spark.createDataFrame(rows, "Body binary, MessageId string").repartition(parts)


def write(frame, engine, **options):
    given = {"url": engine.url, "endpoint": "Sales", "queue": "orders", **options}
    frame.write.format("sqlqueue").options(**given).mode("append").save()


def peek(spark, engine, queue):
    return spark.read.format("sqlqueue").options(url=engine.url, queue=queue.address).load()


def refusal(action):
    """The package's sentence within what Spark makes of it."""
    with pytest.raises(PySparkException) as caught:
        action()
    found = re.findall(r"sqlqueue_spark\.errors\.\w+: (.*)$", str(caught.value), re.MULTILINE)
    assert found, str(caught.value)
    return found[-1]


# -- a batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_a_batch_called_again_sends_nothing_and_says_so(spark, engine, queue, sent, outbox, caplog):
    caplog.set_level("INFO", "sqlqueue_spark.send.sent")
    sink = SqlQueueSink(
        url=engine.url, queue="orders", endpoint="Sales", outbox=outbox, messageType="Sales.Placed"
    )
    assert (sink.sent_in(7), sink.details(7)) == (None, "")
    told = []
    for numbers, batch_id in ((500, 7), (500, 7), (600, 8)):
        sink(orders(spark, range(numbers)), batch_id)
        told.append(sink.details(batch_id))
    assert told == ["sent=500 repeated=0", "sent=0 repeated=500", "sent=100 repeated=500"]
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "sent batch=7 sent=500 repeated=0"),
        ("WARNING", "sent batch=7 sent=0 repeated=500"),
        ("WARNING", "sent batch=8 sent=100 repeated=500"),
    ]
    assert (sink.sent_in(7), sink.sent_in(8)) == (Sent(repeated=500), Sent(sent=100, repeated=500))
    assert sorted(ids_in(queue)) == message_ids(range(600))
    assert sent.message_ids() == message_ids(range(600))


def test_what_is_written_twice_is_read_once(spark, engine, queue, sent):
    frame = orders(spark, range(50)).select("*", F.lit(None).alias("Headers"))
    for _ in range(2):
        write(frame, engine)
    read = peek(spark, engine, queue)
    ours = read.select("Body", F.get_json_object("Headers", "$['NServiceBus.MessageId']").alias("MessageId"))
    assert_df_equality(ours, orders(spark, range(50)), ignore_row_order=True, ignore_nullable=True)


def test_what_a_batch_job_writes_stops_no_neighbour(spark, engine, queue, sent):
    frame = spark.sql(
        "SELECT CAST(NULL AS binary) AS Body, '[]' AS Headers, 'm' AS MessageId, 'A.B' AS ReplyToAddress"
    )
    write(frame, engine)
    (row,) = queue.rows()
    found = json.loads(row.headers)
    assert (row.body, found["NServiceBus.ReplyToAddress"]) == (b"", full_address(engine, "A.B"))
    assert {type(each) for each in found.values()} == {str}


def test_every_column_of_a_frame_arrives(spark, engine, queue, sent):
    """A time is a moment whatever the session's time zone; a map and JSON are the same headers."""
    shipping = engine.create_queue("shipping")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(
            """
            SELECT '{"a":1}' AS Body, map('Url', 'a/b', 'Ü', '😀') AS Headers, 'm' AS MessageId,
                   'shipping' AS Destination, '0000000a-0000-4000-8000-00000000000b' AS Id,
                   'k' AS CorrelationId, 'Sales' AS ReplyToAddress,
                   timestamp '2031-07-01 08:00:00.25' AS Expires
            """
        )
        write(frame, engine, messageType="Sales.Shipped, Sales")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    (row,) = shipping.rows()
    assert (str(row.id), row.body, queue.count()) == ("0000000a-0000-4000-8000-00000000000b", b'{"a":1}', 0)
    assert row.expires == datetime(2031, 7, 1, 12, 0, 0, 250_000)  # noqa: DTZ001 -- the column has no zone; it means UTC
    assert {'"Url":"a\\/b"', '"Ü":"\\uD83D\\uDE00"'} <= set(row.headers[1:-1].split(","))
    found = json.loads(row.headers)
    assert {
        name: found["NServiceBus." + name]
        for name in (
            "MessageId",
            "CorrelationId",
            "ReplyToAddress",
            "ContentType",
            "EnclosedMessageTypes",
            "OriginatingEndpoint",
        )
    } == {
        "MessageId": "m",
        "CorrelationId": "k",
        "ReplyToAddress": full_address(engine, "Sales"),
        "ContentType": "application/json",
        "EnclosedMessageTypes": "Sales.Shipped, Sales",
        "OriginatingEndpoint": "Sales",
    }


def test_an_interval_is_a_time_to_be_received(spark, engine, queue, sent):
    frame = spark.sql(
        "SELECT 'x' AS Body, id AS MessageId, i AS TimeToBeReceived FROM VALUES ('a', INTERVAL '1:30' HOUR "
        "TO MINUTE), ('b', NULL) AS t(id, i)"
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    write(frame, engine)
    ends = {json.loads(row.headers)["NServiceBus.MessageId"]: row.expires for row in queue.rows()}
    assert ends["b"] is None
    assert abs(ends["a"] - now - timedelta(hours=1, minutes=30)) < timedelta(minutes=1)
    spans = [json.loads(row.headers).get("NServiceBus.TimeToBeReceived") for row in queue.rows()]
    assert set(spans) == {"01:30:00", None}


# -- refusals -------------------------------------------------------------------------------------


def test_nothing_is_sent_when_a_destination_is_missing(spark, engine, queue, sent):
    """One of three."""
    shipping = engine.create_queue("shipping")
    to = F.element_at(F.array(*map(F.lit, ("orders", "shipping", "nowhere"))), F.hash("MessageId") % 2 + 2)
    frame = orders(spark, range(500)).withColumn("Destination", to)
    assert frame.select("Destination").distinct().count() == 3
    sink = SqlQueueSink(url=engine.url, endpoint="Sales")
    with pytest.raises(QueueError) as caught:
        sink(frame, 1)
    assert str(caught.value) == (
        f"There is no queue table nowhere@[{engine.default_schema}] to send to; create it with: sqlqueue "
        "create 'nowhere', or correct the destination or its schema. Nothing of this batch was sent."
    )
    assert (queue.count(), shipping.count(), sent.ids()) == (0, 0, set())

    # Once it is there, the same sink sends the same batch.
    nowhere = engine.create_queue("nowhere")
    sink(frame, 1)
    gone = sorted([*ids_in(queue), *ids_in(shipping), *ids_in(nowhere)])
    assert gone == message_ids(range(500))
    assert min(queue.count(), shipping.count(), nowhere.count()) > 0


def test_a_missing_outbox_or_unknown_column_is_refused(spark, engine, queue):
    """Before anything is sent."""
    there_is_none = r"^There is no outbox table .* create it with: sqlqueue outbox create"
    with pytest.raises(QueueError, match=there_is_none):
        SqlQueueSink(url=engine.url, queue="orders", endpoint="Sales")
    create_outbox(engine, "Sales")
    sink = SqlQueueSink(url=engine.url, queue="orders", endpoint="Sales")
    with pytest.raises(ConfigurationError, match="A message has no column 'Bodi'; did you mean Body"):
        sink(orders(spark, range(3)).withColumn("Bodi", F.lit("x")), 1)
    unknown = orders(spark, range(3)).withColumn("Bodi", F.lit("x"))
    assert refusal(lambda: write(unknown, engine)) == "A message has no column 'Bodi'; did you mean Body?"
    assert queue.count() == 0


def test_a_queue_cannot_be_overwritten(spark, engine, queue, sent):
    queue.insert(3)
    writer = orders(spark, range(3)).write.format("sqlqueue").mode("overwrite")
    said = refusal(writer.options(url=engine.url, queue="orders", endpoint="Sales").save)
    assert said == (
        "A queue cannot be overwritten: receivers own its rows; write with mode append, "
        f"and empty it with: sqlqueue purge 'orders@[{engine.default_schema}]'."
    )
    assert queue.count() == 3


def test_a_batch_job_cannot_be_atomic_with_a_receive(spark, engine, queue):
    """It has none."""
    said = refusal(
        lambda: write(orders(spark, range(3)), engine, transactionMode="sendsAtomicWithReceive", stream="s")
    )
    assert said == (
        "The option transactionMode is sendsAtomicWithReceive, which only a stream can have; "
        "leave it out of a batch job, where an outbox keeps a repeated write from sending twice."
    )


# -- secrets, pickle ------------------------------------------------------------------------------


def test_a_sink_pickles_and_tells_no_secret(spark, postgresql, guarded_url):
    """As Spark Connect does it: what is called has been pickled, after it was called too."""
    queue = postgresql.create_queue()
    create_outbox(postgresql, "Sales")
    postgresql.execute(f"GRANT INSERT ON orders TO {GUARDED_ROLE}")
    postgresql.execute(f"GRANT USAGE ON SEQUENCE orders_seq_seq TO {GUARDED_ROLE}")
    postgresql.execute(f'GRANT SELECT, INSERT ON "Sales_OutboxData" TO {GUARDED_ROLE}')
    sink = SqlQueueSink(
        url=guarded_url.replace(f":{GUARDED_PASSWORD.replace(' ', '%20')}@", "@"),
        password=GUARDED_PASSWORD,
        queue="orders",
        endpoint="Sales",
        options={"endpoint.Billing.url": guarded_url},
        disableCleanup=True,
    )
    for number in range(2):
        sink = pickle.loads(cloudpickle.dumps(sink))  # noqa: S301 -- as Spark sends it
        sink(orders(spark, range(number * 10, number * 10 + 20)), number)
        assert "sesame" not in f"{sink!r} {sink}"
    assert sorted(ids_in(queue)) == message_ids(range(30))
    postgresql.execute(f"REVOKE INSERT ON orders FROM {GUARDED_ROLE}")
    with pytest.raises(PySparkException, match="User 'guarded' lacks a right") as caught:
        sink(orders(spark, range(100)), 3)
    assert "sesame" not in str(caught.value)


def test_spark_keeps_no_batch_whose_rows_name_their_destinations(spark, postgresql):
    """Nor is one forgotten that the user keeps."""
    postgresql.create_queue("billing")
    sink = SqlQueueSink(url=postgresql.url, endpoint="Sales", outbox="none")
    to = F.lit("billing").alias("Destination")
    batch, kept = (orders(spark, range(count)).select("*", to) for count in (3, 4))
    kept.persist()
    for number, each in enumerate((batch, kept)):
        sink(each, number)
    assert [each.storageLevel.useMemory for each in (batch, kept)] == [False, True]
    kept.unpersist()


# -- forwarding -----------------------------------------------------------------------------------


def forwarded(frame):
    return frame.select("Headers", "Body")


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_a_queue_is_forwarded_and_a_replay_adds_nothing(spark, engine, queue, tmp_path, outbox):
    """The last batch is done a second time, as if Spark had died before it could log it."""
    billing = engine.create_queue("billing")
    create_outbox(engine, "Forward")
    sink = SqlQueueSink(url=engine.url, queue="billing", endpoint="Forward", outbox=outbox)

    def twice(batch, number):
        kept = forwarded(batch).persist()
        sink(kept, number)
        sink(kept, number)

    queue.insert(250)
    drain(to_each(stream(spark, engine, queue, maxMessagesPerTrigger=100), tmp_path, twice))
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(range(250)), 0)
    assert logged(tmp_path, "commits") == [0, 1, 2]


def test_a_queue_is_forwarded_atomically_to_two_queues(spark, engine, queue, tmp_path):
    """With the same headers."""
    there = {name: engine.create_queue(name) for name in ("even", "odd")}
    queue.insert(250)
    sink = SqlQueueSink(url=engine.url, transactionMode="sendsAtomicWithReceive", stream="Forward")

    def split(batch, number):
        to = F.when(batch.RowVersion % 2 == 0, "even").otherwise("odd")
        sink(
            batch.select("Headers", "Body", "RowVersion").withColumn("Destination", to).drop("RowVersion"),
            number,
        )

    options = {"transactionMode": "sendsAtomicWithReceive", "stream": "Forward"}
    frame = stream(spark, engine, queue, maxMessagesPerTrigger=100, minMessagesPerPartition=30, **options)
    drain(to_each(frame, tmp_path, split))
    assert (queue.count(), staged(engine)) == (0, 0)
    for name, numbers in (("odd", range(0, 250, 2)), ("even", range(1, 250, 2))):
        rows = sorted(
            there[name].rows(), key=lambda row: json.loads(row.body)["order"]
        )  # two tasks send at once
        assert [(row.body, json.loads(row.headers)) for row in rows] == [
            (body(number), json.loads(headers(number))) for number in numbers
        ]


def test_an_atomic_sink_behind_another_source_is_refused(spark, engine, queue, tmp_path):
    """The queue stays as it is."""
    engine.create_queue("billing")
    queue.insert(10)
    sink = SqlQueueSink(
        url=engine.url, queue="billing", transactionMode="sendsAtomicWithReceive", stream="Forward"
    )
    writer = to_each(
        stream(spark, engine, queue), tmp_path, lambda batch, number: sink(forwarded(batch), number)
    )
    assert refusal(lambda: drain(writer)) == (
        f"The stage Forward.Outgoing@[{engine.default_schema}] belongs to no batch: "
        "nothing would send what is put there; give the source the sink's stream and database, and "
        "transactionMode sendsAtomicWithReceive. Where the mode or the stream was changed while a batch had "
        "not ended, start once with those of before; where the database has lost what was committed, give a "
        "new checkpoint folder (a state that the query keeps is lost)."
    )
    assert queue.count() == 10
