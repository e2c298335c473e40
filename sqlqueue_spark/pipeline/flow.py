"""The pieces of a pipeline: read a queue, add or drop columns, write into a Delta table, send to other queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import functions, register
from sqlqueue_spark.messages.message import MESSAGE_ID, ONE_HOP
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.environment import with_password
from sqlqueue_spark.options.fields import Options, boolean, option, said, text
from sqlqueue_spark.pipeline.delta_lake import check_delta, is_reachable
from sqlqueue_spark.pipeline.delta_writer import DeltaWriter, Write, append
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.spark.allowed_code import named

log = logger(__name__)

#: Options of a source whose rows go into Delta, if the user gives no others: a commit of Delta costs about a second, whatever
#: is in it.
INTO_DELTA: Mapping[str, str] = MappingProxyType({"targetBatchDuration": "10s"})

#: Columns that belong to the row in which a message came, and those of :func:`with_message_columns`.
_OF_THE_ROW = ("Id", "RowVersion", "Recoverable", "MessageType", "SentAt", "IngestedAt")
_ORIGIN = ("Id", "RowVersion")


@dataclass(frozen=True, kw_only=True)
class DeltaOptions(Options):
    """Where a stream's rows go."""

    path: str = option("Folder of the Delta table (--into).", parse=text)
    checkpoint: str = option("Folder of the stream's checkpoint; one queue, one Delta table, one checkpoint.", parse=text)  # fmt: skip
    available_now: bool = option("Take what is there now and end, instead of running on.", parse=boolean, default=False)  # fmt: skip


def read_queue(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A stream of a queue table's messages; the options are those of ``format("sqlqueue")``.

    What they name of this machine, such as a token provider, is allowed for the session: it comes from a program, and not from
    SQL. On one machine (``local[…]``) a batch is cut into no more slices than there are cores, unless the options say
    ``maxConcurrency``: a slice has a fixed cost.
    """
    cores = _local_cores(spark)
    if cores is not None and said(options, "maxConcurrency") is None:
        options = {**options, "maxConcurrency": str(min(cores, SourceOptions.max_concurrency))}
    if names := [name for _, name in named(SourceOptions.parse(with_password(options)))]:
        register(spark, allowed=names)
    return spark.readStream.format("sqlqueue").options(**options).load()


def _local_cores(spark: SparkSession) -> int | None:
    """How many cores Spark has where it runs on one machine; None where nobody tells, or executors come and go."""
    context = getattr(spark, "sparkContext", None)
    return context.defaultParallelism if context is not None and context.master.startswith("local") else None


def with_message_columns(messages: DataFrame) -> DataFrame:
    """Add to the table's columns those that most readers look for first, and ``IngestedAt``, when Spark began the batch."""
    # Of the time itself, which each batch has another of, Spark would make a constant in the code that it generates, and generate
    # and compile that code anew for each batch. It interprets a function that is handed another one, such as this fold of nothing.
    now = F.aggregate(F.array().cast("array<int>"), F.current_timestamp(), lambda moment, _: moment)
    return functions.with_message_columns(messages).withColumn("IngestedAt", now)


def as_outgoing(messages: DataFrame, queue: str | None = None) -> DataFrame:
    """Make of received messages what the sink takes: drop the columns that belong to the row, keep those of the message.

    Headers (and with them the message id), Body, Expires, CorrelationId and ReplyToAddress stay. A message without an id in
    its headers goes on under the Id of its row, because an outbox needs an id. The columns of :func:`with_message_columns`
    are dropped too, but for ``MessageId``: if it is there, it is the caller's. ``Id`` and ``RowVersion`` stay where both are
    there: together they tell the sink which row was received, and the sink writes neither.

    The headers of one hop, such as the number of delayed retries, end here: the sink takes them out of received rows, and this
    function where the sink cannot know that the rows were received.

    :param queue: address of the queue that the messages were received from. It becomes the column ``Queue``, unless there is one:
        the sink names it in errors, and refuses a delayed message that is on its way to another queue.
    """
    if queue is not None and "queue" not in {name.lower() for name in messages.columns}:
        messages = messages.withColumn("Queue", F.lit(queue))
    types = {name.lower(): type_ for name, type_ in messages.dtypes}
    if (types.get("id"), types.get("rowversion")) == ("string", "bigint"):
        return messages.drop(*(name for name in _OF_THE_ROW if name not in _ORIGIN))
    if "messageid" not in types and {"id", "headers"} <= types.keys():
        messages = messages.withColumn("MessageId", _id_beside_headers())
    if types.get("headers") == "string":
        messages = messages.withColumn("Headers", _without_hops(F.col("Headers")))
    return messages.drop(*_OF_THE_ROW)


def write_delta(messages: DataFrame, delta: DeltaOptions, write: Write = append) -> StreamingQuery:
    """Start writing a stream into a Delta table, exactly once.

    When Spark repeats a batch that Delta has, it is not written again. A checkpoint that has gone back is refused, because
    Delta would take new batches for those that it has; :mod:`sqlqueue_spark.pipeline.checkpoint` says when. Through Spark
    Connect, and where Delta Lake is not the open one, we cannot ask Delta, and a line in the log says so.

    :param write: how a batch goes into the table: by default all its rows are added.
    :raises ConfigurationError: the checkpoint has gone back, or the session has no Delta Lake. The first error also ends the query
        of a copy that runs beside its original.
    """
    spark = messages.sparkSession
    writer = messages.writeStream.outputMode("append").option("checkpointLocation", delta.checkpoint)
    check_delta(spark)
    if is_reachable(spark):
        writer = writer.foreachBatch(DeltaWriter(spark, delta.path, delta.checkpoint, write))
    else:
        log.warning("checkpoint_not_checked checkpoint=%s table=%s: if it is older than the table, new messages are lost",
                    delta.checkpoint, delta.path)  # fmt: skip
        writer = (
            writer.format("delta").option("path", delta.path)
            if write is append
            else writer.foreachBatch(lambda df, _: write(df, delta.path, {}))
        )
    if delta.available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def drain_to_delta(spark: SparkSession, source: Mapping[str, str], delta: DeltaOptions) -> StreamingQuery:
    """Start draining a queue into a Delta table with the columns of a message, as ``sqlqueue drain`` does.

    :param source: options of the source; where they do not say it, those of ``INTO_DELTA`` hold. Errors as :func:`write_delta`.
    """
    return write_delta(with_message_columns(read_queue(spark, {**INTO_DELTA, **source})), delta)


def send(
    messages: DataFrame,
    sink: Callable[[DataFrame, int], None],
    checkpoint: str,
    *,
    available_now: bool = False,
) -> StreamingQuery:
    """Start sending a stream to queue tables.

    :param checkpoint: folder of the stream's checkpoint, its own alone.
    :param available_now: send what is there now and end, instead of running on.
    """
    writer = messages.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def _id_beside_headers() -> Column:
    """The message id for a row whose headers hold none; else NULL, because the sink reads it there, so we need not parse."""
    told = F.col("Headers").rlike(f'"{re.escape(MESSAGE_ID)}":"[^"]')
    return F.when(told, F.lit(None)).otherwise(functions.message_id())


def _without_hops(headers: Column) -> Column:
    """Headers without those of one hop, byte for byte else.

    Behind a comma or the opening brace only a member can stand so: a quotation mark within a value is escaped.
    """
    names = "|".join(map(re.escape, sorted(ONE_HOP)))
    member = rf'\s*"(?:{names})"\s*:\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*'
    kept = F.regexp_replace(headers, f",{member}", F.lit(""))
    return F.regexp_replace(kept, rf"^(\s*\{{){member},?", F.lit("$1"))
