"""``df.writeStream.format("sqlqueue")``: each message once, as the sink sends it;
and queues named where Spark has paths.
"""

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.engines import without_place
from tests.support.messages import message_ids, row_ids
from tests.support.outboxes import OutboxRows
from tests.support.sending import ids_in
from tests.support.streams import drain, logged, stream


@pytest.fixture
def orders(postgresql):
    """A queue with 30 messages."""
    queue = postgresql.create_queue("orders")
    queue.insert(30)
    return queue


@pytest.fixture
def billing(postgresql):
    """A queue, and the outbox of the endpoint Sales beside it, both empty."""
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    return postgresql.create_queue("Billing")


def to_queue(spark, engine, source, folder, **options):
    """A writer of a queue's messages to the queue Billing, in batches of ten."""
    messages = stream(spark, engine, source, maxMessagesPerTrigger=10).drop("RowVersion", "Id", "Recoverable")
    given = {
        "url": engine.url,
        "queue": "Billing",
        "endpoint": "Sales",
        "checkpointLocation": str(folder / "checkpoint"),
        **options,
    }
    return messages.writeStream.format("sqlqueue").options(**given)


def refusal(writer):
    """The package's sentence within what Spark makes of it."""
    with pytest.raises(PySparkException) as caught:
        drain(writer)
    return re.findall(r"sqlqueue_spark\.errors\.\w+: (.*)$", str(caught.value), re.MULTILINE)[-1]


def test_each_message_of_a_stream_goes_out_once_and_spark_says_how_many(
    spark, postgresql, orders, billing, tmp_path
):
    query = drain(to_queue(spark, postgresql, orders, tmp_path))
    assert ids_in(billing) == message_ids(range(30))
    assert orders.count() == 0
    assert [each.sink.numOutputRows for each in query.recentProgress if each.numInputRows] == [10, 10, 10]
    assert OutboxRows(postgresql, "Sales").message_ids() == message_ids(range(30))


def test_a_batch_that_spark_runs_again_is_not_sent_again(spark, postgresql, orders, billing, tmp_path):
    drain(to_queue(spark, postgresql, orders, tmp_path))
    newest = logged(tmp_path, "commits")[-1]
    for file in (tmp_path / "checkpoint" / "commits").glob(f"*{newest}*"):
        file.unlink()
    orders.insert(30)  # the rows of the last batch are back, beside others that were sent
    drain(to_queue(spark, postgresql, orders, tmp_path))
    assert sorted(ids_in(billing)) == message_ids(range(30))
    assert orders.count() == 0


def test_destinations_are_found_for_each_message(spark, postgresql, orders, billing, tmp_path):
    shipping = postgresql.create_queue("Shipping")
    named = stream(spark, postgresql, orders).drop("Id", "Recoverable")
    named = named.withColumn("Destination", F.when(F.col("RowVersion") % 2 == 0, "Shipping")).drop(
        "RowVersion"
    )
    writer = named.writeStream.format("sqlqueue").options(
        url=postgresql.url, queue="Billing", endpoint="Sales", checkpointLocation=str(tmp_path / "checkpoint")
    )
    drain(writer)
    assert ids_in(shipping) == message_ids(range(1, 30, 2))
    assert ids_in(billing) == message_ids(range(0, 30, 2))


REFUSED = {
    "an atomic mode": (
        {"transactionMode": "sendsAtomicWithReceive", "stream": "Forward"},
        (
            "The option transactionMode is sendsAtomicWithReceive, for which the sink must know the batch "
            "before its tasks begin; write with foreachBatch(SqlQueueSink(…)), "
            "or take receiveOnly with an outbox."
        ),
    ),
    "a stage": (
        {"stream": "Forward"},
        (
            "The option stream is 'Forward', by which SqlQueueSink finds what an atomic pipeline has staged, "
            "and this writer does not; name the outbox by the option endpoint, or write with "
            "foreachBatch(SqlQueueSink(…))."
        ),
    ),
    "no outbox table": (
        {"endpoint": "Nobody"},
        (
            'There is no outbox table "public"."Nobody_OutboxData" in the database of Home; with that '
            "database's url (SQLQUEUE_URL or --url) create it with: sqlqueue outbox create 'Nobody', or set "
            "outbox to none. Nothing of this batch was sent."
        ),
    ),
    "no queue table": (
        {"queue": "nowhere"},
        (
            "There is no queue table nowhere@[public] to send to; create it with: "
            "sqlqueue create 'nowhere', or correct the destination or its schema. "
            "Nothing of this batch was sent."
        ),
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_sent(
    which, spark, postgresql, orders, billing, tmp_path
):
    options, said = REFUSED[which]
    assert without_place(refusal(to_queue(spark, postgresql, orders, tmp_path, **options))) == said
    assert (billing.count(), orders.count()) == (0, 30)


def test_a_queue_is_not_overwritten_with_each_batch(spark, postgresql, orders, billing, tmp_path):
    messages = stream(spark, postgresql, orders).groupBy("Body").count().drop("count")
    given = {
        "url": postgresql.url,
        "queue": "Billing",
        "outbox": "none",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    writer = messages.writeStream.format("sqlqueue").outputMode("complete").options(**given)
    assert refusal(writer) == (
        "A queue cannot be overwritten with each batch: receivers own its rows; write with outputMode append."
    )


def test_a_path_names_the_queue(spark, postgresql, orders, billing):
    """For those who write ``load("orders")`` and ``save("Billing")``."""
    options = {"url": postgresql.url, "endpoint": "Sales", "messageType": "Sales.Placed"}
    read = spark.read.format("sqlqueue").option("url", postgresql.url).load("orders")
    assert sorted(row.Id for row in read.collect()) == [str(each) for each in row_ids(range(30))]
    read.select("Headers", "Body").write.format("sqlqueue").options(**options).mode("append").save("Billing")
    assert sorted(ids_in(billing)) == message_ids(range(30))


def test_two_names_of_the_queue_are_refused(spark, postgresql, orders):
    with pytest.raises(PySparkException) as caught:
        spark.read.format("sqlqueue").options(url=postgresql.url, queue="Billing").load("orders").collect()
    assert (
        "Both 'orders', the path that is loaded or written, and the option queue ('Billing') name "
        "the queue; drop one."
    ) in str(caught.value)
