"""Archives an error or audit queue in a Delta table, each row once: copies its rows, or takes them out.

A copy leaves the rows to the queue's consumer, for example ServiceControl. It sees what stands in the queue
when it looks: a row that comes and goes between two looks is not in the archive. Taking misses no message,
and leaves none to others.

A round of a copy looks at the numbers and Ids of *all* rows in the queue, and reads only those whole that the
archive lacks. Why, and what is known from one round to the next: docs/decisions/archive-merges-by-row-id.md.
After a crash the first round takes longer, and no row is copied twice.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import fail_points, functions
from sqlqueue_spark.engines.database_retry import Retry, paused
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.options.fields import duration, option
from sqlqueue_spark.pipeline.delta.archive_table import ArchiveTable, Version, merge
from sqlqueue_spark.pipeline.delta.delta_stream import DeltaOptions, check_mode, write_delta
from sqlqueue_spark.pipeline.running.delta_lake import check_delta
from sqlqueue_spark.pipeline.running.queue_stream import read_queue, with_message_columns
from sqlqueue_spark.pipeline.running.stop import asked_to_stop, run_until_stopped, stoppable
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.receive.reading.peek import Present, present_rows
from sqlqueue_spark.row_set import RowSet, portions
from sqlqueue_spark.spark.datasource import some_rows

#: Most rows of a merge, and most bytes of its headers and bodies.
_MOST_ROWS, _MOST_BYTES = 100_000, 256 << 20


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions(DeltaOptions):
    checkpoint: str | None = option(  # type: ignore[assignment] # a copy has none
        "Folder of the stream's checkpoint, where messages are taken.", None
    )
    take: bool = option("Take the messages out of the queue, instead of copying them.", False)
    every: timedelta | None = option(
        "Copy again and again, with this pause between; without it, or with `availableNow`, once.",
        None,
        parse=duration,
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
    """Start taking the messages of a queue into an archive, each once; errors as of :func:`write_delta`."""
    assert options.checkpoint is not None, "the options were checked"
    check_mode(source, NO_TRANSACTION)  # a merge that is tried again reads its rows again
    return write_delta(archived(read_queue(spark, source)), options, merge)


def copy_to_delta(
    spark: SparkSession,
    source: Mapping[str, str],
    options: ArchiveOptions,
    report: Callable[[str], None] = print,
) -> Copied:
    """Copy the rows of a queue into an archive, once or until stopped.

    SIGTERM, SIGINT and the source's ``stopFile``, which is removed at the end, stop it between two merges.

    :param report: is called with a line for each round that has copied rows.
    :raises ConfigurationError: the session has no Delta Lake.
    """
    check_delta(spark)
    copy = QueueCopy(spark, source, ArchiveTable(spark, options.path))
    began, rows, rounds = time.monotonic(), 0, 0
    with stoppable(source) as (_, stop_file, _), asked_to_stop(spark) as asked:

        def is_asked() -> bool:
            return asked.is_set() or stop_file.exists()

        try:
            while not is_asked():
                round_began = time.monotonic()
                there, copied = copy.round(is_asked)
                rounds += 1
                rows += copied
                if copied:
                    seconds = time.monotonic() - round_began
                    report(f"round={rounds} rows={there} copied={copied} seconds={seconds:.1f}")
                if options.every is None or options.available_now:
                    break
                paused(options.every.total_seconds(), is_asked)
        finally:
            stop_file.unlink(missing_ok=True)
    return Copied(rows=rows, rounds=rounds, seconds=time.monotonic() - began)


def archive_until_stopped(spark: SparkSession, source: Mapping[str, str], options: ArchiveOptions) -> None:
    doing, queue = "taking" if options.take else "copying", SourceOptions.parse(source).title
    click.echo(plain(f"{doing} queue={queue} into={options.path}"))
    if options.take:
        with stoppable(source) as (stopping, stop_file, done_file):
            query = take_to_delta(spark, stopping, options)
            totals = run_until_stopped(spark, query, stop_file, click.echo, done_file=done_file)
        click.echo(f"taken={totals.messages} {totals}")
        return
    copied = copy_to_delta(spark, source, options, click.echo)
    click.echo(f"copied={copied.rows} {copied}")


class QueueCopy:
    def __init__(self, spark: SparkSession, source: Mapping[str, str], table: ArchiveTable) -> None:
        self._options = SourceOptions.parse(source)
        self._read = some_rows(spark, source)
        self._table = table
        self._database = Retry(f"looking at {self._options.one_queue}")
        self._reached = False
        #: Rows that were in the queue at the last look, and that the archive has.
        self._known: dict[int, str] = {}
        #: The version of the archive that has them.
        self._version: Version | None = None

    def round(self, is_asked: Callable[[], bool] = lambda: False) -> tuple[int, int]:
        """Copy what stands in the queue now and is not in the archive.

        :param is_asked: whether to stop; it is asked between two merges.
        :returns: how many rows stood in the queue, and how many of them were copied.
        """
        if (version := self._table.version()) != self._version:
            self._version, self._known = version, {}
        self._known, others = self._database.retried(self._look)
        self._reached = True
        fail_points.step(fail_points.ROWS_LOOKED_AT)
        rows, copied = len(self._known) + len(others), 0
        for piece in portions(others, lambda row: row.size, _MOST_ROWS, _MOST_BYTES):
            if is_asked():
                break
            copied += self._copy(piece)
        return rows, copied

    def _look(self) -> tuple[dict[int, str], list[Present]]:
        """The rows of the queue that are known, and the others. A row that has gone is forgotten."""
        known: dict[int, str] = {}
        others: list[Present] = []
        for row in present_rows(self._options, again=self._reached):
            if self._known.get(row.row_version) == row.id:
                known[row.row_version] = row.id
            else:
                others.append(row)
        return known, others

    def _copy(self, looked_at: list[Present]) -> int:
        missing = self._table.missing([row.id for row in looked_at])
        self._known |= {row.row_version: row.id for row in looked_at if row.id not in missing}
        wanted = RowSet.of(row.row_version for row in looked_at if row.id in missing)
        if not len(wanted):
            return 0
        # Rows that were merged are looked up next time. They are not noted here: fewer rows may be read than
        # were looked at, because a receiver may hold a row and give it back.
        copied = self._table.merge(archived(self._read(wanted)))
        before, after = self._version, self._table.version()
        if copied and before is not None and after is not None and after.number == before.number + 1:
            self._version = after  # no other commit is in between
        fail_points.step(fail_points.ROWS_COPIED)
        return copied
