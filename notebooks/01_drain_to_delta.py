# Databricks notebook source
# MAGIC %md
# MAGIC # A queue table into Delta
# MAGIC
# MAGIC Look at the messages that wait, drain them into a Delta table, and see what they were. Each arrives
# MAGIC once, whatever process dies, and at whatever moment.
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


queue = parameter("queue", "orders")
given = {"url": parameter("url"), "user": parameter("user"), "password": password(), "queue": queue}
source = {name: value for name, value in given.items() if value}

if "spark" not in globals():  # outside of Databricks there is no session yet
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
folder = parameter("folder") or own_folder()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Look
# MAGIC
# MAGIC `spark.read` shows the rows that a stream would receive; it locks and deletes nothing.

# COMMAND ----------

from sqlqueue_spark.functions import body_text, message_id, message_type, sent_at

waiting = spark.read.format("sqlqueue").options(**source).load()
print(f"{waiting.count()} messages wait in {queue}")
waiting.select("RowVersion", message_type(), sent_at(), message_id(), body_text()).show(5, truncate=40)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Drain
# MAGIC
# MAGIC The query takes what is there now, and ends. Run it again, or on a schedule, with the same checkpoint:
# MAGIC it continues where it ended. Without `available_now` it runs on.

# COMMAND ----------

from sqlqueue_spark.pipeline import DeltaOptions, read_queue, with_message_columns, write_delta

delta = DeltaOptions(path=f"{folder}/{queue}", checkpoint=f"{folder}/checkpoints/{queue}", available_now=True)
query = write_delta(with_message_columns(read_queue(spark, source)), delta)
query.awaitTermination()
batches = [progress for progress in query.recentProgress if progress.numInputRows]
print(f"drained {sum(each.numInputRows for each in batches)} messages in {len(batches)} batches")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Types, times and rates
# MAGIC
# MAGIC The first batch starts Spark's workers, so it is slower than the next ones.

# COMMAND ----------

from pyspark.sql import functions as F

drained = spark.read.format("delta").load(delta.path)
types = (
    drained.groupBy(F.coalesce("MessageType", F.lit("(no type)")).alias("type"))
    .agg(
        F.count("*").alias("messages"),
        F.round(F.avg(F.length("Body"))).cast("int").alias("bytes"),
        F.min("SentAt").alias("first"),
        F.max("SentAt").alias("last"),
    )
    .orderBy(F.desc("messages"), "type")
)
types.show(truncate=False)

# COMMAND ----------

from datetime import timedelta

import matplotlib.pyplot as plt

rows = types.collect()
figure, panes = plt.subplot_mosaic(
    [["types", "rates"], ["times", "times"]], figsize=(12, 7), layout="constrained"
)
panes["types"].barh([row.type for row in rows], [row.messages for row in rows])
panes["types"].set(title="Messages of each type", xlabel="messages")
panes["types"].invert_yaxis()
panes["rates"].bar([str(each.batchId) for each in batches], [each.processedRowsPerSecond for each in batches])
panes["rates"].set(title="Rate of each batch", xlabel="batch", ylabel="messages/s")

sent = [row for row in rows if row.first]  # a type may have no message that says when it was sent
if sent:
    span = max(row.last for row in sent) - min(row.first for row in sent)
    step = timedelta(seconds=max(1, round(span.total_seconds() / 40)))
    window = F.window("SentAt", f"{step.total_seconds():.0f} seconds")
    times = drained.groupBy(window.start.alias("at")).agg(F.count("*").alias("messages")).collect()
    panes["times"].bar([row.at for row in times], [row.messages for row in times], step, align="edge")
    panes["times"].set(title=f"Messages over time, by when they were sent (a bar: {step})", ylabel="messages")
plt.show()
