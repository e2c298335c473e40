"""Reports the batches of a query: a line for each, totals at the end, and logged batches to its source.

A listener that fails shows a stack trace in place of a line. So the report never fails: what it cannot read
it shows as ``?`` or leaves out.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark.options.own_file import OwnFile
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

Details = Callable[[int], str]
#: What a source reports of what waits: its type, and what several queues report together.
_OF_ALL: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "rows": (int, sum),
    "movedOn": (int, sum),
    "oldestSeconds": (int, max),
    "lookedAt": (str, min),
}


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a finished run did; ``steady`` is its rate (1/s) after the first batch, which starts workers.

    ``stopped`` is whether the run was asked to end.
    """

    messages: int
    batches: int
    seconds: float
    steady: float | None
    stopped: bool = False

    def __str__(self) -> str:
        """Everything but the number of messages, as ``key=value``."""
        rate = round(self.messages / self.seconds) if self.seconds else 0
        steady = "" if self.steady is None else f" steady={round(self.steady)}/s"
        return f"batches={self.batches} seconds={self.seconds:.1f} rate={rate}/s{steady}"


def progress_line(progress: StreamingQueryProgress) -> str:
    """One batch as ``key=value``; ``?`` in a replay, where Spark does not ask how many messages wait.

    ``looked`` is the time of the look at what waits, where that was before the batch.
    """
    seconds = _seconds(progress)
    rate = round(progress.numInputRows / seconds) if seconds else 0
    waiting = _reported(progress)
    oldest = waiting.get("oldestSeconds")
    return (
        f"batch={progress.batchId} messages={progress.numInputRows} rate={rate}/s "
        f"waiting={waiting.get('rows', '?')} oldest={'?' if oldest is None else oldest}s"
        + (f" looked={waiting['lookedAt']}" if "lookedAt" in waiting else "")
    )


def ends_of(progress: StreamingQueryProgress) -> list[dict[str, Any]]:
    """The end offsets of a batch that are JSON objects, as those of a queue are."""
    return [end for source in progress.sources if (end := _object(source.endOffset)) is not None]


class BatchReport(StreamingQueryListener):
    """Reports the batches of one query that had rows, and writes the end of each batch into ``done_file``.

    Spark reports a batch when its commit log has it. The parameters are those of ``run_until_stopped``.
    """

    def __init__(
        self,
        query_id: str,
        report: Callable[[str], None],
        *,
        done_file: Path | None = None,
        details: Details = lambda _: "",
    ) -> None:
        self._query_id = query_id
        self._report = report
        self._done_file = done_file
        self._details = details
        self._lock = threading.Lock()  # events come on one thread, and catch_up is called on another
        self._last = -1
        self._told = -1
        #: The ends that the source was told, the last two.
        self._ends: list[list[dict[str, Any]]] = [[]]
        self._batches = self._messages = self._moved_on = 0
        self._seconds = 0.0
        self._first = (0, 0.0)  # messages and seconds
        self.ended = threading.Event()

    def catch_up(self, query: StreamingQuery) -> None:
        """Add the batches of which the listener has not heard."""
        for progress in query.recentProgress:
            self._add(progress)

    def totals(self, seconds: float, *, stopped: bool) -> Totals:
        later, lasted = self._messages - self._first[0], self._seconds - self._first[1]
        steady = later / lasted if later and lasted else None
        return Totals(
            messages=self._messages, batches=self._batches, seconds=seconds, steady=steady, stopped=stopped
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.id) == self._query_id:
            self._add(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.id) == self._query_id:
            self.ended.set()

    def _add(self, progress: StreamingQueryProgress) -> None:
        with self._lock:
            self._tell_source(progress)
            if not progress.numInputRows or progress.batchId <= self._last:
                return
            self._last = progress.batchId
            self._batches += 1
            self._messages += progress.numInputRows
            self._seconds += _seconds(progress)
            if self._batches == 1:
                self._first = self._messages, self._seconds
            self._report(progress_line(progress) + self._moved(progress) + self._more(progress.batchId))

    def _moved(self, progress: StreamingQueryProgress) -> str:
        """How many messages in transit were moved on since the last line; empty where none was."""
        more = _reported(progress).get("movedOn", 0) - self._moved_on
        self._moved_on += max(more, 0)
        return f" moved_on={more}" if more > 0 else ""

    def _tell_source(self, progress: StreamingQueryProgress) -> None:
        """Write where the last logged batch ends; a trigger without data has that end and the next number.

        Their times tell no order: the clock may have been set back.
        """
        if self._done_file is None or progress.batchId < self._told:
            return
        self._told = progress.batchId
        ends = ends_of(progress)
        if ends in self._ends:  # also that before, of a trigger whose event came late
            return
        self._ends = [self._ends[-1], ends]
        try:
            OwnFile(self._done_file).write(json.dumps(ends))
        except OSError as error:  # the source settles when Spark asks for the next batch
            log.warning("done_file_not_written file=%s: %s", self._done_file, error)

    def _more(self, batch: int) -> str:
        try:
            said = self._details(batch)
        except Exception:  # the caller's function may raise anything, and the line must appear
            log.warning("no_details batch=%d", batch, exc_info=True)
            return ""
        return f" {said}" if said else ""


def _seconds(progress: StreamingQueryProgress) -> float:
    """How long a batch lasted: at least no time, as Spark takes it from a clock that may be set back."""
    return float(max(0, progress.durationMs.get("triggerExecution", 0))) / 1000


def _reported(progress: StreamingQueryProgress) -> dict[str, Any]:
    """What the queues of a query report of what waits, together; empty where Spark does not say it."""
    said = [_object(source.latestOffset) or {} for source in progress.sources]
    told: dict[str, Any] = {}
    for name, (kind, of_all) in _OF_ALL.items():
        if found := [each[name] for each in said if "rows" in each and isinstance(each.get(name), kind)]:
            told[name] = of_all(found)
    return told


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
