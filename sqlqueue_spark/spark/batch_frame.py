"""What the sink asks of a batch's frame: its columns, its addresses, and its number."""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.frame_columns import RECEIVED_ROW, FrameColumns
from sqlqueue_spark.send.compose.received import TIMES
from sqlqueue_spark.tables.stages.stage_mark import Batch

#: What is looked at of the outcome of a received message, and of a row that is passed on as it was received.
_OF_OUTCOMES = frozenset({
    *(*RECEIVED_ROW, "Headers", "Body", "MessageId", "Outgoing", "Failure", *TIMES),
    *("CorrelationId", "ReplyToAddress", "Expires"),
})  # fmt: skip
#: Where Spark keeps, on the thread that runs a query's batches, the query's id and, until a program names its
#: jobs, the id of its run.
_QUERY_ID, _JOB_GROUP = "sql.streaming.queryId", "spark.jobGroup.id"
#: Stands for the run's id where Spark does not tell it (Spark Connect).
_PROCESS = str(uuid.uuid4())


def needed(rows: DataFrame, columns: FrameColumns) -> DataFrame:
    """What workers need of rows that are outcomes: only columns that they look at, and ``Failure`` as JSON.

    Spark asks after each row how large its Arrow batch is, for which Arrow visits each field of each struct.
    The fields of ``Failure`` took a third of the time of Spark's tasks.
    """
    if "Outgoing" in columns.names:
        rows = rows.drop(*(own for name, own in columns.names.items() if name not in _OF_OUTCOMES))
    own = columns.names.get("Failure", "")
    return rows.withColumn(own, _json(F.col(f"`{own}`"), columns.failure)) if columns.failure else rows


def _json(failure: Column, fields: Mapping[str, str]) -> Column:
    """The column Failure as JSON, with times as microseconds; NULL where nothing failed.

    :param fields: the fields that it has, by their known names.
    """
    told = {name: failure.getField(own) for name, own in fields.items()}
    if (time := told.get("TimeOfFailure")) is not None:
        told["TimeOfFailure"] = F.unix_micros(time.cast("timestamp_ltz"))
    if (delay := told.get("RetryAfter")) is not None:
        seconds = delay.cast("interval day to second").cast("interval second").cast("decimal(19,6)")
        told["RetryAfter"] = (seconds * 1_000_000).cast("bigint")
    struct = F.struct(*(value.alias(name) for name, value in told.items()))
    return F.when(failure.isNotNull(), F.to_json(struct))


def addresses(rows: DataFrame, columns: Mapping[str, str], options: SinkOptions) -> list[str]:
    """The addresses that the rows of a batch go to, as far as these columns tell."""
    own = [] if options.queue is None else [options.queue]
    if (column := columns.get("Destination")) is None:
        return own
    named = [row[0] for row in rows.select(column).distinct().collect()]
    return [each for each in named if each] + (own if None in named or "" in named else [])


def batch_of(df: DataFrame, number: int) -> Batch:
    """What Spark tells of the batch; call it on the thread that runs the batch."""
    if (context := getattr(df.sparkSession, "sparkContext", None)) is None:
        return Batch(number=number, attempt=_PROCESS)
    query, jobs = (context.getLocalProperty(name) or "" for name in (_QUERY_ID, _JOB_GROUP))
    return Batch(query=query, number=number, attempt=_run_of(df.sparkSession, query) or jobs or _PROCESS)


def _run_of(session: Any, query: str) -> str:
    """The id of the run of a query; empty where Spark does not show it."""
    with suppress(Py4JError, AttributeError):
        running = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 -- as below
        if query and (run := running.get(session._jvm.java.util.UUID.fromString(query))):  # noqa: SLF001
            return str(run.runId())
    return ""
