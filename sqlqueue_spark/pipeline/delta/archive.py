"""Archives an error or audit queue in a Delta table, each row once: copies its rows, or takes them out.

A copy leaves the rows to the queue's consumer, for example ServiceControl. It sees what stands in the queue
when it looks: a row that comes and goes between two looks is not in the archive. Taking misses no message,
and leaves none to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import functions
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.fields import boolean, duration, option, said, text
from sqlqueue_spark.pipeline.delta.archive_table import ArchiveTable, merge
from sqlqueue_spark.pipeline.delta.delta_stream import INTO_DELTA, DeltaOptions, write_delta
from sqlqueue_spark.pipeline.delta.queue_copy import QueueCopy
from sqlqueue_spark.pipeline.running.batch_report import Totals
from sqlqueue_spark.pipeline.running.configuration import JobOptions
from sqlqueue_spark.pipeline.running.delta_lake import check_delta
from sqlqueue_spark.pipeline.running.queue_stream import read_queue, with_message_columns
from sqlqueue_spark.pipeline.running.stop import asked_to_stop, run_until_stopped, stoppable
from sqlqueue_spark.plain_text import plain

#: The longest pause between two looks whether to stop.
_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions(JobOptions):
    """How a queue is archived."""

    path: str = option("Folder of the Delta table (--into).", parse=text)
    take: bool = option(
        "Take the messages out of the queue, instead of copying them.", parse=boolean, default=False
    )
    every: timedelta | None = option(  # noqa: RUF009 -- it declares a field
        "Copy again and again, with this pause between; without it, or with `availableNow`, once.",
        parse=duration,
        default=None,
    )
    checkpoint: str | None = option(
        "Folder of the stream's checkpoint, where messages are taken.", parse=text, default=None
    )

    def check(self) -> None:
        if self.take and self.checkpoint is None:
            raise ConfigurationError(
                "The option checkpoint is required with take; set it to: Folder of the stream's checkpoint; "
                "one queue, one Delta table, one checkpoint."
            )
        if self.take and self.every is not None:
            raise ConfigurationError(
                "Both take and every are given, but what takes messages runs on by itself; drop every."
            )


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a finished copy did."""

    rows: int
    rounds: int
    seconds: float

    def __str__(self) -> str:
        """Everything but the number of rows, as ``key=value``."""
        return f"rounds={self.rounds} seconds={self.seconds:.1f}"


def archived(messages: DataFrame) -> DataFrame:
    """Add the columns of :func:`with_message_columns` and of ``with_failure_columns``."""
    return functions.with_failure_columns(with_message_columns(messages))


def take_to_delta(spark: SparkSession, source: Mapping[str, str], options: ArchiveOptions) -> StreamingQuery:
    """Start taking the messages of a queue into an archive; a row that it has is not added again.

    :param source: options of the source; ``INTO_DELTA`` completes them. Errors as :func:`write_delta`.
    """
    assert options.checkpoint is not None, "the options were checked"
    delta = DeltaOptions(
        path=options.path, checkpoint=options.checkpoint, available_now=options.available_now
    )
    return write_delta(archived(read_queue(spark, {**INTO_DELTA, **source})), delta, merge)


def copy_to_delta(
    spark: SparkSession,
    source: Mapping[str, str],
    options: ArchiveOptions,
    report: Callable[[str], None] = print,
    *,
    stop_file: Path | None = None,
) -> Copied:
    """Copy the rows of a queue into an archive, once or until stopped.

    :param report: is called with a line for each round that has copied rows.
    :param stop_file: stops the copy between two merges, as SIGTERM and SIGINT do. It is removed at the end.
    :raises ConfigurationError: the session has no Delta Lake.
    """
    check_delta(spark)
    copy = QueueCopy(spark, source, ArchiveTable(spark, options.path), archived)
    began, rows, rounds = time.monotonic(), 0, 0
    with asked_to_stop(spark) as asked:

        def is_asked() -> bool:
            return asked.is_set() or (stop_file is not None and stop_file.exists())

        try:
            while not is_asked():
                done = copy.round(is_asked)
                rounds += 1
                rows += done.copied
                if done.copied:
                    report(f"round={rounds} {done}")
                if options.every is None or options.available_now:
                    break
                until = time.monotonic() + options.every.total_seconds()
                while (left := until - time.monotonic()) > 0 and not is_asked():
                    time.sleep(min(left, _SECONDS))
        finally:
            if stop_file is not None:
                stop_file.unlink(missing_ok=True)
    return Copied(rows=rows, rounds=rounds, seconds=time.monotonic() - began)


def archive_until_stopped(
    spark: SparkSession, source: Mapping[str, str], options: ArchiveOptions
) -> Totals | Copied:
    """Archive a queue until it is done or stopped, and print how it goes."""
    doing, queue = "taking" if options.take else "copying", SourceOptions.parse(source).title
    click.echo(plain(f"{doing} queue={queue} into={options.path}"))
    if options.take:
        with stoppable(source) as (stopping, stop_file, done_file):
            query = take_to_delta(spark, stopping, options)
            totals = run_until_stopped(spark, query, stop_file, click.echo, done_file=done_file)
        click.echo(f"taken={totals.messages} {totals}")
        return totals
    stop = said(source, "stopFile")
    copied = copy_to_delta(spark, source, options, click.echo, stop_file=None if stop is None else Path(stop))
    click.echo(f"copied={copied.rows} {copied}")
    return copied
