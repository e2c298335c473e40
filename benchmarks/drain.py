"""How fast a queue drains, as ratios within one run, and what it costs to keep: `make bench-drain`.

Everything runs here and now on the same machine, the same PostgreSQL server (from the wheel) and the same 0.7 KB
messages: our stream into `noop`, Spark's JDBC source merely reading the rows, one client's DELETE … RETURNING, and
one-row receivers in C (pgbench). Rounds are interleaved and medians compared, because machines are noisy. The output
is the tables of benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from machine import checkpoint, database, drained, rate_of, run_by, session, stream
from pyspark.sql import SparkSession
from queue_under_test import (
    QUEUE,
    came_and_went,
    checkpoint_now,
    fill,
    one_delete,
    one_row_receivers,
    scans,
    take_half,
)

from sqlqueue_spark.connections import Target
from sqlqueue_spark.offsets import INITIAL
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver, SliceReader

#: What README recommends for bulk work on two cores.
BULK = {"maxConcurrency": "2", "maxMessagesPerTrigger": "500000"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="backlog of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["compare", "flat", "small"], help="one part")
    chosen = parser.parse_args()
    print(run_by())
    with database() as url:
        spark = session()
        if chosen.only in (None, "compare"):
            compare(spark, url, chosen.messages, chosen.rounds)
        if chosen.only in (None, "flat"):
            flatness(url)
        if chosen.only in (None, "small"):
            footprint(spark, url)
            idle(spark, url)
        spark.stop()


def compare(spark: SparkSession, url: str, count: int, rounds: int) -> None:
    """Ours against the others, in rounds."""
    measures: dict[str, Callable[[], float]] = {
        "our stream, as it comes": lambda: ours(spark, url),
        "our stream, set for bulk": lambda: ours(spark, url, **BULK),
        "(a) Spark's JDBC source, merely reading, 2 connections": lambda: jdbc(spark, url, count, 2),
        "(a) Spark's JDBC source, merely reading, as it comes": lambda: jdbc(spark, url, count, 1),
        "(b) one client's DELETE … RETURNING": lambda: one_delete(url),
        "(c) one-row receivers, 1 connection": lambda: one_row_receivers(url, 1, seconds=5),
        "(c) one-row receivers, 8 connections": lambda: one_row_receivers(url, 8, seconds=5),
    }
    measured: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            small = "one-row" in name or "DELETE" in name
            fill(url, min(count, 300_000) if small else count)
            rate = measure()
            if number:  # the first round warms up the JVM, the workers and the disk
                measured[name].append(rate)
                print(f"  round {number}: {name:54} {rate:>10,.0f}/s", file=sys.stderr, flush=True)
    middle = {name: statistics.median(rates) for name, rates in measured.items()}
    best = middle["our stream, set for bulk"]
    print(f"\n{count:,} messages, median of {rounds} rounds\n\n| | messages/s | bulk ÷ it |\n|---|---|---|")
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {best / rate:.2f} |")


def ours(spark: SparkSession, url: str, **options: str) -> float:
    """Messages a second of a steady stream: claim, read, delete, commit."""
    return rate_of(drained(stream(spark, url, **options).writeStream.format("noop")))


def jdbc(spark: SparkSession, url: str, count: int, partitions: int) -> float:
    """Messages a second of Spark's JDBC source merely reading the same rows; by itself it takes one partition."""
    rows = spark.read.jdbc(
        f"jdbc:postgresql://{url.partition('@')[2]}",
        QUEUE,
        column="seq",
        lowerBound=1,
        upperBound=count + 1,
        numPartitions=partitions,
        properties={"user": "postgres", "driver": "org.postgresql.Driver", "fetchsize": "10000"},
    )
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began)


def flatness(url: str) -> None:
    """Cost a message against the backlog and against the table's past; without Spark, whose fixed cost would hide it."""
    fill(url, 10_000)
    cost(url, 1_000)  # what is done for the first time takes longer
    backlogs: dict[str, tuple[float, float]] = {}
    for size in (10_000, 100_000, 1_000_000):
        measured = []
        for _ in range(3):
            fill(url, size)
            measured.append(cost(url, 1_000))
        backlogs[f"backlog of {size:,}"] = sorted(measured)[1]
    told("Batches of 1,000 through the core, median of 9, of three backlogs the middle one", backlogs)
    pasts: dict[str, tuple[float, float]] = {}
    for name, rows, vacuum in (
        ("new", 0, True),
        ("10,000,000 came and went, with autovacuum", 10_000_000, True),
        ("10,000,000 came and went, never vacuumed", 10_000_000, False),
    ):
        fill(url, 0)
        came_and_went(url, rows, vacuum=vacuum)
        fill(url, 100_000, new_table=False)
        pasts[name] = cost(url, 10_000)
    told("A backlog of 100,000 in batches of 10,000, median of 9, in a table that is", pasts)


def told(title: str, costs: dict[str, tuple[float, float]]) -> None:
    base, _ = next(iter(costs.values()))
    print(f"\n{title}\n\n| | µs a message | against the first | first look, ms |\n|---|---|---|---|")
    for name, (each, first) in costs.items():
        print(f"| {name} | {each:.1f} | {each / base - 1:+.0%} | {first:.0f} |")


def cost(url: str, rows: int) -> tuple[float, float]:
    """Microseconds a message of the second to tenth batch of so many rows, and milliseconds of the first claim."""
    options = SourceOptions.parse({"url": url, "queue": QUEUE, "claimAhead": "false"})
    receiver, reader = Receiver(options), SliceReader(Target.of(options))
    start, times, first = INITIAL, [], 0.0
    for number in range(10):
        began = time.perf_counter()
        end = receiver.latest(start, rows)
        claimed = time.perf_counter()
        read = sum(batch.num_rows for part in receiver.plan(start, end) for batch in reader.read(part))
        receiver.settle(end)
        times.append((time.perf_counter() - began) / read * 1e6)
        start = end
        if not number:
            first = (claimed - began) * 1000
            come_to_rest(
                url
            )  # the first look leaves marks on what it steps over, which are being written still
    receiver.close()
    return statistics.median(times[1:]), first


def come_to_rest(url: str) -> None:
    """Nothing is being written any more, and no row is in the processor's caches, where a small table would fit in whole."""
    checkpoint_now(url)
    memory = bytearray(512 << 20)
    assert sum(memory[::64]) == 0


def footprint(spark: SparkSession, url: str) -> None:
    """Memory of the reader's process and size of the offset, for claims of a million rows."""
    print("\n| a claim of 1,000,000 rows | reader's peak memory, MB | offset, bytes a row |\n|---|---|---|")
    for name in ("contiguous", "every second row", "a random half of the rows"):
        fill(url, 1_000_000 if name == "contiguous" else 2_010_000)
        if name != "contiguous":
            take_half(url, at_random="random" in name)
        with watched_reader() as peak:
            rows = stream(spark, url, maxMessagesPerTrigger="1000000", maxBytesPerTrigger="10g")
            query = drained(rows.writeStream.format("noop"))
        batch = next(each for each in query.recentProgress if each.numInputRows)
        assert batch.numInputRows == 1_000_000
        print(f"| {name} | {peak()} | {len(batch.sources[0].endOffset) / 1_000_000:.4f} |")


def idle(spark: SparkSession, url: str) -> None:
    """What a stream over an empty queue costs, by default settings."""
    seconds = 30
    fill(url, 0)
    with checkpoint() as folder:
        query = stream(spark, url).writeStream.format("noop").option("checkpointLocation", folder).start()
        time.sleep(10)  # until the pauses have grown to pollInterval
        reader = reader_process()
        scans_before, cpu_before = scans(url), sum(reader.cpu_times()[:2])
        time.sleep(seconds)
        cpu = sum(reader.cpu_times()[:2]) - cpu_before
        looks = scans(url) - scans_before
        query.stop()
    print(f"\n| an idle stream, {seconds} s | |\n|---|---|")
    print(f"| scans of the table a second | {looks / seconds:.2f} |")
    print(f"| reader, share of a core | {cpu / seconds:.1%} |")


@contextmanager
def watched_reader() -> Iterator[Callable[[], int]]:
    """Yields what tells, after the block, the peak memory in MB of the reader that ran in it."""
    peaks, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            try:
                status = Path(f"/proc/{reader_process().pid}/status").read_text()
            except (OSError, StopIteration, psutil.Error):
                continue
            lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            peaks.append(int(lines.get("VmHWM", "0 kB").split()[0]) // 1024)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: max(peaks)
    finally:
        over.set()
        thread.join()


def reader_process() -> psutil.Process:
    """The process on the driver in which the stream's reader lives."""
    return next(
        each
        for each in psutil.Process().children(recursive=True)
        if any("python_streaming_source_runner" in part for part in each.cmdline())
    )


if __name__ == "__main__":
    main()
