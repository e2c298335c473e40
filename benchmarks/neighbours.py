"""What a stream costs the one-row receivers of its queue, as ratios within one run: `make bench-neighbours`.

Eight receivers in C (pgbench) take one row a transaction, alone, beside a stream that drains another table, and beside a
stream that drains theirs, with and without a headroom. Rounds are interleaved, and medians compared. The output is the table
of benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from machine import add_url, checkpoint, database, rate_of, run_by, session, stream
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from servers import QUEUE, Server

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver

_OTHER = "other_queue"
_RECEIVERS = 8
#: Messages of a queue that the receivers have for themselves.
_THEIRS = 400_000
#: Seconds that are measured, and the seconds before, in which the receivers begin.
_MEASURED, _BEGINNING = 8, 4
_BATCH, _CLAIMS = 100_000, 5
ALONE, ELSEWHERE = "receivers alone", "beside a stream of another table"
NO_HEADROOM, AUTO = (f"beside a stream of their table, headroom {each}" for each in ("0", "auto"))
STREAM_NO_HEADROOM, STREAM_AUTO = (f"a stream without receivers, headroom {each}" for each in ("0", "auto"))


class Pace(NamedTuple):
    """Messages a second: of the receivers, one figure for each second, and of the stream."""

    receivers: list[float]
    stream: float

    @property
    def steady(self) -> float:
        return statistics.median(self.receivers[_BEGINNING:]) if self.receivers else 0.0

    @property
    def seconds_to_full_pace(self) -> int:
        """The first second in which the receivers have nine tenths of their steady pace."""
        return next((at for at, pace in enumerate(self.receivers, 1) if pace >= 0.9 * self.steady), 0)


_RATIOS: tuple[tuple[str, Callable[[Pace], float], str, str], ...] = (
    ("With headroom auto the receivers have", lambda pace: pace.steady, AUTO, ELSEWHERE),
    ("With headroom auto the stream has", lambda pace: pace.stream, AUTO, NO_HEADROOM),
    (
        "Without receivers the stream has with headroom auto",
        lambda pace: pace.stream,
        STREAM_AUTO,
        STREAM_NO_HEADROOM,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000, help="backlog of the stream")
    parser.add_argument("--rounds", type=int, default=3)
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        spark = session(server)
        backlog = {QUEUE: chosen.messages}
        tables = {ALONE: {QUEUE: _THEIRS}, ELSEWHERE: {**backlog, _OTHER: _THEIRS}}
        measures: dict[str, Callable[[], Pace]] = {
            ALONE: lambda: alone(server),
            ELSEWHERE: lambda: beside(spark, server, _OTHER),
            NO_HEADROOM: lambda: beside(spark, server, QUEUE, headroom="0"),
            AUTO: lambda: beside(spark, server, QUEUE),
            STREAM_NO_HEADROOM: lambda: beside(spark, server, None, headroom="0"),
            STREAM_AUTO: lambda: beside(spark, server, None),
        }
        paces: dict[str, list[Pace]] = {name: [] for name in measures}
        for number in range(chosen.rounds + 1):
            for name, measure in measures.items():
                for table, rows in tables.get(name, backlog).items():
                    server.fill(rows, table)
                pace = measure()
                print(f"# {name}: {pace.steady:,.0f}/s {[round(each) for each in pace.receivers]}, stream {pace.stream:,.0f}/s", flush=True)  # fmt: skip
                if number:  # the first round warms up
                    paces[name].append(pace)
        spark.stop()
        looks: dict[str, list[float]] = {"0": [], "auto": []}
        for _ in range(_CLAIMS):
            for headroom, seconds in looks.items():
                server.fill(10 * _BATCH)
                seconds.append(claim_seconds(server, headroom))
    print("\n| | receivers, messages/s | seconds to full pace | stream, messages/s |\n|---|---|---|---|")
    for name, found in paces.items():
        receivers, seconds, ours = (
            statistics.median(values)
            for values in zip(
                *((each.steady, each.seconds_to_full_pace, each.stream) for each in found), strict=True
            )
        )
        print(f"| {name} | {receivers:,.0f} | {seconds:.0f} | {ours:,.0f} |")
    for what, of, name, than in _RATIOS:
        pairs = [of(one) / of(other) for one, other in zip(paces[name], paces[than], strict=True)]
        print(f"\n{what}: {statistics.median(pairs):.2f} of that {than} (median of {', '.join(f'{each:.2f}' for each in sorted(pairs))})")  # fmt: skip
    for headroom, seconds_each in looks.items():
        print(f"\nTo settle and claim {_BATCH:,} rows without neighbours, headroom {headroom}: {1000 * statistics.median(seconds_each):.1f} ms")  # fmt: skip


def claim_seconds(server: Server, headroom: str) -> float:
    """Seconds that the stream's source takes for a batch of 100,000 rows, without reading them: to settle it and claim the next."""
    options = SourceOptions.parse({"url": server.url, "queue": QUEUE, "neighbourHeadroom": headroom})
    receiver, at, taken = Receiver(options), None, []
    while True:
        began = time.perf_counter()
        end = receiver.latest(at, _BATCH)
        if end == at:
            break
        taken.append(time.perf_counter() - began)
        receiver.plan(at, end)
        at = end
        time.sleep(0.5)  # the batch: meanwhile the next one is claimed ahead
    receiver.close()
    return statistics.median(taken[1:])


def alone(server: Server) -> Pace:
    with server.receivers_beside(QUEUE, _RECEIVERS) as paces:
        time.sleep(_BEGINNING + _MEASURED)
    return Pace(paces, 0.0)


def beside(spark: SparkSession, server: Server, table: str | None, headroom: str = "auto") -> Pace:
    """A stream that drains the queue, and receivers on a table, who begin when the stream is at work."""
    with draining(spark, server, neighbourHeadroom=headroom) as query:
        while not any(each.numInputRows for each in query.recentProgress):
            time.sleep(0.05)
        if table is None:
            time.sleep(_BEGINNING + _MEASURED)
            return Pace([], rate_of(query))
        with server.receivers_beside(table, _RECEIVERS) as paces:
            time.sleep(_BEGINNING + _MEASURED)
            if not query.status["isDataAvailable"]:
                sys.exit(
                    "The stream had drained its queue before the receivers were measured; give more --messages."
                )
            return Pace(list(paces), rate_of(query))


@contextmanager
def draining(spark: SparkSession, server: Server, **options: str) -> Iterator[StreamingQuery]:
    with checkpoint() as folder:
        writer = stream(spark, server, **options).writeStream.format("noop")
        query = writer.option("checkpointLocation", folder).start()
        try:
            yield query
        finally:
            query.stop()


if __name__ == "__main__":
    main()
