"""What an old transaction elsewhere in the database costs a stream, as ratios within one run.

While a session keeps a snapshot (a `pg_dump`, an idle REPEATABLE READ session, a slow replication slot), the
server keeps each row that is deleted, and its index entries. Here a backlog is drained into `noop` while
messages arrive one by one, and then looks at the empty queue are timed, with that session and without it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from machine import COMPARISONS, add_url, checkpoint, compared, database, rate_of, run_by, session, stream
from pyspark.sql import SparkSession
from servers import QUEUE, Server

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver

#: The pause between two messages that arrive, in seconds.
_ARRIVES = 0.005
#: How long an idle stream is watched, in seconds.
_IDLE = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        spark = session(server)
        ways = {"no other transaction": nullcontext, "an old transaction": server.old_transaction}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        looks: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(chosen.rounds + 1):
            for name, beside in ways.items():
                server.fill(chosen.messages)
                with beside():
                    rate = drained_with_arrivals(spark, server)
                    look = looks_a_second(server)
                if number:  # the first round warms up the JVM, the workers and the disk
                    rates[name].append(rate)
                    looks[name].append(look)
                print(
                    f"  round {number}: {name}: {rate:,.0f}/s, {look:.2f} looks/s",
                    file=sys.stderr,
                    flush=True,
                )
        spark.stop()
    print(f"\n{chosen.messages:,} messages into noop, medians of {chosen.rounds}\n\n{COMPARISONS}")
    for what, measured in (("draining", rates), ("looks of an idle stream", looks)):
        without, with_it = map(statistics.median, measured.values())
        compared(f"{what} beside an old transaction ÷ without it", with_it / without, 0.8)


def drained_with_arrivals(spark: SparkSession, server: Server) -> float:
    """Messages a second of a stream that drains a backlog while messages arrive."""
    with arriving(server), checkpoint() as folder:
        messages = stream(spark, server)
        writer = messages.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    return rate_of(query)


@contextmanager
def arriving(server: Server) -> Iterator[None]:
    """Messages arrive one by one while the block runs."""
    over = threading.Event()

    def send() -> None:
        with server.sending() as one:
            while not over.wait(_ARRIVES):
                one()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def looks_a_second(server: Server) -> float:
    """How often the core looks at a queue that is empty by now, if it never rests."""
    receiver = Receiver(SourceOptions.parse({"url": server.url, "queue": QUEUE, "pollInterval": "1ms"}))
    offset, count, ends = None, 0, time.monotonic() + _IDLE
    while time.monotonic() < ends:
        offset = receiver.latest(offset, 100_000)
        count += 1
    receiver.close()
    return count / _IDLE


if __name__ == "__main__":
    main()
