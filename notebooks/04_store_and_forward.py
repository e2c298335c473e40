# Databricks notebook source
# MAGIC %md
# MAGIC # Store-and-forward: messages for another database
# MAGIC
# MAGIC A sender commits to its own database alone. A job carries its messages to the other database, each
# MAGIC once. While that one is down, they wait.
# MAGIC
# MAGIC The cluster needs Spark 4.2 and the wheel of this package with its extra `[sqlserver]` or
# MAGIC `[postgresql]`: `%pip install '/path/to/sqlqueue_spark-….whl[…]'`, for it is on no
# MAGIC index. Parameters are widgets; outside of Databricks they are environment variables, for example
# MAGIC `SQLQUEUE_URL`. The passwords are secrets (`scope/key`), or `SQLQUEUE_PASSWORD` and
# MAGIC `SQLQUEUE_BILLING_PASSWORD`. They are given as options alone, so they stand in no url, no Spark
# MAGIC setting and no output.
# MAGIC
# MAGIC `url` is the sender's database, here of a shop. `billing_url` is the other one, on the same kind of
# MAGIC server. At the url `nowhere` no server answers: it stands for a database that is down.

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


def password(of: str = "") -> str:
    """The secret that the widget <of>password_secret names as scope/key, else SQLQUEUE_<OF>PASSWORD."""
    scope, _, key = parameter(f"{of}password_secret").partition("/")
    return dbutils.secrets.get(scope, key) if key else os.environ.get(f"SQLQUEUE_{of.upper()}PASSWORD", "")


def database(of: str = "") -> dict[str, str]:
    """The options that lead to a database."""
    given = {"url": parameter(f"{of}url"), "user": parameter(f"{of}user"), "password": password(of)}
    return {name: value for name, value in given.items() if value}


shop, billing = database(), database("billing_")
nowhere = parameter("nowhere", "postgresql://nobody@127.0.0.1:1/nowhere")
outgoing, orders = parameter("outgoing", "NotebookOutgoing"), parameter("orders", "NotebookOrders")
error = parameter("error", "NotebookError")

if "spark" not in globals():  # outside of Databricks there is no session yet
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
folder = parameter("folder") or own_folder()

# COMMAND ----------

# MAGIC %md
# MAGIC ## A sender that stores
# MAGIC
# MAGIC The shop's database has a queue for what goes elsewhere, and the sender's outbox. Billing's database
# MAGIC has the queue of the orders.

# COMMAND ----------

from sqlqueue_spark.administration import outbox_tables, queue_peek, queue_tables
from sqlqueue_spark.options import ConnectionOptions

at_shop, at_billing = ConnectionOptions.parse(shop), ConnectionOptions.parse(billing)
made = [*queue_tables.create(at_shop, [outgoing]), *queue_tables.create(at_billing, [orders])]
print(*(each.table for each in made), sep="\n")
print(outbox_tables.create(at_shop, "Notebook.Shop").table)

# COMMAND ----------

# MAGIC %md
# MAGIC The sink knows that the queue of orders is in another database (`endpoint.<name>.url`). It stores what
# MAGIC goes there in the queue `storeAndForward`, in the same transaction as everything else that it sends.
# MAGIC It opens no connection to the other database, which may be down. A header of the message tells the job
# MAGIC the address.

# COMMAND ----------

from pyspark.sql import functions as F

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.functions import deterministic_id

submitted = spark.range(60).select(
    F.to_json(F.struct(F.col("id").alias("order"))).alias("Body"),
    F.lit(orders).alias("Destination"),
    deterministic_id("id").alias("MessageId"),
)
sink = SqlQueueSink(
    endpoint="Notebook.Shop",
    messageType="Shop.Messages.OrderSubmitted",
    storeAndForward=outgoing,
    options={**shop, f"endpoint.{orders}.url": nowhere},
)
sink(submitted, 0)
sink(submitted, 0)  # a batch that is tried again stores nothing again
print(f"{queue_tables.length(at_shop, outgoing).rows} messages in {outgoing}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The job, while billing's database is down
# MAGIC
# MAGIC As a job: `sqlqueue store-and-forward --config conf/store_and_forward.toml`. Here it takes what is
# MAGIC there and ends (`availableNow`). It logs in one line that the database is down, and tries it at
# MAGIC intervals. The messages wait in the table `<queue>.Delayed` of the shop's database, so that others
# MAGIC are not held up.

# COMMAND ----------

from sqlqueue_spark.administration import delayed_tables
from sqlqueue_spark.pipeline import StoreAndForwardOptions, store_and_forward

source = {**shop, "queue": outgoing}
forward = {"endpoint": "Notebook.Forward", "errorQueue": error}
options = StoreAndForwardOptions(checkpoint=f"{folder}/checkpoints/{outgoing}", available_now=True)

store_and_forward(spark, source, {**forward, "url": nowhere}, options, create=True)
waiting = delayed_tables.length(at_shop, outgoing).rows
print(f"{queue_tables.length(at_shop, outgoing).rows} messages in {outgoing}, {waiting} wait")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The database is back
# MAGIC
# MAGIC The job finds that it answers, puts the messages back into their queue, and sends them through
# MAGIC billing's own outbox. The outbox knows what has arrived. So each message arrives once, whatever
# MAGIC process dies.

# COMMAND ----------

store_and_forward(spark, source, {**forward, **billing}, options, create=True)
waiting = delayed_tables.length(at_shop, outgoing).rows
arrived = [*queue_peek.look(at_billing, orders, count=1000)]
print(f"{queue_tables.length(at_shop, outgoing).rows} messages in {outgoing}, {waiting} wait")
print(f"{len(arrived)} messages in {orders}, {len({each.body for each in arrived})} different ones")

# COMMAND ----------

# MAGIC %md
# MAGIC The header with the address was removed on the way. Everything else is as the sender made it.

# COMMAND ----------

peeked = spark.read.format("sqlqueue").options(**billing, queue=orders).load()
peeked.select(F.col("Body").cast("string"), "Headers").orderBy("RowVersion").show(3, truncate=100)

# COMMAND ----------

# MAGIC %md
# MAGIC ## And back
# MAGIC
# MAGIC Answers go the same way: a handler in billing's database stores what it replies to the shop in a queue
# MAGIC of its own database (`storeAndForward` of its sink), and a second job carries it. `sqlqueue demo
# MAGIC store-and-forward` shows both ways with two servers, and kills one of them.
