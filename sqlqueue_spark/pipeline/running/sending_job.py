"""Sends, until stopped, what a transform makes of the messages of a queue, for the three jobs that send.

A job slows down while most messages fail: a broken service must not empty the queue into the error queue. A
.NET endpoint then tries one message a second. A batch of ours pauses a second for each failed message, half
a minute at most. Batches follow their duration (``adaptiveBatch``), so the next ones are smaller, down to
about a message a second, and grow again when messages succeed. The first batches fail at full size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.running.batch_report import Totals
from sqlqueue_spark.pipeline.running.configuration import SendingOptions
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering, waiting_for
from sqlqueue_spark.pipeline.running.queue_stream import read_queue, send
from sqlqueue_spark.pipeline.running.stop import run_until_stopped, stoppable
from sqlqueue_spark.plain_text import logger, plain
from sqlqueue_spark.send import FrameColumns, Sent
from sqlqueue_spark.spark.sink import SqlQueueSink

log = logger(__name__)

#: Fewer failures than these are no sign.
_LEAST = 10
_LONGEST_SECONDS = 30
_STEP_SECONDS = 0.2


def send_until_stopped(
    spark: SparkSession,
    source: Mapping[str, str],
    queues: SqlQueueSink,
    transform: Callable[[DataFrame, str | None], DataFrame],
    options: SendingOptions,
    *,
    doing: str,
    slows_down: bool = False,
) -> Totals:
    """Send what a transform makes of a queue's messages, and print how it goes.

    :param source: options of the source; ``queues`` is the sink, and ``options`` are those of the job.
    :param transform: makes of the stream what the sink sends. It is also given the queue's canonical address,
        or None where the column ``Queue`` holds it.
    :param doing: begins the first line.
    """
    home = queues.places.home
    if home.uses_outbox and said(source, "outboxEndpoint") is None:
        source = {**source, "outboxEndpoint": home.sender or ""}
    own = SourceOptions.parse(source)
    with stoppable(source) as (stopping, stop_file, done_file):
        queue = None if own.queue is None else str(own.naming(dialect_of(own.url)).table(own.queue))
        messages = transform(read_queue(spark, stopping), queue)
        # A wrong column fails now rather than with the first batch.
        FrameColumns.of(messages.dtypes, home)
        if queues.databases is None:
            queues.databases = waiting_for(own, queues.places)
        queues.stopped = stop_file.exists
        with delivering(own, queues.places, queues.databases) as delivery:
            sink_of_query = SlowDown(queues, stop_file) if slows_down else queues
            query = send(messages, sink_of_query, options.checkpoint, available_now=options.available_now)
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


@dataclass(frozen=True)
class SlowDown:
    """The sink of a job, as ``foreachBatch`` calls it.

    :param stop_file: the source's; while it is there nothing pauses.
    """

    sink: SqlQueueSink
    stop_file: Path

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.sink(df, batch_id)
        seconds = pause_after(self.sink.sent_in(batch_id) or Sent())
        if not seconds:
            return
        log.warning("slowing_down batch=%d seconds=%d: most of its messages failed", batch_id, seconds)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stop_file.exists():
            time.sleep(_STEP_SECONDS)


def pause_after(sent: Sent) -> int:
    """How many seconds a job pauses after a batch of which this became."""
    failed = sent.failed + sent.retried
    return min(failed, _LONGEST_SECONDS) if failed >= _LEAST and failed > sent.handled else 0
