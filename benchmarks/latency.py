"""How long a message takes from its insert to the commit of its batch, and how soon a job has its first rows:
`make bench-latency`.

A sender inserts one row a transaction at a steady rate. A watcher asks the queue for its lowest row all the
time: what lies below it is committed. The output is the tables of benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from machine import add_url, checkpoint, database, run_by, session
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from servers import QUEUE, Server

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline import DeltaOptions, drain_to_delta, read_queue, run_until_stopped, stoppable
from sqlqueue_spark.row_set import LOWEST
from sqlqueue_spark.tables import queues

#: A stream's first batches start its workers.
_WARM_UP = 20
_LOOK_EVERY = 0.005
_ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="messages a second")
    parser.add_argument("--seconds", type=int, default=60, help="how long each sink is measured")
    parser.add_argument("--rounds", type=int, default=3, help="how often the first rows are waited for")
    parser.add_argument("--only", choices=["latency", "first"], help="one part")
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        if chosen.only in (None, "latency"):
            latency(server, chosen.rate, chosen.seconds)
        if chosen.only in (None, "first"):
            first_rows(server, chosen.rounds)


def latency(server: Server, rate: int, seconds: int) -> None:
    """From insert to commit, into ``noop`` and into Delta."""
    spark = session(server, delta=True)
    print(f"\n| {rate} messages/s, {seconds} s | p50, ms | p99, ms |\n|---|---|---|")
    for sink in ("noop", "Delta"):
        server.fill(0)
        with running(spark, server, sink):
            took = Traffic(server, rate).run(_WARM_UP + seconds)[_WARM_UP * rate :]
        cuts = statistics.quantiles(took, n=100)
        print(f"| {sink} | {cuts[49] * 1e3:,.0f} | {cuts[98] * 1e3:,.0f} |", flush=True)
    spark.stop()


@contextmanager
def running(spark: SparkSession, server: Server, sink: str) -> Iterator[None]:
    """The queue as the jobs run it: they settle a batch as soon as Spark has logged it."""
    with checkpoint() as folder, stoppable({"url": server.url, "queue": QUEUE}) as given:
        source, stop_file, done_file = given
        query = started(spark, source, sink, folder)
        ended = threading.Thread(
            target=run_until_stopped,
            args=(spark, query, stop_file, lambda _: None),
            kwargs={"done_file": done_file},
        )
        ended.start()
        try:
            yield
        finally:
            stop_file.touch()
            ended.join()


def started(spark: SparkSession, source: Mapping[str, str], sink: str, folder: str) -> StreamingQuery:
    if sink == "noop":
        rows = read_queue(spark, source)
        return rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint").start()
    delta = DeltaOptions(path=f"{folder}/delta", checkpoint=f"{folder}/checkpoint")
    return drain_to_delta(spark, source, delta)


class Traffic:
    """Messages that come one by one, and when each one has left the queue for good."""

    def __init__(self, server: Server, rate: int) -> None:
        self._server = server
        self._rate = rate
        self._sent: list[float] = []
        self._gone: list[float] = []
        self._over = threading.Event()

    def run(self, seconds: int) -> list[float]:
        """Seconds from insert to commit of each message, in their order."""
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        self._send(seconds)
        while len(self._gone) < len(self._sent):
            time.sleep(0.1)
        self._over.set()
        watcher.join()
        return [gone - sent for sent, gone in zip(self._sent, self._gone, strict=True)]

    def _send(self, seconds: int) -> None:
        began = time.perf_counter()
        with self._server.sending() as send:
            for number in range(self._rate * seconds):
                time.sleep(max(0.0, began + number / self._rate - time.perf_counter()))
                send()
                self._sent.append(time.perf_counter())

    def _watch(self) -> None:
        options = SourceOptions.parse({"url": self._server.url, "queue": QUEUE})
        target = Target.of(options)
        with connect(target) as connection:
            with connection.transaction():
                queue = queues.get(connection, QUEUE, options.naming(target.dialect))
            while not self._over.wait(_LOOK_EVERY):
                sent = len(self._sent)
                with connection.transaction():
                    there = queue.waiting(LOWEST)
                now = time.perf_counter()
                left = sent if there is None else min(sent, there.first - 1)  # rows are numbered from 1
                self._gone.extend([now] * (left - len(self._gone)))


def first_rows(server: Server, rounds: int) -> None:
    """From the start of the job to its first rows in Delta, for a queue of 1,000 messages;
    with each of its starters.
    """
    programs = Path(sys.executable).parent
    drain = [str(programs / "sqlqueue"), "drain"]
    submit = [str(programs / "spark-submit"), "jobs/drain_to_delta.py"]
    with checkpoint() as cache:
        starters = {
            "`sqlqueue drain`": (drain, {"XDG_CACHE_HOME": cache}),
            "`spark-submit jobs/drain_to_delta.py`": (submit, {"SPARK_CONF_DIR": "conf"}),
        }
        _compare_starts(server, starters, rounds)


def _compare_starts(
    server: Server, starters: Mapping[str, tuple[Sequence[str], Mapping[str, str]]], rounds: int
) -> None:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in starters}
    for _ in range(rounds + 1):
        for name, (command, environment) in starters.items():
            server.fill(1_000)
            measured[name].append(_job_seconds(server, command, environment))
    print(
        f"\n| a queue of 1,000, median of {rounds}, s | first rows in Delta | the job's end |\n|---|---|---|"
    )
    for name, times in measured.items():
        first, end = (statistics.median(each) for each in zip(*times[1:], strict=True))
        print(f"| {name} | {first:.1f} | {end:.1f} |")


def _job_seconds(
    server: Server, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[float, float]:
    """From its start to the line of its first batch, and to its end."""
    began = time.perf_counter()
    with checkpoint() as folder:
        flags = [
            "--queue",
            QUEUE,
            "--available-now",
            "--path",
            f"{folder}/delta",
            "--checkpoint",
            f"{folder}/checkpoint",
        ]
        with subprocess.Popen(
            [*command, *flags],
            cwd=_ROOT,
            env={**os.environ, "SQLQUEUE_URL": server.url, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as job:
            first = next(
                (time.perf_counter() - began for line in job.stdout or () if line.startswith("batch=")), None
            )
        assert first is not None, "the job has said nothing of a batch"
        return first, time.perf_counter() - began


if __name__ == "__main__":
    main()
