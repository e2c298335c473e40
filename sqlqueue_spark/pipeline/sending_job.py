"""What the jobs share that send what they receive: from the source by way of a transform to the sink, until stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.batch_report import Totals
from sqlqueue_spark.pipeline.database_watch import parking_for, watched
from sqlqueue_spark.pipeline.delayed_delivery import delivering
from sqlqueue_spark.pipeline.flow import read_queue, send
from sqlqueue_spark.pipeline.running import run_until_stopped, stoppable
from sqlqueue_spark.pipeline.slow_down import SlowDown
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.send import FrameColumns
from sqlqueue_spark.spark.sink import SqlQueueSink


def send_until_stopped(
    spark: SparkSession,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    transform: Callable[[DataFrame, str | None], DataFrame],
    checkpoint: str,
    *,
    available_now: bool,
    doing: str,
    slows_down: bool = False,
    queues: SqlQueueSink | None = None,
) -> Totals:
    """Send what a transform makes of a queue's messages, and say how it goes.

    :param transform: is given the stream and the queue's canonical address (None where the rows are of several queues and name each
        theirs), and returns what the sink is to send.
    :param doing: begins the job's first line.
    :param slows_down: whether it slows down while most messages fail.
    :param queues: the sink, where it is not the usual one of these options.
    """
    with stoppable(source) as (stopping, stop_file, done_file):
        own = SourceOptions.parse(source)
        queue = None if own.queue is None else str(own.naming(dialect_of(own.url)).table(own.queue))
        messages = transform(read_queue(spark, stopping), queue)
        # A wrong column fails now rather than with the first batch.
        FrameColumns.of(messages.dtypes, SinkOptions.parse(sink))
        if queues is None:
            queues = SqlQueueSink.of(SinkOptions.parse(sink))
            queues.databases = parking_for(own, SinkOptions.parse(sink))
        queues.stopped = stop_file.exists
        with delivering(own, SinkOptions.parse(sink)) as delivery, watched(queues.databases):
            sink_of_query = SlowDown(queues, stop_file) if slows_down else queues
            query = send(messages, sink_of_query, checkpoint, available_now=available_now)
            click.echo(plain(f"{doing} queue={own.title}"))
            totals = run_until_stopped(
                spark,
                query,
                stop_file,
                click.echo,
                done_file=done_file,
                details=lambda number: (queues.details(number) + delivery.details()).strip(),
            )
    click.echo(f"received={totals.messages} {totals}")
    return totals
