"""Sends, until stopped, what a transform makes of the messages of a queue, for the three jobs that send."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.running.batch_report import Totals
from sqlqueue_spark.pipeline.running.database_watch import parking_for, watched
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering
from sqlqueue_spark.pipeline.running.queue_stream import read_queue, send
from sqlqueue_spark.pipeline.running.slow_down import SlowDown
from sqlqueue_spark.pipeline.running.stop import run_until_stopped, stoppable
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
    """Send what a transform makes of a queue's messages, and print how it goes.

    :param transform: makes of the stream what the sink sends. It is also given the queue's canonical address,
        or None where the column ``Queue`` holds it.
    :param doing: begins the first line.
    :param slows_down: whether to slow down while most messages fail.
    :param queues: the sink; by default the one of the options.
    """
    own, there = SourceOptions.parse(source), SinkOptions.parse(sink)
    with stoppable(source) as (stopping, stop_file, done_file):
        queue = None if own.queue is None else str(own.naming(dialect_of(own.url)).table(own.queue))
        messages = transform(read_queue(spark, stopping), queue)
        # A wrong column fails now rather than with the first batch.
        FrameColumns.of(messages.dtypes, there)
        if queues is None:
            queues = SqlQueueSink.of(there)
            queues.databases = parking_for(own, there)
        queues.stopped = stop_file.exists
        with delivering(own, there) as delivery, watched(queues.databases):
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
