"""A query that runs until it is done or asked to stop: a line a batch, a stop between batches, totals at the end."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a finished run did. ``steady`` is messages a second after the first batch, which starts the workers."""

    messages: int
    batches: int
    seconds: float
    steady: float | None

    def __str__(self) -> str:
        """All but the messages, as ``key=value``."""
        rate = round(self.messages / self.seconds) if self.seconds else 0
        steady = "" if self.steady is None else f" steady={round(self.steady)}/s"
        return f"batches={self.batches} seconds={self.seconds:.1f} rate={rate}/s{steady}"


@contextmanager
def stoppable(source: Mapping[str, str]) -> Iterator[tuple[dict[str, str], Path]]:
    """A source's options with a ``stopFile``, and that file: their own, or one that lasts as long as the block."""
    named = next((value for name, value in source.items() if name.lower() == "stopfile"), None)
    with tempfile.TemporaryDirectory(prefix="sqlqueue-") as folder:
        stop_file = Path(named or Path(folder) / "stop")
        others = {name: value for name, value in source.items() if name.lower() != "stopfile"}
        yield {**others, "stopFile": str(stop_file)}, stop_file


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
