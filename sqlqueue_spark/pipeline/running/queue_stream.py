"""The pieces of a pipeline: read a queue as a stream, add or drop columns, send a stream to queues."""

import re
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import functions
from sqlqueue_spark.messages.message import MESSAGE_ID, ONE_HOP
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.environment import with_password
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.running.readiness import check_may_receive
from sqlqueue_spark.spark.allowed_code import these
from sqlqueue_spark.spark.datasource import allow

#: Columns that belong to the row in which a message came, and those of :func:`with_message_columns`.
_OF_THE_ROW = ("Id", "RowVersion", "Recoverable", "MessageType", "SentAt", "IngestedAt")

#: The operators of a plan that keep a state from batch to batch.
_STATEFUL = re.compile("Aggregate|Deduplicate|Distinct|Limit|WithState")


def read_queue(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A stream of a queue table's messages; the options are those of ``format("sqlqueue")``.

    They come from a program, and not from SQL, so the session allows what these options name of the machine
    (a token provider, for example), and what a driver takes from it. On one machine (``local[…]``) a batch
    has at most as many slices as there are cores, unless the options say ``maxConcurrency``: a slice has a
    fixed cost.

    :raises QueueError: the login may not receive; through Spark Connect the query says so.
    """
    parsed = SourceOptions.parse(options)
    context = getattr(spark, "sparkContext", None)  # None through Spark Connect
    if context is not None and context.master.startswith("local") and said(options, "maxConcurrency") is None:
        cores = min(context.defaultParallelism, SourceOptions.max_concurrency)
        options = {**options, "maxConcurrency": str(cores)}
    allow(spark, [these(parsed)], also=True)
    messages = spark.readStream.format("sqlqueue").options(**options).load()
    if context is not None:
        check_may_receive(SourceOptions.parse(with_password(options)))
    return messages


def keeps_state(frame: DataFrame) -> bool:
    """Whether a stream depends on rows of earlier batches; False if we cannot tell (Spark Connect)."""
    of_java = getattr(frame, "_jdf", None)
    todo = [] if of_java is None else [of_java.queryExecution().analyzed()]
    while todo:
        node = todo.pop()
        children = node.children()
        streams = [each for each in map(children.apply, range(children.size())) if each.isStreaming()]
        joined = "Join" in node.nodeName() and len(streams) > 1
        if joined or (streams and _STATEFUL.search(node.nodeName())):
            return True
        todo += streams
    return False


def with_message_columns(messages: DataFrame) -> DataFrame:
    """Add the columns that readers look for first, and ``IngestedAt``, when Spark began the batch."""
    # Spark makes a constant of current_timestamp() in the code that it generates, and would generate and
    # compile the code anew for each batch. It interprets a function that takes a function: this empty fold.
    now = F.aggregate(F.array().cast("array<int>"), F.current_timestamp(), lambda moment, _: moment)
    return functions.with_message_columns(messages).withColumn("IngestedAt", now)


def as_outgoing(messages: DataFrame, queue: str | None = None) -> DataFrame:
    """Make of received messages what the sink takes: drop the columns of the row, keep those of the message.

    Headers (and with them the message id), Body, Expires, CorrelationId and ReplyToAddress stay. A message
    without an id in its headers is sent under the Id of its row, because an outbox needs an id. The columns
    of :func:`with_message_columns` are dropped too. ``MessageId`` stays: the caller has added it. ``Id`` and
    ``RowVersion`` stay where both are there: they tell the sink which row was received; it writes neither.

    Headers of one hop, for example the number of delayed retries, are removed. The sink removes them from
    received rows; this function removes them where ``Id`` and ``RowVersion`` are not both there.

    :param queue: address of the queue of the messages. It becomes the column ``Queue``, unless there is one.
        The sink names it in errors, and refuses a delayed message that is on its way to another queue.
    """
    if queue is not None and "queue" not in {name.lower() for name in messages.columns}:
        messages = messages.withColumn("Queue", F.lit(queue))
    types = {name.lower(): type_ for name, type_ in messages.dtypes}
    if (types.get("id"), types.get("rowversion")) == ("string", "bigint"):
        return messages.drop(*_OF_THE_ROW[2:])  # Id and RowVersion stay
    if "messageid" not in types and {"id", "headers"} <= types.keys():
        messages = messages.withColumn("MessageId", _id_beside_headers())
    if types.get("headers") == "string":
        messages = messages.withColumn("Headers", _without_hops(F.col("Headers")))
    return messages.drop(*_OF_THE_ROW)


def send(
    messages: DataFrame,
    sink: Callable[[DataFrame, int], None],
    checkpoint: str,
    *,
    available_now: bool = False,
) -> StreamingQuery:
    """Start sending a stream to queue tables. The folder of the checkpoint is its own alone."""
    writer = messages.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _id_beside_headers() -> Column:
    """The message id for a row whose headers hold none; else NULL: the sink reads the id in the headers."""
    told = F.col("Headers").rlike(f'"{re.escape(MESSAGE_ID)}":"[^"]')
    return F.when(told, F.lit(None)).otherwise(functions.message_id())


def _without_hops(headers: Column) -> Column:
    """Headers without those of one hop; every other byte stays.

    A quotation mark within a value is escaped, so the pattern finds members alone.
    """
    names = "|".join(map(re.escape, sorted(ONE_HOP)))
    member = rf'\s*"(?:{names})"\s*:\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*'
    kept = F.regexp_replace(headers, f",{member}", F.lit(""))
    return F.regexp_replace(kept, rf"^(\s*\{{){member},?", F.lit("$1"))
