"""How fast neighbours are on this machine: ``python -m tests.support.neighbour.pace``.

Each line is a new table with 0.7 KB messages. Another session holds the first of them for as
long as is measured.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from sqlqueue_spark.embedded import EmbeddedServer
from tests.support.neighbour.habits import Habits
from tests.support.neighbour.process import NeighbourProcess
from tests.support.postgresql import PostgresEngine

_SERVER = {"max_wal_size": "16GB", "shared_buffers": "1GB"}


def main(messages: int, seconds: float, concurrency: int, processes: int, held: list[int]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-pace-"))
    folder.chmod(0o755)
    try:
        with EmbeddedServer(folder / "data", settings=_SERVER) as server:
            engine = PostgresEngine(server.url())
            for number, each in enumerate(held):
                rate = pace(
                    engine, f"q{number}", messages, seconds, Habits(concurrency=concurrency), processes, each
                )
                sys.stdout.write(
                    f"{concurrency} receivers, {processes} processes, {each:,} rows held: {rate:,.0f}/s\n"
                )
                sys.stdout.flush()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pace(
    engine: PostgresEngine,
    name: str,
    messages: int,
    seconds: float,
    habits: Habits,
    processes: int,
    held: int,
) -> float:
    """Messages a second that a new neighbour handles from a new queue."""
    queue = engine.create_queue(name)
    queue.insert(messages, size=400)
    engine.execute(f'VACUUM ANALYZE "{name}"')
    engine.execute("CHECKPOINT")
    with (
        queue.locked(*range(1, held + 1)),
        NeighbourProcess(engine.url, name, habits, processes=processes).running() as neighbour,
    ):
        before, began = neighbour.counts().handled, time.monotonic()
        time.sleep(seconds)
        handled, took = neighbour.counts().handled - before, time.monotonic() - began
    assert queue.count() > held, "more messages are needed"
    return handled / took


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--held", type=int, nargs="+", default=[0, 1_000, 10_000])
    main(**vars(parser.parse_args()))
