"""Runs a query until it is done or asked to stop: it stops between two batches, and reports each."""

import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.running.batch_report import BatchReport, Details, Totals
from sqlqueue_spark.plain_text import is_terminal
from sqlqueue_spark.receive.holding.done_file import GIVEN_BACK, RECEIVED, file_beside

#: What Java says of a child that a signal has ended: 2 and 15 while it starts, 128 more while it is awaited.
#: Hadoop runs ``chmod`` for each file of a local checkpoint, and a terminal's Ctrl-C also goes to ``chmod``.
CHILD_ENDED = re.compile(
    r"Failed to exec spawn helper: pid: \d+, signal: (?:2|15)\b|ExitCodeException exitCode=(?:130|143)\b"
)

#: A stop waits for the batch before, the one under way, and one that was claimed when the stop file came. It
#: waits no longer where ten looks in a row find Spark at rest: the next trigger is far away then.
_BATCHES, _RESTING, _LOOK_SECONDS = 4, 10, 0.2


@contextmanager
def stoppable(source: Mapping[str, str]) -> Iterator[tuple[dict[str, str], Path, Path]]:
    """A source's options with a ``stopFile`` and a ``doneFile`` in them, and the paths of both files.

    Files that the options do not name are temporary and last as long as the block. A ``doneFile`` of an
    earlier run is removed: it names batches that this run may have to do again.
    """
    with tempfile.TemporaryDirectory(prefix="sqlqueue-") as folder:
        stop_file = Path(said(source, "stopFile") or Path(folder) / "stop")
        done_file = Path(said(source, "doneFile") or Path(folder) / "done")
        told = (done_file, file_beside(done_file, GIVEN_BACK), file_beside(done_file, RECEIVED))
        for each in told:
            each.unlink(missing_ok=True)
        others = {name: each for name, each in source.items() if name.lower() not in ("stopfile", "donefile")}
        yield {**others, "stopFile": str(stop_file), "doneFile": str(done_file)}, stop_file, done_file
        for each in told:
            each.unlink(missing_ok=True)


def run_until_stopped(
    spark: SparkSession,
    query: StreamingQuery,
    stop_file: Path,
    report: Callable[[str], None] = print,
    *,
    done_file: Path | None = None,
    details: Details = lambda _: "",
) -> Totals:
    """Wait for a query, report each batch in a line, and stop it between batches on SIGTERM or SIGINT.

    :param stop_file: the source's option ``stopFile``. A signal makes the file, and the source settles what
        it holds and claims no more. Another program may make it too. At the end the file is removed.
    :param done_file: the source's option ``doneFile``: which batch Spark has logged is written into it, so
        that the source settles the batch at once and not with the next trigger.
    :param details: given the number of a batch, adds to its line.
    :raises pyspark.errors.StreamingQueryException: the query failed.
    """
    batches = BatchReport(str(query.id), report, done_file=done_file, details=details)
    spark.streams.addListener(batches)
    began = time.monotonic()
    try:
        with asked_to_stop(spark) as asked:
            will_hear = query.isActive
            try:
                while not query.awaitTermination(1):
                    if asked.is_set() or stop_file.exists():
                        with suppress(FileExistsError):  # where it is a link, that is not followed
                            stop_file.parent.mkdir(0o700, parents=True, exist_ok=True)  # /tmp is cleaned
                            stop_file.touch(exist_ok=False)
                        _let_batch_end(query)
                        batches.catch_up(query)  # tells the source of its last batch before it is closed
                        query.stop()
            except StreamingQueryException as error:
                if not (asked.is_set() and CHILD_ENDED.search(str(error))):
                    raise
                report(
                    "stopped within a batch: the signal also ended a program that Spark had started; the "
                    "next start does the batch again"
                )
        stopped = asked.is_set() or stop_file.exists()
        if will_hear:
            batches.ended.wait(10)  # the events come on another thread, a little later
        batches.catch_up(query)
    finally:
        spark.streams.removeListener(batches)
        stop_file.unlink(missing_ok=True)
    return batches.totals(time.monotonic() - began, stopped=stopped)


def _let_batch_end(query: StreamingQuery) -> None:
    """Wait until the batch under way is done. Behind Spark Connect the source may not see the stop file.

    Other sources of the query do not look for it, and may have rows for ever. The next trigger may be far.
    """
    if not is_remote():

        def all_available() -> None:
            with suppress(Exception):  # what ends the query is raised to those who wait for its end
                query.processAllAvailable()

        waiting = threading.Thread(target=all_available, daemon=True)
        waiting.start()
        told, resting = [query.lastProgress], 0
        while waiting.is_alive() and len(told) < _BATCHES and resting < _RESTING:
            waiting.join(_LOOK_SECONDS)
            resting = 0 if query.status["isTriggerActive"] else resting + 1
            if (last := query.lastProgress) != told[-1]:
                told.append(last)
        return
    last, end = query.lastProgress, time.monotonic() + 60  # it may wait for a database that is down
    while query.status["isDataAvailable"] and query.lastProgress == last and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


@contextmanager
def asked_to_stop(spark: SparkSession) -> Iterator[threading.Event]:
    """Turn SIGTERM and SIGINT into a flag within the block, here and in the JVM, and say so at once.

    Else the JVM would end the Spark context in the middle of a batch, which is safe but not clean. Behind the
    block signals do what they did before it.
    """
    asked, first = threading.Event(), threading.Lock()
    below = "\n" if is_terminal(sys.stderr) else ""  # the ^C of the terminal
    # A thread of its own says it: the signal may have interrupted a line that this one writes.
    said = f"{below}Stops after the batch under way."
    saying = threading.Thread(target=click.echo, args=(said,), kwargs={"err": True})

    def ask(*_: object) -> None:
        asked.set()
        if first.acquire(blocking=False):
            saying.start()

    here = threading.current_thread() is threading.main_thread()  # no other thread may handle signals
    numbers = (signal.SIGTERM, signal.SIGINT) if here else ()
    before = {number: signal.signal(number, ask) for number in numbers}
    jvm: Any = getattr(spark, "_jvm", None)
    in_java = []
    if jvm is not None:  # else it is Spark Connect, and the JVM is elsewhere and not ours
        from pyspark.java_gateway import ensure_callback_server_started

        gateway = spark.sparkContext._gateway  # noqa: SLF001 -- Spark's own foreachBatch does the same
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # as pyspark left it
        for name in ("TERM", "INT"):  # a terminal's Ctrl-C goes to every process
            its, java = jvm.sun.misc.Signal(name), SimpleNamespace(implements=["sun.misc.SignalHandler"])
            proxy = SimpleNamespace(handle=ask, Java=java)  # py4j's protocol
            in_java.append((its, jvm.sun.misc.Signal.handle(its, proxy)))
    try:
        yield asked
    finally:
        for its, handler in in_java:
            with suppress(Py4JError):  # Java has ended
                jvm.sun.misc.Signal.handle(its, handler)
        for number, handler in before.items():
            signal.signal(number, handler)
        if saying.ident is not None:  # it was started
            saying.join()
