# Databricks notebook source
# MAGIC %md
# MAGIC # Send with an outbox, and forward atomically
# MAGIC
# MAGIC Rows become messages in a queue table. Sending them again sends nothing. Then the messages go to
# MAGIC another queue, in the transaction in which they are received.
# MAGIC
# MAGIC The cluster needs Spark 4.2 and the wheel of this package with its extra `[sqlserver]` or
# MAGIC `[postgresql]`: `%pip install '/path/to/sqlqueue_spark-….whl[…]'`, for it is on no
# MAGIC index. Parameters are widgets; outside of Databricks they are environment variables, for example
# MAGIC `SQLQUEUE_URL`. The password is a secret (`scope/key`), or `SQLQUEUE_PASSWORD`. It is given as an
# MAGIC option alone, so it stands in no url, no Spark setting and no output.

# COMMAND ----------

import os
from pathlib import Path


def parameter(name: str, default: str = "") -> str:
    """The widget of this name where there are widgets, else the environment variable SQLQUEUE_<NAME>."""
    try:
        widgets = dbutils.widgets
    except NameError:
        return os.environ.get(f"SQLQUEUE_{name.upper()}", default)
    widgets.text(name, default)
    return widgets.get(name)


def own_folder() -> str:
    """Your folder: in your home, closed to others. On Databricks below /Users; a volume is safer there."""
    if "dbutils" in globals():
        return f"/Users/{spark.sql('SELECT current_user()').first()[0]}/sqlqueue"
    made = Path.home() / "sqlqueue"
    made.mkdir(mode=0o700, exist_ok=True)
    return str(made)


def password() -> str:
    """The secret that the widget password_secret names as scope/key, else SQLQUEUE_PASSWORD."""
    scope, _, key = parameter("password_secret").partition("/")
    return dbutils.secrets.get(scope, key) if key else os.environ.get("SQLQUEUE_PASSWORD", "")


billing, archive = parameter("billing", "NotebookBilling"), parameter("archive", "NotebookArchive")
given = {"url": parameter("url"), "user": parameter("user"), "password": password()}
connection = {name: value for name, value in given.items() if value}

if "spark" not in globals():  # outside of Databricks there is no session yet
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
folder = parameter("folder") or own_folder()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Two queues and an outbox
# MAGIC
# MAGIC Tables that are there stay as they are. The outbox has a name of its own: in a shared one, ids that
# MAGIC another pipeline has sent would count as sent.

# COMMAND ----------

from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.options import ConnectionOptions

ENDPOINT = "Notebook.Sender"
options = ConnectionOptions.parse(connection)
print(*(made.table for made in queue_tables.create(options, [billing, archive])), sep="\n")
print(outbox_tables.create(options, ENDPOINT).table)


def length(queue: str) -> int:
    """How many messages are in a queue."""
    return queue_tables.length(options, queue).rows


# COMMAND ----------

# MAGIC %md
# MAGIC ## Send
# MAGIC
# MAGIC A message is a row with a `Body`. Its id is made of its key, so one order line is always the same
# MAGIC message. Missing headers are filled in.

# COMMAND ----------

from pyspark.sql import functions as F

from sqlqueue_spark.functions import deterministic_id, message_id

lines = spark.range(1000).select(
    (F.col("id") / 4).cast("int").alias("order"),
    (F.col("id") % 4).alias("line"),
    F.lit("APPLE-1KG").alias("sku"),
)
messages = lines.select(deterministic_id("order", "line"), F.to_json(F.struct("*")).alias("Body"))


def send_lines() -> None:
    """Send all lines, as often as this is called."""
    to = {"queue": billing, "endpoint": ENDPOINT, "messageType": "Sales.LinePlaced, Sales"}
    messages.write.format("sqlqueue").mode("append").options(**connection, **to).save()


send_lines()
sent = length(billing)
print(f"{sent} messages in {billing}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The same batch again
# MAGIC
# MAGIC As after a crash, when it is not known how much was sent. The outbox has seen every id, so nothing is
# MAGIC sent.

# COMMAND ----------

send_lines()
ids = outbox_tables.report(options, ENDPOINT).found.rows
print(f"{length(billing)} messages in {billing}, {ids} ids in the outbox")
assert length(billing) == sent

# COMMAND ----------

# MAGIC %md
# MAGIC ## Forward atomically
# MAGIC
# MAGIC In one database no outbox is needed: one transaction sends the messages of a batch and deletes those
# MAGIC that it received. At every moment a message is in one of the two queues.

# COMMAND ----------

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.pipeline import as_outgoing, read_queue, send

atomic = {**connection, "transactionMode": "sendsAtomicWithReceive", "stream": "NotebookForward"}
received = read_queue(spark, {**atomic, "queue": billing})
sink = SqlQueueSink(queue=archive, options=atomic)
query = send(as_outgoing(received), sink, f"{folder}/checkpoints/{billing}-to-{archive}", available_now=True)
query.awaitTermination()
print(f"{length(billing)} messages in {billing}, {length(archive)} in {archive}")

# COMMAND ----------

# MAGIC %md
# MAGIC Their ids have come along: a message keeps its id from queue to queue.

# COMMAND ----------

arrived = spark.read.format("sqlqueue").options(**connection, queue=archive).load()
missing = messages.select("MessageId").subtract(arrived.select(message_id()))
print(f"{missing.count()} of the messages are missing in {archive}")
