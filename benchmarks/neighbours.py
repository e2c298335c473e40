"""What a stream costs the one-row receivers of its queue, as ratios within one run: `make bench-neighbours`.

Eight receivers in C (pgbench) take one row a transaction. They run before a stream begins, begin one second
after its first batch has, or are busy two seconds of ten. The stream is cold (a Spark of its own, whose
workers start with the first batch) or warm, and writes into noop, Delta or a sink that sleeps five seconds
a batch. Nothing is set. Their pace in windows of three seconds is compared with what they have beside the
same stream on another table, and without a stream. Receivers that begin beside a running batch are measured
from two seconds after its end, and those that are busy now and then from their next time on. The plot is
`benchmarks/neighbours.svg`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import pace
from machine import COMPARISONS, add_url, checkpoint, compared, database, run_by, session
from pyspark.sql.streaming.query import StreamingQuery
from servers import QUEUE, Server, server_at

_OTHER = "other_queue"
_RECEIVERS = 8
#: Messages of a queue that the receivers have for themselves, and those that warm a Spark.
_THEIRS, _WARMING = 800_000, 300_000
#: Seconds of a window, of which the receivers run before a stream begins, and that are measured.
_WINDOW, _BEFORE, _MEASURED = 3, 4, 36
#: Seconds that receivers are busy, of this number, with those to tell of them; each time counts as a window.
_BUSY, _OF = 2.5, 10
#: How long newcomers have after the end of the batch that was running.
_GRACE = 2
NONE = "none"
_PLOT = Path(__file__).parent / "neighbours.svg"


class Run(NamedTuple):
    """The receivers' messages a second, second by second, and the seconds that count."""

    paces: list[float]
    first: int
    last: int

    def windows(self) -> list[float]:
        """Messages a second in each window that counts."""
        ends = range(self.first + _WINDOW, min(self.last, len(self.paces)) + 1, _WINDOW)
        return [statistics.mean(self.paces[end - _WINDOW : end]) for end in ends]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000, help="backlog of the stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sinks", nargs="*", choices=pace.SINKS, default=("noop", "delta", "sleep"))
    parser.add_argument("--starts", nargs="*", choices=("cold", "warm"), default=("cold", "warm"))
    parser.add_argument(
        "--orders", nargs="*", choices=("running", "newcomers", "busy"), default=("running", "newcomers")
    )
    parser.add_argument("--run", help=argparse.SUPPRESS)
    add_url(parser)
    chosen = parser.parse_args()
    if chosen.run is not None:
        print(json.dumps(run(chosen.url, *json.loads(chosen.run))))
        return
    print(run_by())
    ways = [(s, at, o) for s in chosen.sinks for at in chosen.starts for o in chosen.orders]
    found: dict[tuple[str, str, str], list[tuple[list[float], list[float]]]] = {way: [] for way in ways}
    alone: list[float] = []
    with database(chosen.url) as server:
        for number in range(chosen.rounds):
            server.fill(_THEIRS)
            alone += _in_a_process(server, NONE, "cold", "running", QUEUE).windows()
            for way in ways:
                own, other = (_beside(server, chosen.messages, way, table) for table in (QUEUE, _OTHER))
                found[way].append((own.windows(), other.windows()))
                shown = [[round(each) for each in run_.paces] for run_ in (own, other)]
                print(f"# round {number} {' '.join(way)}: from {own.first}: {shown}", flush=True)
    print(f"\nbacklog of {chosen.messages:,}, the worst window, medians of {chosen.rounds}\n\n{COMPARISONS}")
    without = statistics.median(alone)
    draw(found, without, _PLOT)
    for (sink, start, order), rounds in found.items():
        what = f"{order}, {start} stream into {sink}: receivers"
        beside = [[a / b for a, b in zip(*pair, strict=False)] for pair in rounds]
        compared(f"{what} ÷ beside a stream of another table", _worst(beside), 0.8)
        compared(f"{what} ÷ without a stream", _worst([[a / without for a in own] for own, _ in rounds]), 0.1)


def draw(
    found: dict[tuple[str, str, str], list[tuple[list[float], list[float]]]], without: float, to: Path
) -> None:
    """The receivers' pace window by window: a panel for each way, with the medians of all rounds."""
    figure, axes = plt.subplots(len(found), figsize=(9, 2.5 * len(found)), squeeze=False, sharex=True)
    for axis, (way, rounds) in zip(axes[:, 0], found.items(), strict=True):
        own, other = zip(*rounds, strict=True)
        for name, runs in (("beside its stream", own), ("beside a stream of another table", other)):
            paces = [statistics.median(window) for window in zip(*runs, strict=False)]
            axis.plot([_WINDOW * (n + 1) for n in range(len(paces))], paces, marker="o", label=name)
        axis.axhline(without, color="tab:gray", linestyle="--", label="without a stream")
        axis.set_title(", ".join(way), loc="left")
        axis.set_ylabel("messages/s")
    axes[0, 0].legend()
    axes[-1, 0].set_xlabel("seconds that count")
    figure.tight_layout()
    figure.savefig(to)


def _worst(rounds: Sequence[Sequence[float]]) -> float:
    """The worst window, of each window the median of all rounds; 0 where a run had no window."""
    return min(map(statistics.median, zip(*rounds, strict=False)), default=0.0)


def _beside(server: Server, count: int, way: tuple[str, str, str], table: str) -> Run:
    sink, start, order = way
    server.fill(count)
    if table != QUEUE:
        server.fill(_THEIRS, table)
    if start == "warm":
        server.fill(_WARMING, "warming")
    return _in_a_process(server, sink, start, order, table)


def _in_a_process(server: Server, *way: str) -> Run:
    command = [sys.executable, __file__, "--url", server.url, "--run", json.dumps(way)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=Path(__file__).parent)
    return Run(*json.loads(done.stdout.splitlines()[-1]))


def run(url: str, sink: str, start: str, order: str, table: str) -> Run:
    """One stream, and receivers on a table."""
    server = server_at(url)
    if sink == NONE:
        with server.receivers_beside(table, _RECEIVERS) as paces:
            time.sleep(_MEASURED / 2)
        return Run(paces, _BEFORE, len(paces))
    spark = session(server, delta="delta" in sink)
    reader = spark.readStream.format("sqlqueue").option("url", url)
    with checkpoint() as folder:
        if start == "warm":
            pace.SINKS[sink](reader.option("queue", "warming").load(), f"{folder}/warm").awaitTermination()
        messages = reader.option("queue", QUEUE).load()
        if order == "running":
            with server.receivers_beside(table, _RECEIVERS) as paces:
                time.sleep(_BEFORE)
                query = pace.SINKS[sink](messages, f"{folder}/stream")
                time.sleep(_MEASURED)
                first, last = _BEFORE, _last(query, time.time() - _BEFORE - _MEASURED)
        elif order == "busy":
            paces, began = [], time.time() + _OF - _BUSY
            query = pace.SINKS[sink](messages, f"{folder}/stream")
            while query.isActive and len(paces) < _MEASURED:
                time.sleep(_OF - _BUSY)
                with server.receivers_beside(table, _RECEIVERS) as spell:
                    time.sleep(_BUSY)
                paces += [statistics.mean(spell)] * _WINDOW
            first = _WINDOW * math.ceil(_first(query, began) / _OF)
            last = _WINDOW * int((_last(query, began) - _BUSY) / _OF + 1)
        else:
            query = pace.SINKS[sink](messages, f"{folder}/stream")
            while not query.status["isDataAvailable"]:
                time.sleep(0.02)
            time.sleep(1)
            with server.receivers_beside(table, _RECEIVERS) as paces:
                began = time.time()
                time.sleep(_MEASURED)
                first = _first(query, began)
                last = _last(query, began)
        query.stop()
    spark.stop()
    return Run(paces, first, last)


def _first(query: StreamingQuery, began: float) -> int:
    """The second from which receivers are measured that began while a batch was running."""
    return next((int(end - began) for end in _ends(query) if end > began), _MEASURED) + _GRACE


def _last(query: StreamingQuery, began: float) -> int:
    """The second up to which the stream had a backlog."""
    return int(_ends(query)[-1] - began) if not query.isActive else _MEASURED + _BEFORE


def _ends(query: StreamingQuery) -> list[float]:
    """When each batch ended, in seconds of the epoch."""
    done = [each for each in query.recentProgress if each.numInputRows]
    return [
        datetime.fromisoformat(each.timestamp).timestamp() + each.durationMs["triggerExecution"] / 1000
        for each in done
    ]


if __name__ == "__main__":
    main()
