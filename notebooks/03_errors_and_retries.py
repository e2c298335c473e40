# Databricks notebook source
# MAGIC %md
# MAGIC # Failed messages: an archive of the error queue
# MAGIC
# MAGIC Some messages fail and go to an error queue. A Delta table keeps each of them, also when they have
# MAGIC left the queue. A query shows what failed, why and when.
# MAGIC
# MAGIC The cluster needs Spark 4.2 and the wheel of this package with its extras `[sqlserver,notebooks]` or
# MAGIC `[postgresql,notebooks]`: `%pip install '/path/to/sqlqueue_spark-….whl[…]'`, for it is
# MAGIC on no index. Parameters are widgets; outside of Databricks they are environment variables, for example
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


orders, error = parameter("orders", "NotebookOrders"), parameter("error", "NotebookError")
unit = parameter("unit", "minute")
given = {"url": parameter("url"), "user": parameter("user"), "password": password()}
connection = {name: value for name, value in given.items() if value}

if "spark" not in globals():  # outside of Databricks there is no session yet
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
folder = parameter("folder") or own_folder()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Some messages that fail
# MAGIC
# MAGIC Two queues, an outbox, and sixty orders of two kinds. If you have an error queue, set `error` and
# MAGIC continue below.

# COMMAND ----------

from pyspark.sql import functions as F

from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.options import ConnectionOptions

ENDPOINT = "Notebook.Handler"
options = ConnectionOptions.parse(connection)
print(*(made.table for made in queue_tables.create(options, [orders, error])), sep="\n")
print(outbox_tables.create(options, ENDPOINT).table)

kind = F.when(F.col("id") % 2 == 0, "Shop.PlaceOrder, Shop").otherwise("Shop.ChangeOrder, Shop")
messages = spark.range(60).select(
    F.to_json(F.struct(F.col("id").alias("order"), (F.col("id") % 10).alias("quantity"))).alias("Body"),
    F.create_map(F.lit("NServiceBus.EnclosedMessageTypes"), kind).alias("Headers"),
)
to = {**connection, "queue": orders, "outbox": "none"}
messages.write.format("sqlqueue").mode("append").options(**to).save()
print(f"{queue_tables.length(options, orders).rows} messages in {orders}")

# COMMAND ----------

# MAGIC %md
# MAGIC A function is called for each of them. Where it raises, the message goes to the error queue, and the
# MAGIC others go on.

# COMMAND ----------

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.handling import each_message
from sqlqueue_spark.pipeline import read_queue, send


def handle(message):
    """Take orders of one to eight pieces."""
    order = message.json()
    if not order["quantity"]:
        raise ValueError(f"order {order['order']} is empty")
    if order["quantity"] == 9:
        raise LookupError(f"no nine pieces for order {order['order']}")


received = read_queue(spark, {**connection, "queue": orders})
sink = SqlQueueSink(endpoint=ENDPOINT, errorQueue=error, options=connection)
query = send(
    received.transform(each_message(handle, queue=orders, immediateRetries=0)),
    sink,
    f"{folder}/checkpoints/{orders}",
    available_now=True,
)
query.awaitTermination()
print(f"{queue_tables.length(options, error).rows} messages in {error}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The archive
# MAGIC
# MAGIC This is a copy: the rows stay in the queue for its consumer, for example ServiceControl. Run it again,
# MAGIC or on a schedule: each row stands in the table once. As a job that copies every minute: `sqlqueue
# MAGIC archive --queue error --path … --every 1m`. For a queue without another consumer, `--take` takes the
# MAGIC messages out of it.

# COMMAND ----------

from sqlqueue_spark.pipeline import ArchiveOptions, copy_to_delta

archive = ArchiveOptions(path=f"{folder}/{error}")
copied = [copy_to_delta(spark, {**connection, "queue": error}, archive).rows for _ in range(2)]
print(f"copied {copied[0]} messages, and the second time {copied[1]}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What failed, why and when
# MAGIC
# MAGIC `IsFailure` leaves out the acknowledgements that endpoints put into an error queue for ServiceControl.

# COMMAND ----------

failures = spark.read.format("delta").load(archive.path).where("IsFailure")
failures.groupBy("FailedQueue", "MessageType", "ExceptionType").agg(
    F.count("*").alias("messages"),
    F.min("TimeOfFailure").alias("first"),
    F.max("TimeOfFailure").alias("last"),
    F.first("ExceptionMessage").alias("for example"),
).orderBy(F.desc("messages"), "MessageType", "ExceptionType").show(truncate=40)

# COMMAND ----------

import matplotlib.pyplot as plt

rows = (
    failures.groupBy(
        F.date_trunc(unit, "TimeOfFailure").alias("at"),
        F.coalesce("ExceptionType", F.lit("(not known)")).alias("type"),
    )
    .agg(F.count("*").alias("messages"))
    .orderBy("at", "type")
    .collect()
)
times = [f"{at:%d %b %H:%M}" if at else "(not known)" for at in dict.fromkeys(row["at"] for row in rows)]
figure, axes = plt.subplots(figsize=(12, 4), layout="constrained")
below = dict.fromkeys(times, 0)
for each in sorted({row["type"] for row in rows}):
    count = dict.fromkeys(times, 0)
    for row in rows:
        if row["type"] == each:
            count[f"{row['at']:%d %b %H:%M}" if row["at"] else "(not known)"] += row["messages"]
    axes.bar(times, [count[at] for at in times], bottom=[below[at] for at in times], label=each)
    below = {at: below[at] + count[at] for at in times}
axes.set(title=f"Failures of each {unit}, by type", ylabel="messages")
axes.legend()
plt.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Put messages back
# MAGIC
# MAGIC When the cause is gone, the messages can go back to the queue in which they failed. With
# MAGIC ServiceControl, retry them in ServicePulse. Without it, use `sqlqueue errors retry error` on the
# MAGIC command line: each message goes from the error queue back to its `FailedQ`, without the headers of its
# MAGIC failure. A message that fails again comes into the error queue as another row, with the same
# MAGIC `MessageId`. So the archive shows how often a message has failed:

# COMMAND ----------

again = failures.groupBy("MessageId").agg(F.count("*").alias("times"), F.max("TimeOfFailure").alias("last"))
print(f"{again.count()} messages have failed, {again.where('times > 1').count()} of them more than once")
