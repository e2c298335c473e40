"""What only a running query sees stands in the first line of Spark's exception; ``why`` gives it alone."""

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark import SqlQueueSink, why
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.plain_text import shell_word
from tests.support.engines import with_catalog
from tests.support.streams import drain, stream, to_each
from tests.support.subscriptions import SubscriptionRows

NO_JSON = (
    "The headers of a row are not a JSON object of strings: 'no JSON'; filter these rows, or give them "
    "headers of their own."
)
FROM_A_WORKER = "An exception was thrown from the Python worker:"


def failed(action):
    """The lines of an exception of Spark, and what ``why`` says of it."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value).strip().splitlines(), why(caught.value)


@pytest.fixture
def orders(postgresql):
    """A queue with two messages."""
    queue = postgresql.create_queue()
    queue.insert(2)
    return queue


def passed(spark, engine, queue, folder, **options):
    return to_each(stream(spark, engine, queue, **options), folder, lambda *_: None)


def test_a_checkpoint_of_another_queue_is_said_in_the_first_line(spark, postgresql, orders, tmp_path):
    invoices = postgresql.create_queue("invoices")
    drain(passed(spark, postgresql, orders, tmp_path))
    lines, sentence = failed(lambda: drain(passed(spark, postgresql, invoices, tmp_path)))
    database = postgresql.url.rpartition("/")[2]
    assert sentence == (
        f"The checkpoint belongs to the queue orders@[public]@[{database}], not to "
        f"invoices@[public]@[{database}]; give every queue a checkpoint of its own, or correct the option "
        "queue; several sources of a query keep their order."
    )
    assert lines[0].endswith(f" sqlqueue_spark.errors.ConfigurationError: {sentence}")
    traces = [line for line in lines if line.startswith(("  ", "Traceback"))]
    assert traces == []


def test_a_column_that_is_gone_is_said_in_the_first_line(spark, postgresql, orders, tmp_path):
    drain(passed(spark, postgresql, orders, tmp_path))
    again = passed(spark, postgresql, orders, tmp_path)
    orders.execute("ALTER TABLE {table} DROP COLUMN body")
    lines, sentence = failed(lambda: drain(again))
    database = postgresql.url.rpartition("/")[2]
    assert sentence == (
        f"orders@[public]@[{database}] has no column body (bytea); create a table of another name with "
        "sqlqueue create and move the rows, or correct the queue name."
    )
    assert lines[0].endswith(f" sqlqueue_spark.errors.QueueError: {sentence}")


def test_a_stream_that_has_no_reader_is_said_in_the_first_line(spark, postgresql, orders, tmp_path):
    """Spark raises an error of its own where a source makes no reader, and would tell only that."""
    reading = spark.readStream.format("sqlqueue").schema("Id string")
    frame = reading.options(url=postgresql.url, queue=orders.address).load()
    lines, sentence = failed(lambda: drain(to_each(frame, tmp_path, lambda *_: None)))
    assert sentence.startswith("The schema struct<Id:string> is not the queue's; leave out .schema(…)")
    assert lines[0].endswith(f" sqlqueue_spark.errors.ConfigurationError: {sentence}")


def test_what_a_worker_finds_is_said_below_the_name_that_spark_gives_it(spark, postgresql):
    """In a batch Spark says first that it was a worker."""
    queue = postgresql.create_queue()
    rows = spark.createDataFrame([("no JSON", "x")], "Headers string, Body string").coalesce(1)
    to = {"url": postgresql.url, "queue": queue.address, "outbox": "none"}
    lines, sentence = failed(rows.write.format("sqlqueue").mode("append").options(**to).save)
    assert (lines, sentence) == ([FROM_A_WORKER, f"sqlqueue_spark.errors.Unsendable: {NO_JSON}"], NO_JSON)

    peeked = spark.read.format("sqlqueue").options(url=postgresql.url, queue=queue.address).load()
    queue.insert(1)
    assert peeked.rdd.getNumPartitions() == 1  # planned while the table was there
    queue.execute("DROP TABLE {table}")
    lines, sentence = failed(peeked.collect)
    name = with_catalog(postgresql, "orders")
    assert sentence.startswith(f"The table is not there while reading {name} at ")
    assert sentence.endswith(
        f'relation "public.orders" does not exist); create it with: sqlqueue create {shell_word(name)}.'
    )
    assert lines == [FROM_A_WORKER, f"sqlqueue_spark.errors.QueueError: {sentence}"]


def test_an_event_without_a_type_is_said_without_a_stack_trace(spark, postgresql):
    SubscriptionRows(postgresql).create()
    rows = spark.createDataFrame([("x",)], "Body string").coalesce(1)
    to = {"url": postgresql.url, "outbox": "none", "publish": "true"}
    lines, sentence = failed(rows.write.format("sqlqueue").mode("append").options(**to).save)
    assert sentence == (
        "A row is to be published and has no type that a queue could subscribe to; set the option "
        "messageType, give the row the column EventType or the header NServiceBus.EnclosedMessageTypes, or "
        "filter these rows."
    )
    assert lines == [FROM_A_WORKER, f"sqlqueue_spark.errors.Unsendable: {sentence}"]


def test_headers_that_are_no_json_are_said_in_the_first_line_of_a_stream(spark, postgresql, orders, tmp_path):
    postgresql.create_queue("billing")
    frame = stream(spark, postgresql, orders).select(F.lit("no JSON").alias("Headers"), "Body")
    to = {"url": postgresql.url, "queue": "billing", "outbox": "none"}
    to["checkpointLocation"] = str(tmp_path / "checkpoint")
    writer = frame.writeStream.format("sqlqueue").options(**to)
    lines, sentence = failed(lambda: drain(writer))
    assert (sentence, lines[0].endswith(f" sqlqueue_spark.errors.Unsendable: {NO_JSON}")) == (NO_JSON, True)


def test_what_the_sink_finds_is_said_in_the_first_line(spark, postgresql, orders, tmp_path):
    """It is called by a function of the user's, whose line stays in the stack trace below."""

    def of_the_user(batch, number):
        sink(batch, number)

    billing = postgresql.create_queue("billing")
    frame = stream(spark, postgresql, orders).select("Body")
    sink = SqlQueueSink(url=postgresql.url, queue="billing", outbox="none")
    billing.execute("DROP TABLE {table}")
    lines, sentence = failed(lambda: drain(to_each(frame, tmp_path, of_the_user)))
    assert sentence.startswith("There is no queue table billing@[public] to send to; create it with: ")
    assert lines[0].endswith(f" sqlqueue_spark.errors.SqlQueueError: {sentence}")
    assert any(line.endswith(", in of_the_user") for line in lines)


def test_the_sink_adds_no_line_to_the_stack_trace_of_its_callback(spark, postgresql, orders, tmp_path):
    """Nor to what a worker has found."""
    postgresql.create_queue("billing")
    frame = stream(spark, postgresql, orders).select(F.lit("no JSON").alias("Headers"), "Body")
    sink = SqlQueueSink(url=postgresql.url, queue="billing", outbox="none")
    lines, sentence = failed(lambda: drain(to_each(frame, tmp_path, sink)))
    assert (sentence, lines[0].endswith(f" sqlqueue_spark.errors.SqlQueueError: {NO_JSON}")) == (
        NO_JSON,
        True,
    )
    assert [line for line in lines if "/sqlqueue_spark/" in line] == []


def by_sink(frame, folder, **to):
    return to_each(frame, folder, SqlQueueSink(**to))


def by_format(frame, folder, **to):
    writer = frame.writeStream.format("sqlqueue").options(**to)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


@pytest.mark.parametrize("mistake", ["queue", "password", "right"])
def test_a_mistake_of_a_sink_is_said_when_it_is_made(
    mistake, spark, postgresql, orders, guarded_url, tmp_path
):
    """Spark asks a format nothing before the first batch. There it stands in the first line."""
    postgresql.create_queue("Billing")
    where, name = postgresql.url.rpartition("@")[2], with_catalog(postgresql, "Billing")
    missing = (
        "There is no queue table Biling@[public] to send to; create it with: sqlqueue create 'Biling', or "
        "correct the destination or its schema."
    )
    refused = f"The database at {where} refused the login of user 'guarded'; check user and password."
    lacking = (
        f"The user 'guarded' may not send to {name}, for it lacks INSERT, USAGE on the sequence; have a "
        'sender\'s rights granted. GRANT USAGE ON SCHEMA "public" TO "guarded"; GRANT INSERT ON "public".'
        '"Billing" TO "guarded"; GRANT USAGE ON SEQUENCE "public"."Billing_seq_seq" TO "guarded";'
    )
    denied = (
        f"User 'guarded' lacks a right at {where} while sending to {name} (permission denied for table "
        "Billing); a receiver needs SELECT, DELETE (and UPDATE on PostgreSQL, to lock rows) on its "
        "queue, a sender INSERT (and USAGE on the sequence of a PostgreSQL queue)."
    )
    guessed = {"url": re.sub("//guarded:[^@]*@", "//guarded@", guarded_url), "password": "guess"}
    given, said, in_a_batch = {
        "queue": ({"queue": "Biling"}, missing, f"{missing} Nothing of this batch was sent."),
        "password": (guessed, refused, refused),
        "right": ({"url": guarded_url}, lacking, denied),
    }[mistake]
    to = {"url": postgresql.url, "queue": "Billing", "outbox": "none", **given}
    with pytest.raises((QueueError, ConfigurationError), match=f"^{re.escape(said)}$"):
        SqlQueueSink(**to)
    frame = stream(spark, postgresql, orders).select("Headers", "Body")
    lines, sentence = failed(lambda: drain(by_format(frame, tmp_path, **to)))
    assert sentence == in_a_batch
    assert re.search(rf" sqlqueue_spark\.errors\.\w+: {re.escape(sentence)}$", lines[0])
    assert orders.count() == 2


@pytest.mark.parametrize("door", [by_sink, by_format])
def test_a_sink_whose_database_is_down_says_so_in_its_first_batch(
    door, spark, postgresql, orders, tmp_path, caplog
):
    to = {"url": "postgresql://me@127.0.0.1:1/shop", "queue": "Billing", "outbox": "none"}
    frame = stream(spark, postgresql, orders).select("Headers", "Body")
    lines, sentence = failed(lambda: drain(door(frame, tmp_path, **to)))
    assert sentence == (
        "No database answers at 127.0.0.1:1/shop (connection failed: connection to server at "
        '"127.0.0.1", port 1 failed: Connection refused); check host, port and that the server runs.'
    )
    assert re.search(rf" sqlqueue_spark\.errors\.\w+: {re.escape(sentence)}$", lines[0])
    looked = [f"not_looked queue=Billing: {sentence} The first batch looks again."]
    assert [each for each in caplog.messages if each.startswith("not_looked")] == looked * (door is by_sink)
    assert orders.count() == 2


def test_a_misspelt_option_of_a_sink_is_said_when_it_is_made(spark, postgresql, orders, tmp_path):
    """A format says it in its first batch."""
    to = {"url": postgresql.url, "queu": "Billing"}
    said = "There is no option 'queu'; did you mean queue?"
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        SqlQueueSink(**to)
    lines, sentence = failed(lambda: drain(by_format(stream(spark, postgresql, orders), tmp_path, **to)))
    assert (sentence, lines[0].endswith(f" sqlqueue_spark.errors.ConfigurationError: {said}")) == (said, True)
