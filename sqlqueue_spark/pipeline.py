"""Source → transform → sink, put together: what a job, a notebook and a test run is the same few lines.

::

    query = write_delta(with_message_columns(read_queue(spark, options)), delta)
    run_until_stopped(spark, query, stop_file)
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark import functions
from sqlqueue_spark.declaring import Options, boolean, option, text

_OURS = re.compile(r"sqlqueue_spark\.errors\.\w+: (?P<sentence>.+)")
_CALLING = re.compile(r"\AAn error occurred while calling \S+\.\n: ")


@dataclass(frozen=True, kw_only=True)
class DeltaOptions(Options):
    """Where a stream's rows go."""

    path: str = option("Folder of the Delta table.", parse=text)
    checkpoint: str = option("Folder of the stream's checkpoint; one queue, one Delta table, one checkpoint.", parse=text)  # fmt: skip
    available_now: bool = option("Take what is there now and end, instead of running on.", parse=boolean, default=False, shown="`false`")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a finished run did. ``steady`` is messages a second after the first batch, which starts the workers."""

    messages: int
    batches: int
    seconds: float
    steady: float | None


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


def write_delta(messages: DataFrame, delta: DeltaOptions) -> StreamingQuery:
    """Start writing a stream into a Delta table, exactly once: Delta drops a batch that it already has."""
    writer = (
        messages.writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", delta.checkpoint)
    )
    if delta.available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start(delta.path)


def run_until_stopped(
    spark: SparkSession, query: StreamingQuery, stop_file: Path, report: Callable[[str], None] = print
) -> Totals:
    """Wait for a query, report each batch in a line, and stop it between batches on SIGTERM or SIGINT.

    :param stop_file: the source's option ``stopFile``; it is made when a signal comes, so that the source settles
        what it holds and claims no more, and removed at the end. Somebody else may make it, to the same effect.
    :raises pyspark.errors.StreamingQueryException: the query failed.
    """
    progress = _Progress(query.id, report)
    spark.streams.addListener(progress)
    began = time.monotonic()
    try:
        with _Signals(spark) as asked:
            will_hear = query.isActive
            while not query.awaitTermination(1):
                if asked.is_set() or stop_file.exists():
                    stop_file.touch()
                    query.processAllAvailable()
                    query.stop()
        if will_hear:
            progress.ended.wait(10)  # events come on another thread, a little later
        progress.catch_up(query)
    finally:
        spark.streams.removeListener(progress)
        stop_file.unlink(missing_ok=True)
    return progress.totals(time.monotonic() - began)


def sentence_of(error: BaseException) -> str:
    """The one sentence of ours in an error that came through Spark, or the first line of somebody else's."""
    found = list(_OURS.finditer(str(error)))
    if found:
        return found[-1]["sentence"]
    said = _CALLING.sub("", str(error)).strip()
    return (said.splitlines() or [type(error).__name__])[0]


def progress_line(progress: StreamingQueryProgress) -> str:
    """One batch as ``key=value``: messages, messages a second, messages waiting, age of the oldest in seconds."""
    seconds = _seconds(progress)
    rate = round(progress.numInputRows / seconds) if seconds else 0
    waiting: dict[str, Any] = json.loads(progress.sources[0].latestOffset or "null") or {}
    return (
        f"batch={progress.batchId} messages={progress.numInputRows} rate={rate}/s "
        f"waiting={waiting.get('rows', '?')} oldest={waiting.get('oldestSeconds', '?')}s"
    )


def _seconds(progress: StreamingQueryProgress) -> float:
    return float(progress.durationMs.get("triggerExecution", 0)) / 1000


class _Work(NamedTuple):
    messages: int = 0
    seconds: float = 0.0


class _Progress(StreamingQueryListener):
    """Reports the batches of one query that had rows."""

    def __init__(self, query_id: str, report: Callable[[str], None]) -> None:
        self._query_id = str(query_id)
        self._report = report
        self._last = -1
        self._batches = 0
        self._first = self._sum = _Work()
        self.ended = threading.Event()

    def catch_up(self, query: StreamingQuery) -> None:
        """Report what was done before anybody listened: a short query may end as soon as it is started."""
        for progress in query.recentProgress:
            self._add(progress)

    def totals(self, seconds: float) -> Totals:
        later = _Work(self._sum.messages - self._first.messages, self._sum.seconds - self._first.seconds)
        return Totals(
            messages=self._sum.messages,
            batches=self._batches,
            seconds=seconds,
            steady=later.messages / later.seconds if later.messages and later.seconds else None,
        )

    def _add(self, progress: StreamingQueryProgress) -> None:
        if not progress.numInputRows or progress.batchId <= self._last:
            return
        self._last = progress.batchId
        self._batches += 1
        work = _Work(progress.numInputRows, _seconds(progress))
        self._first = self._first if self._batches > 1 else work
        self._sum = _Work(self._sum.messages + work.messages, self._sum.seconds + work.seconds)
        self._report(progress_line(progress))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.id) == self._query_id:
            self._add(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.id) == self._query_id:
            self.ended.set()


class _Signals:
    """Turns SIGTERM and SIGINT into a flag, in this process and in the JVM that spark-submit runs us under.

    Left alone, the JVM would end the Spark context in the middle of a batch: safe, but not clean.
    """

    class _Handler:
        def __init__(self, asked: threading.Event) -> None:
            self._asked = asked

        def handle(self, received: object) -> None:  # noqa: ARG002 -- the interface's parameter
            self._asked.set()

        class Java:
            implements = ["sun.misc.SignalHandler"]  # noqa: RUF012 # py4j's protocol

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._asked = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> threading.Event:
        for number in (signal.SIGTERM, signal.SIGINT):
            if threading.current_thread() is threading.main_thread():
                self._before[number] = signal.signal(number, self._ask)
        for name in ("TERM", "INT"):  # a terminal's Ctrl-C goes to every process
            self._handle_in_jvm(name)
        return self._asked

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- a handler's parameters
        self._asked.set()

    def _handle_in_jvm(self, name: str) -> None:
        jvm = getattr(self._spark, "_jvm", None)
        if jvm is None:  # Spark Connect: the JVM is elsewhere and none of ours
            return
        from pyspark.java_gateway import ensure_callback_server_started

        gateway = self._spark.sparkContext._gateway  # noqa: SLF001 -- Spark's own foreachBatch does the same
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # as pyspark left it
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), self._Handler(self._asked))
