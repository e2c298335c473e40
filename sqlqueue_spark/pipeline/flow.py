"""The pieces between which messages flow: a queue, the columns that readers want, a Delta table, other queues."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import functions
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.options.fields import Options, boolean, option, text
from sqlqueue_spark.pipeline.delta_table import is_reachable
from sqlqueue_spark.pipeline.delta_writer import DeltaWriter
from sqlqueue_spark.spark.sink import SqlQueueSink

log = logging.getLogger(__name__)

#: Columns of the row in which a message came, and those of :func:`with_message_columns`.
_OF_THE_ROW = ("Id", "RowVersion", "Recoverable", "MessageType", "SentAt", "IngestedAt")
_ORIGIN = ("Id", "RowVersion")


@dataclass(frozen=True, kw_only=True)
class DeltaOptions(Options):
    """Where a stream's rows go."""

    path: str = option("Folder of the Delta table.", parse=text)
    checkpoint: str = option("Folder of the stream's checkpoint; one queue, one Delta table, one checkpoint.", parse=text)  # fmt: skip
    available_now: bool = option("Take what is there now and end, instead of running on.", parse=boolean, default=False, shown="`false`")  # fmt: skip


def read_queue(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """A stream of the messages of a queue table; the options are those of ``format("sqlqueue")``."""
    return spark.readStream.format("sqlqueue").options(**options).load()


def with_message_columns(messages: DataFrame) -> DataFrame:
    """The columns of the table, and what most readers look for first."""
    return messages.withColumns(
        {
            "MessageId": functions.message_id(),
            "MessageType": functions.message_type(),
            "SentAt": functions.sent_at(),
            "IngestedAt": F.current_timestamp(),
        }
    )


def as_outgoing(messages: DataFrame) -> DataFrame:
    """Received messages as the sink takes them: what belongs to the row they came in is dropped, the message goes on.

    Headers, and with them the message id, Body, Expires, CorrelationId and ReplyToAddress stay. A message whose headers
    hold no id goes on under the Id of its row, which an outbox needs. Columns of :func:`with_message_columns` are dropped
    too, but a ``MessageId`` that is there is the caller's and stays. ``Id`` and ``RowVersion`` stay together: beside each
    other they tell the sink which row was received, and go no further.
    """
    types = {name.lower(): type_ for name, type_ in messages.dtypes}
    if (types.get("id"), types.get("rowversion")) == ("string", "bigint"):
        return messages.drop(*(name for name in _OF_THE_ROW if name not in _ORIGIN))
    if "messageid" not in types and {"id", "headers"} <= types.keys():
        messages = messages.withColumn("MessageId", _id_beside_headers())
    return messages.drop(*_OF_THE_ROW)


def write_delta(messages: DataFrame, delta: DeltaOptions) -> StreamingQuery:
    """Start writing a stream into a Delta table, exactly once.

    A batch that Delta has is dropped when it is repeated. A checkpoint that has gone back, so that batches would be taken for
    such as Delta has, is refused; :mod:`sqlqueue_spark.pipeline.checkpoint` says when. Through Spark Connect, and where Delta
    Lake is not the open one, nothing can be asked, and a line in the log says so.

    :raises ConfigurationError: the checkpoint has gone back. A copy that runs beside its original ends its query so.
    """
    spark = messages.sparkSession
    writer = messages.writeStream.outputMode("append").option("checkpointLocation", delta.checkpoint)
    if is_reachable(spark):
        writer = writer.foreachBatch(DeltaWriter(spark, delta.path, delta.checkpoint))
    else:
        log.warning("checkpoint_not_checked checkpoint=%s table=%s: if it is older than the table, new messages are lost",
                    delta.checkpoint, delta.path)  # fmt: skip
        writer = writer.format("delta").option("path", delta.path)
    if delta.available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def send(
    messages: DataFrame, sink: SqlQueueSink, checkpoint: str, *, available_now: bool = False
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
    """The message id where the headers hold none. Else NULL: the sink reads it there, and nothing is parsed here."""
    told = F.col("Headers").rlike(f'"{re.escape(MESSAGE_ID)}":"[^"]')
    return F.when(told, F.lit(None)).otherwise(functions.message_id())
