"""A neighbour in processes of its own, which costs the test process nothing and dies as a process dies."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tests.support.neighbour.counts import Counts
from tests.support.neighbour.habits import Habits

_ROOT = Path(__file__).parents[3]


class NeighbourProcess:
    """One endpoint on one queue of a PostgreSQL database. It may be started once."""

    def __init__(
        self,
        url: str,
        queue: str,
        habits: Habits | None = None,
        *,
        schema: str = "public",
        processes: int = 1,
    ) -> None:
        """:param processes: they share the endpoint's concurrency,
        as instances of a scaled-out endpoint do.
        """
        self._url, self._queue, self._schema = url, queue, schema
        self._habits = habits or Habits()
        self._shares = [
            self._habits.concurrency // processes + (number < self._habits.concurrency % processes)
            for number in range(processes)
        ]
        self._children: list[_Child] = []

    def start(self) -> Self:
        """Returns when it receives."""
        assert not self._children, "it has been started before"
        for number, share in enumerate(self._shares):
            # One of them is enough to deliver what is due.
            habits = replace(
                self._habits,
                concurrency=share,
                seed=f"{self._habits.seed} {number}",
                delivers_delayed=self._habits.delivers_delayed and number == 0,
                remembers=False,
            )
            self._children.append(_Child(self._url, self._schema, self._queue, habits))
        for child in self._children:
            child.wait_until_it_receives()
        return self

    def counts(self) -> Counts:
        """What it has done: as it said at most a tenth of a second ago, or at its end."""
        return sum((child.counts for child in self._children), Counts())

    def stop(self) -> Counts:
        """End in good order; what it has done in all."""
        for child in self._children:
            child.ask_to_end()
        for child in self._children:
            child.wait()
        return self.counts()

    def kill(self) -> None:
        """``kill -9``: it dies holding what it has taken."""
        for child in self._children:
            child.kill()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Within the block it lives; it ends in good order, unless it was killed before."""
        try:
            self.start()
            yield self
            self.stop()
        finally:
            self.kill()


class _Child:
    """A process, and what it has said last: a line of JSON ten times a second."""

    def __init__(self, url: str, schema: str, queue: str, habits: Habits) -> None:
        self.counts = Counts()
        self._receives = threading.Event()
        self._killed = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.neighbour", schema, queue, to_json(habits)],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": str(_ROOT), "SQLQUEUE_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_until_it_receives(self) -> None:
        assert self._receives.wait(60), "It has not said anything within a minute."
        assert self._process.poll() is None, f"It has ended with code {self._process.returncode}."

    def ask_to_end(self) -> None:
        """It ends when its input does; so it ends with us, however we end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        code = self._process.wait(60)
        self._listener.join()
        assert code == 0 or self._killed, f"It has ended with code {code}."

    def kill(self) -> None:
        self._killed = True
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # half a line, of one that was killed
                self.counts = Counts.from_json(json.loads(line))
            self._receives.set()
        self._receives.set()


def to_json(habits: Habits) -> str:
    return json.dumps(asdict(habits), default=timedelta.total_seconds)


def from_json(text: str) -> Habits:
    given: dict[str, Any] = json.loads(text)
    for name in ("handling", "rest", "longest_pause"):
        given[name] = timedelta(seconds=given[name])
    return Habits(**{**given, "publishes": tuple(given["publishes"])})
