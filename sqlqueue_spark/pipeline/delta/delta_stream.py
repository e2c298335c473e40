"""A stream of messages goes into a Delta table, exactly once; as a job, until it is stopped."""

from collections.abc import Mapping
from dataclasses import dataclass

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, SourceOptions
from sqlqueue_spark.options.fields import option, said
from sqlqueue_spark.pipeline.delta.delta_writer import DeltaWriter, Write, append
from sqlqueue_spark.pipeline.running.configuration import JobOptions
from sqlqueue_spark.pipeline.running.delta_lake import check_delta, is_reachable
from sqlqueue_spark.pipeline.running.queue_stream import read_queue, with_message_columns
from sqlqueue_spark.pipeline.running.stop import run_until_stopped, stoppable
from sqlqueue_spark.plain_text import logger, plain

log = logger(__name__)

#: The folder of the checkpoint within the table's, unless one is named. Delta leaves folders alone whose
#: names begin with an underscore: it never takes their files for the table's, and VACUUM keeps them.
#: https://docs.delta.io/latest/delta-streaming.html
CHECKPOINT = "_checkpoints"
#: The characters of a message that could steer a terminal.
_UNSEEN = r"[\p{C}\p{Zl}\p{Zp}]"


@dataclass(frozen=True, kw_only=True)
class DeltaOptions(JobOptions):
    path: str = option("Folder of the Delta table (--into).")
    checkpoint: str = option("Folder of the stream's checkpoint; one queue, one Delta table, one checkpoint.")


def with_checkpoint(delta: Mapping[str, str]) -> dict[str, str]:
    """The options of [delta], with a checkpoint in the table's folder if they name none."""
    path = said(delta, "path")
    if path is None or said(delta, "checkpoint") is not None:
        return dict(delta)
    return {**delta, "checkpoint": f"{path.rstrip('/')}/{CHECKPOINT}"}


def check_mode(source: Mapping[str, str], *others: str) -> SourceOptions:
    """The options of a source whose messages go into a Delta table.

    :param others: modes that are refused beside the atomic one, which settles what was staged for queues.
    :raises ConfigurationError: its mode is one of these.
    """
    options = SourceOptions.parse(source)
    if options.transaction_mode in (ATOMIC, *others):
        raise ConfigurationError(
            f"The option transactionMode is {options.transaction_mode}, with which the Delta table would "
            "lack messages or have them twice; leave it out, and each message comes once."
        )
    return options


def write_delta(messages: DataFrame, delta: DeltaOptions, write: Write = append) -> StreamingQuery:
    """Start writing a stream into a Delta table, exactly once.

    A batch that Spark repeats is not written again, and a checkpoint that has gone back is refused: see
    :mod:`sqlqueue_spark.pipeline.delta.delta_writer`. Through Spark Connect, and where Delta Lake is not the
    open one, we cannot ask Delta; a line in the log then says so.

    :param write: how a batch goes into the table: by default all its rows are added.
    :raises ConfigurationError: the checkpoint has gone back, or the session has no Delta Lake. The first
        error also ends the query of a copy that runs beside its original.
    """
    if not isinstance(delta, DeltaOptions):
        raise ConfigurationError(
            "write_delta needs DeltaOptions; make them: DeltaOptions.parse({'path': …})."
        )
    spark = messages.sparkSession
    writer = messages.writeStream.outputMode("append").option("checkpointLocation", delta.checkpoint)
    check_delta(spark)
    if is_reachable(spark):
        writer = writer.foreachBatch(DeltaWriter(spark, delta.path, delta.checkpoint, write))
    else:
        log.warning("checkpoint_not_checked checkpoint=%s table=%s: if it is older than the table, new "
                    "messages are lost", delta.checkpoint, delta.path)  # fmt: skip
        if write is append:
            writer = writer.format("delta").option("path", delta.path)
        else:
            writer = writer.foreachBatch(lambda df, _: write(df, delta.path, {}))
    return (writer.trigger(availableNow=True) if delta.available_now else writer).start()


def drain_to_delta(spark: SparkSession, source: Mapping[str, str], delta: DeltaOptions) -> StreamingQuery:
    """Start draining a queue into a Delta table, as ``sqlqueue drain``; errors as :func:`write_delta`."""
    check_mode(source)
    return write_delta(with_message_columns(read_queue(spark, source)), delta)


def drain_until_stopped(
    spark: SparkSession, source: Mapping[str, str], delta: DeltaOptions, show: int
) -> None:
    title = SourceOptions.parse(source).title
    with stoppable(source) as (stopping, stop_file, done_file):
        query = drain_to_delta(spark, stopping, delta)
        click.echo(plain(f"draining queue={title} into={delta.path}"))
        totals = run_until_stopped(spark, query, stop_file, click.echo, done_file=done_file)
    click.echo(f"drained={totals.messages} {totals}")
    if show:
        table = spark.read.format("delta").load(delta.path)
        click.echo(f"rows in Delta: {table.count()}")
        texts = (
            F.regexp_replace(name, _UNSEEN, "\ufffd").alias(name) for name in ("MessageType", "MessageId")
        )
        table.orderBy(F.desc("RowVersion")).select("RowVersion", *texts, "SentAt").show(show, truncate=60)
