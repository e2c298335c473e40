"""How fast a queue drains, as ratios within one run, and what it costs to keep: `make bench-drain`.

Everything runs here and now on the same machine, the same PostgreSQL server (from the wheel) and the same 0.7
KB messages: our stream into `noop`, Spark's JDBC source merely reading the rows, one client's DELETE …
RETURNING, and one-row receivers in C (pgbench); and our job into Delta against the JDBC source into Delta.
Rounds are interleaved and medians compared, because machines are noisy. The output is the tables of
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from machine import (
    COMPARISONS,
    add_url,
    checkpoint,
    compared,
    database,
    drained,
    rate_of,
    run_by,
    session,
    stream,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from servers import QUEUE, Server

from sqlqueue_spark import functions
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline import DeltaOptions, drain_to_delta, run_until_stopped, stoppable
from sqlqueue_spark.receive import Receiver, SliceReader
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues

#: How often the tables whose cost is to be flat are filled anew.
ROUNDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="backlog of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parts = ["compare", "delta", "flat", "memory", "queues", "small", "read"]
    parser.add_argument("--only", choices=parts, help="one part")
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        if chosen.only in (None, "read"):
            reading(server, min(chosen.messages, 100_000), chosen.rounds)
        if chosen.only == "read":
            return  # which needs no Spark
        spark = session(server, delta=chosen.only in (None, "delta", "memory"))
        if chosen.only in (None, "delta"):
            into_delta(spark, server, chosen.messages, chosen.rounds)
        if chosen.only in (None, "compare"):
            compare(spark, server, chosen.messages, chosen.rounds)
        if chosen.only in (None, "queues"):
            several(spark, server, chosen.messages, chosen.rounds)
        if chosen.only in (None, "flat"):
            flatness(server)
        if chosen.only in (None, "memory"):
            memory(spark, server, 10_000_000)
        if chosen.only in (None, "small"):
            footprint(spark, server)
            idle(spark, server)
        spark.stop()


def compare(spark: SparkSession, server: Server, count: int, rounds: int) -> None:
    """Ours against the others, in rounds."""
    measures: dict[str, Callable[[], float]] = {
        "our stream": lambda: ours(spark, server),
        "(a) Spark's JDBC source, merely reading": lambda: jdbc(spark, server, count),
        "(b) one client's DELETE … RETURNING": server.one_delete,
        "(c) one-row receivers, 8 connections": lambda: server.one_row_receivers(8, seconds=5),
    }
    measured = _in_rounds(server, measures, count, rounds)
    print(_table(measured, count, rounds))
    ours_, read, *_ = map(statistics.median, measured.values())
    print(f"\n{COMPARISONS}")
    compared("a stream into noop, nothing set ÷ JDBC's mere read", ours_ / read, 0.9)


def several(spark: SparkSession, server: Server, count: int, rounds: int) -> None:
    """One stream over ten queues against the same rows in one queue."""
    names = [f"of ten {number}" for number in range(10)]
    spread = {
        "the same rows in one queue": {QUEUE: count},
        "a stream over ten queues": dict.fromkeys(names, count // 10),
        "a stream over ten queues, of which one has nearly all": {
            **dict.fromkeys(names, 10),
            names[0]: count,
        },
        "a stream over ten queues, of which nine are empty": {**dict.fromkeys(names, 0), names[0]: count},
    }
    rates: dict[str, list[float]] = {name: [] for name in spread}
    for number in range(rounds + 1):
        for name, rows in spread.items():
            for table, its in rows.items():
                server.fill(its, table)
            source = {"queue": QUEUE} if len(rows) == 1 else {"queues": json.dumps(names)}
            messages = spark.readStream.format("sqlqueue").options(url=server.url, **source).load()
            rate = rate_of(drained(messages.writeStream.format("noop")))
            if number:  # the first round warms up
                rates[name].append(rate)
                print(f"  round {number}: {name:54} {rate:>10,.0f}/s", file=sys.stderr, flush=True)
    print(f"\n{count:,} messages, median of {rounds} rounds\n\n| | messages/s | ÷ one queue |\n|---|---|---|")
    one = statistics.median(rates["the same rows in one queue"])
    for name, measured in rates.items():
        rate = statistics.median(measured)
        print(f"| {name} | {rate:,.0f} | {rate / one:.2f} |")


def into_delta(spark: SparkSession, server: Server, count: int, rounds: int) -> None:
    """Into Delta, from the start to the end, against what people use instead; the first batch is included."""
    measures: dict[str, Callable[[], float]] = {
        "our stream into Delta": lambda: streamed(spark, server, count),
        "our job into Delta": lambda: job(spark, server, count),
        "(a) the script that people write": lambda: script(spark, server, count),
        "(b) Spark's JDBC source into Delta": lambda: jdbc(spark, server, count, delta=True),
    }
    measured = _in_rounds(server, measures, count, rounds)
    print(_table(measured, count, rounds))
    ours_, job_, script_, copy = map(statistics.median, measured.values())
    print(f"\n{COMPARISONS}")
    for name, rate in (("a stream", ours_), ("the job", job_)):
        compared(f"{name} into Delta, nothing set ÷ the script that people write", rate / script_, 1.0)
        compared(f"{name} into Delta, nothing set ÷ JDBC's mere copy", rate / copy, 0.8)


def streamed(spark: SparkSession, server: Server, count: int) -> float:
    """Messages a second of the README's stream into Delta, with the columns of a message."""
    with checkpoint() as folder:
        messages = functions.with_message_columns(stream(spark, server))
        writer = messages.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
        began = time.perf_counter()
        writer.trigger(availableNow=True).start(f"{folder}/delta").awaitTermination()
        return count / (time.perf_counter() - began)


def script(spark: SparkSession, server: Server, count: int) -> float:
    """Messages a second of a script as people write it: copy up to the highest number, then delete those.

    It loses each row that was committed late, below that number.
    """
    to, number = server.jdbc(), server.row_version
    headers = ("NServiceBus.MessageId", "NServiceBus.EnclosedMessageTypes", "NServiceBus.TimeSent")
    told = {name.split(".")[1]: F.get_json_object("headers", f"$['{name}']") for name in headers}
    properties = {**to.properties, "fetchsize": "10000"}
    began = time.perf_counter()
    with checkpoint() as folder:
        highest = spark.read.jdbc(
            to.url, f"(SELECT max({number}) AS n FROM {QUEUE}) AS m", properties=properties
        )
        last = highest.head()["n"]  # type: ignore[index] # there are rows
        rows = spark.read.jdbc(
            to.url, f"(SELECT * FROM {QUEUE} WHERE {number} <= {last}) AS q", properties=properties
        )
        rows.withColumns(told).write.format("delta").save(f"{folder}/delta")
        server.delete_up_to(last)
        return count / (time.perf_counter() - began)


def _in_rounds(
    server: Server, measures: Mapping[str, Callable[[], float]], count: int, rounds: int
) -> dict[str, list[float]]:
    """The rates of each measure, one a round, over a queue that is filled before each."""
    measured: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            small = "one-row" in name or "DELETE" in name
            server.fill(min(count, 300_000) if small else count)
            rate = measure()
            if number:  # the first round warms up the JVM, the workers and the disk
                measured[name].append(rate)
                print(f"  round {number}: {name:54} {rate:>10,.0f}/s", file=sys.stderr, flush=True)
    return measured


def _table(measured: Mapping[str, Sequence[float]], count: int, rounds: int) -> str:
    """The medians, against that of our stream, which is the first measure."""
    middle = {name: statistics.median(rates) for name, rates in measured.items()}
    ours_ = next(iter(middle.values()))
    lines = [f"\n{count:,} messages, median of {rounds} rounds\n"]
    lines += ["| | messages/s | ours ÷ it |", "|---|---|---|"]
    lines += [f"| {name} | {rate:,.0f} | {ours_ / rate:.2f} |" for name, rate in middle.items()]
    return "\n".join(lines)


def ours(spark: SparkSession, server: Server, **options: str) -> float:
    """Messages a second of a steady stream: claim, read, delete, commit."""
    return rate_of(drained(stream(spark, server, **options).writeStream.format("noop")))


def job(spark: SparkSession, server: Server, count: int, **options: str) -> float:
    """Messages a second of jobs/drain_to_delta.py, its first batch included, but not the start of Spark."""
    with checkpoint() as folder, stoppable({"url": server.url, "queue": QUEUE, **options}) as given:
        source, stop_file, done_file = given
        delta = DeltaOptions(path=f"{folder}/delta", checkpoint=f"{folder}/checkpoint", available_now=True)
        began = time.perf_counter()
        query = drain_to_delta(spark, source, delta)
        totals = run_until_stopped(spark, query, stop_file, lambda _: None, done_file=done_file)
        took = time.perf_counter() - began
    assert totals.messages == count, f"{totals.messages} messages of {count}"
    return count / took


def jdbc(spark: SparkSession, server: Server, count: int, *, delta: bool = False) -> float:
    """Messages a second of Spark's JDBC source merely reading the same rows, over one connection.

    :param delta: it writes them into a Delta table, too.
    """
    to = server.jdbc()
    rows = spark.read.jdbc(to.url, QUEUE, properties={**to.properties, "fetchsize": "10000"})
    began = time.perf_counter()
    if not delta:
        rows.write.format("noop").mode("overwrite").save()
        return count / (time.perf_counter() - began)
    with checkpoint() as folder:
        rows.write.format("delta").save(f"{folder}/delta")
        return count / (time.perf_counter() - began)


def flatness(server: Server) -> None:
    """Cost a message against the backlog and against the table's past; without Spark,
    whose fixed cost would hide it.

    The tables stand side by side and give a batch each in turn,
    so that what else the machine does falls on all alike.
    """
    backlogs = {f"backlog of {size:,}": size for size in (10_000, 100_000, 1_000_000)}
    costs = Costs(backlogs)
    for _ in range(ROUNDS):
        for name, size in backlogs.items():
            server.fill(size, name)
        costs.measure(server, rows=1_000, batches=9)
    print(costs.told("Batches of 1,000 through the core"))
    for name, forgotten in server.pasts.items():
        server.fill(0, name)
        if forgotten is not None:
            server.come_and_go(10_000_000, name, forgotten=forgotten)
    server.forget()
    costs = Costs(server.pasts)
    for _ in range(ROUNDS):
        for name, forgotten in server.pasts.items():
            server.fill(100_000, name, new_table=forgotten is None)
        costs.measure(server, rows=10_000, batches=9)
    print(costs.told("A backlog of 100,000 in batches of 10,000, in a table that is"))


class Costs:
    """What a message costs in several tables: microseconds of each batch,
    and milliseconds of each first claim.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        self._each: dict[str, list[float]] = {table: [] for table in tables}
        self._first: dict[str, list[float]] = {table: [] for table in self._each}

    def measure(self, server: Server, *, rows: int, batches: int) -> None:
        """Take a batch of each table, then further ones in turn."""
        with ExitStack() as stack:
            drains = {table: stack.enter_context(closing(Drain(server, table))) for table in self._each}
            for table, drain in drains.items():
                self._first[table].append(drain.batch(rows).claimed * 1e3)
            # The first look leaves marks on what it steps over, which are being written still.
            come_to_rest(server)
            for _ in range(batches):
                for table, drain in drains.items():
                    self._each[table].append(drain.batch(rows).settled / rows * 1e6)

    def told(self, title: str) -> str:
        """The medians as a table, against the first one."""
        lines = [f"\n{title}, median of {len(next(iter(self._each.values())))}\n"]
        lines += ["| | µs a message | against the first | first look, ms |", "|---|---|---|---|"]
        middle = {table: statistics.median(times) for table, times in self._each.items()}
        base = next(iter(middle.values()))
        for table, each in middle.items():
            # Only once a table is looked at for the first time after its past.
            lines.append(f"| {table} | {each:.1f} | {each / base - 1:+.0%} | {self._first[table][0]:.0f} |")
        return "\n".join(lines)


class Drain:
    """A queue that is drained through the core, on the driver and in this process."""

    def __init__(self, server: Server, table: str) -> None:
        options = SourceOptions.parse({"url": server.url, "queue": table, "claimAhead": "false"})
        self._receiver, self._reader = Receiver(options), SliceReader(Target.of(options))
        self._start: Offset | None = None

    def batch(self, rows: int) -> Took:
        """Claim, read and settle these rows."""
        began = time.perf_counter()
        end = self._receiver.latest(self._start, rows)
        claimed = time.perf_counter() - began
        tasks = self._receiver.plan(self._start, end)
        read = sum(batch.num_rows for task in tasks for batch in self._reader.rows(task))
        assert read == rows, f"{read} rows of {rows}"
        self._receiver.settle(end)
        self._start = end
        return Took(claimed, time.perf_counter() - began)

    def close(self) -> None:
        self._receiver.close()


class Took(NamedTuple):
    """Seconds from a batch's beginning to its claim and to its end."""

    claimed: float
    settled: float


def come_to_rest(server: Server) -> None:
    """Nothing is being written any more, and no row is in the processor's caches,
    where a small table would fit in whole.
    """
    server.come_to_rest()
    memory = bytearray(512 << 20)
    assert sum(memory[::64]) == 0


def footprint(spark: SparkSession, server: Server) -> None:
    """Memory of the reader's process and size of the offset, for claims of a million rows."""
    print("\n| a claim of 1,000,000 rows | reader's peak memory, MB | offset, bytes a row |\n|---|---|---|")
    for name in ("contiguous", "every second row", "a random half of the rows"):
        server.fill(1_000_000 if name == "contiguous" else 2_010_000)
        if name != "contiguous":
            server.take_half(at_random="random" in name)
        with watched_reader() as peak:
            rows = stream(spark, server, maxMessagesPerTrigger="1000000", maxBytesPerTrigger="10g")
            query = drained(rows.writeStream.format("noop"))
        batch = next(each for each in query.recentProgress if each.numInputRows)
        assert batch.numInputRows == 1_000_000
        print(f"| {name} | {peak()} | {len(batch.sources[0].endOffset) / 1_000_000:.4f} |")


def memory(spark: SparkSession, server: Server, count: int) -> None:
    """Memory of each process while many messages go into Delta: flat,
    if nothing is kept of a message that is done.
    """
    server.fill(count)
    print(
        f"\n| of {count:,} messages | Spark's heap after a collection, MB | reader, MB | largest worker, MB |"
    )
    print("|---|---|---|---|", flush=True)
    with checkpoint() as folder, stoppable({"url": server.url, "queue": QUEUE}) as given:
        source, stop_file, done_file = given
        delta = DeltaOptions(path=f"{folder}/delta", checkpoint=f"{folder}/checkpoint", available_now=True)
        query = drain_to_delta(spark, source, delta)

        def look(_: str) -> None:
            """After each batch."""
            done = sum(each.numInputRows for each in query.recentProgress)
            print(
                f"| {done:,} | {heap(spark)} | {rss(reader_process())} | "
                f"{max(map(rss, workers()), default=0)} |",
                flush=True,
            )

        totals = run_until_stopped(spark, query, stop_file, look, done_file=done_file)
    assert totals.messages == count, f"{totals.messages} messages of {count}"


def heap(spark: SparkSession) -> int:
    """Megabytes that Java cannot free."""
    assert spark._jvm is not None, "it is a session on this machine"
    runtime = spark._jvm.Runtime.getRuntime()
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def rss(process: psutil.Process) -> int:
    """Megabytes of a process."""
    return int(process.memory_info().rss) >> 20


def workers() -> list[psutil.Process]:
    """The processes that Spark's tasks run Python in."""
    daemons = [
        each for each in psutil.Process().children(recursive=True) if "pyspark.daemon" in each.cmdline()
    ]
    return [each for each in daemons if each.children() == []]


def idle(spark: SparkSession, server: Server) -> None:
    """What a stream over an empty queue costs, by default settings."""
    seconds = 30
    server.fill(0)
    with checkpoint() as folder:
        query = stream(spark, server).writeStream.format("noop").option("checkpointLocation", folder).start()
        time.sleep(10)  # until the pauses have grown to pollInterval
        reader = reader_process()
        scans_before, cpu_before = server.scans(), sum(reader.cpu_times()[:2])
        time.sleep(seconds)
        cpu = sum(reader.cpu_times()[:2]) - cpu_before
        looks = server.scans() - scans_before
        query.stop()
    print(f"\n| an idle stream, {seconds} s | |\n|---|---|")
    print(f"| scans of the table a second | {looks / seconds:.2f} |")
    print(f"| reader, share of a core | {cpu / seconds:.1%} |")


def reading(server: Server, count: int, rounds: int) -> None:
    """What a row costs this process to read, and how fast rows come, in rounds."""
    server.fill(count)
    options = SourceOptions.parse({"url": server.url, "queue": QUEUE})
    target = Target.of(options)
    with connect(target) as connection, connection.transaction():
        table = queues.get(connection, QUEUE, options.naming(target.dialect)).table
    statement = queues.read_statement(target.dialect, table)
    costs: list[tuple[float, float]] = []
    with closing(open_reader(target)) as reader:
        for number in range(rounds + 1):
            began, cpu = time.perf_counter(), time.process_time()
            read = sum(each.num_rows for each in reader.batches(statement, RowSet([(1, count)]), SCHEMA))
            assert read == count, f"{read} rows of {count}"
            if number:  # the first round warms up
                took = (time.process_time() - cpu, time.perf_counter() - began)
                costs.append((took[0] / count * 1e6, count / took[1]))
    cpu, rate = (statistics.median(each) for each in zip(*costs, strict=True))
    print(f"\n{count:,} rows read, median of {rounds} rounds\n\n| client, µs a row | rows/s |\n|---|---|")
    print(f"| {cpu:.1f} | {rate:,.0f} |")


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
