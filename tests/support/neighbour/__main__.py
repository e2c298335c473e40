"""A neighbour as a process: ``python -m tests.support.neighbour SCHEMA QUEUE HABITS``, with habits as JSON
and SQLQUEUE_URL in the environment.

It lives until its input ends. Ten times a second it says what it has done so far, as a line of JSON.
"""

import json
import os
import sys
import threading

from tests.support.neighbour.endpoint import Neighbour
from tests.support.neighbour.process import from_json
from tests.support.postgresql import PostgresEngine

_EVERY = 0.1  # seconds


def main(url: str, schema: str, queue: str, habits: str) -> None:
    engine = PostgresEngine(url)
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=[over], daemon=True).start()
    with Neighbour(engine, engine.queue(queue, schema=schema), from_json(habits)).running() as neighbour:
        while not over.wait(_EVERY):
            _say(neighbour)
    _say(neighbour)


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _say(neighbour: Neighbour) -> None:
    sys.stdout.write(json.dumps(neighbour.counts().as_json()) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(os.environ["SQLQUEUE_URL"], *sys.argv[1:])
