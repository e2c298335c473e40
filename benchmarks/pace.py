"""The pace of a stream where nothing is set, against the best size set by hand: `make bench-pace`.

Each run is a Spark of its own, as a user starts one: the first batch starts the workers and is part of it.
The stream is the README's own: `readStream.format("sqlqueue")` into Delta, until nothing is left; or into a
sink that sleeps five seconds a batch. Runs are interleaved and medians compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import COMPARISONS, add_url, checkpoint, compared, database, run_by, session, stream
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from servers import server_at

from sqlqueue_spark.pipeline import DeltaOptions, write_delta

#: The sizes that are set by hand. Without an adaptive batch each batch has as many rows.
BY_HAND = (100_000, 250_000, 500_000, 1_000_000)
NOTHING = "nothing set"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sink", choices=SINKS, default="delta")
    parser.add_argument("--sizes", type=int, nargs="*", default=BY_HAND)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    add_url(parser)
    chosen = parser.parse_args()
    if chosen.run is not None:
        print(json.dumps(run(chosen.url, chosen.sink, json.loads(chosen.run))))
        return
    print(run_by())
    with database(chosen.url) as server:
        measured: dict[str, list[list[tuple[int, float]]]] = {}
        ways: dict[str, dict[str, str]] = {NOTHING: {}} | {
            f"{rows:,}": _by_hand(rows) for rows in chosen.sizes
        }
        for number in range(chosen.rounds):
            for name, options in ways.items():
                server.fill(chosen.messages)
                batches = _in_a_process(server.url, chosen.sink, options)
                measured.setdefault(name, []).append(batches)
                told = " ".join(f"{rows}:{seconds:.1f}" for rows, seconds in batches)
                print(
                    f"  round {number}: {name:12} {_seconds(batches):6.1f} s  {told}",
                    file=sys.stderr,
                    flush=True,
                )
    print(f"\n{chosen.messages:,} messages into {chosen.sink}, medians of {chosen.rounds} cold runs\n")
    print("| size | seconds | messages/s | without the first two batches |\n|---|---|---|---|")
    for name, runs in measured.items():
        seconds = statistics.median(map(_seconds, runs))
        steady = f"{_steady(runs):,.0f}" if _steady(runs) else "—"
        print(f"| {name} | {seconds:.1f} | {chosen.messages / seconds:,.0f} | {steady} |")
    cold = {name: statistics.median(map(_seconds, runs)) for name, runs in measured.items()}
    print(f"\n{COMPARISONS}")
    what = f"{chosen.messages:,} messages into {chosen.sink}, nothing set ÷ the best size set by hand"
    compared(f"{what}, a cold run", min(cold.values()) / cold[NOTHING])
    if steady_rates := {name: _steady(runs) for name, runs in measured.items() if _steady(runs)}:
        best = max(steady_rates.values())
        compared(f"{what}, without the first two batches", steady_rates.get(NOTHING, 0.0) / best, 0.9)


def _by_hand(rows: int) -> dict[str, str]:
    return {"maxMessagesPerTrigger": str(rows), "adaptiveBatch": "false"}


def _seconds(batches: list[tuple[int, float]]) -> float:
    return sum(seconds for _, seconds in batches)


def _steady(runs: list[list[tuple[int, float]]]) -> float:
    """Messages a second without the first two batches; 0 where there are no others."""
    return statistics.median([_rate(run[2:]) for run in runs if len(run) > 2] or [0.0])


def _rate(batches: list[tuple[int, float]]) -> float:
    return sum(rows for rows, _ in batches) / _seconds(batches)


def _in_a_process(url: str, sink: str, options: dict[str, str]) -> list[tuple[int, float]]:
    command = [sys.executable, __file__, "--url", url, "--sink", sink, "--run", json.dumps(options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=Path(__file__).parent)
    return [(rows, seconds) for rows, seconds in json.loads(done.stdout.splitlines()[-1])]


def run(url: str, sink: str, options: dict[str, str]) -> list[tuple[int, float]]:
    """The rows and the seconds of each batch of one stream."""
    server = server_at(url)
    spark = session(server, delta="delta" in sink)
    messages = stream(spark, server, **options)
    with checkpoint() as folder:
        query = SINKS[sink](messages, folder)
        query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    spark.stop()
    return [(each.numInputRows, each.durationMs["triggerExecution"] / 1000) for each in batches]


def _delta(messages: DataFrame, folder: str) -> StreamingQuery:
    writer = messages.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    return writer.trigger(availableNow=True).start(f"{folder}/delta")


def _write_delta(messages: DataFrame, folder: str) -> StreamingQuery:
    to = DeltaOptions(path=f"{folder}/delta", checkpoint=f"{folder}/checkpoint", available_now=True)
    return write_delta(messages, to)


def _sleeping(messages: DataFrame, folder: str) -> StreamingQuery:
    def sleep(df: DataFrame, _: int) -> None:
        df.write.format("noop").mode("append").save()
        time.sleep(5)

    writer = messages.writeStream.foreachBatch(sleep).option("checkpointLocation", folder)
    return writer.trigger(availableNow=True).start()


def _noop(messages: DataFrame, folder: str) -> StreamingQuery:
    writer = messages.writeStream.format("noop").option("checkpointLocation", folder)
    return writer.trigger(availableNow=True).start()


SINKS = {"delta": _delta, "write_delta": _write_delta, "sleep": _sleeping, "noop": _noop}

if __name__ == "__main__":
    main()
