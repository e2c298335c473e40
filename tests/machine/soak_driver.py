"""Starts and kills the Spark program of a soak in several ways, and measures what the program costs."""

import contextlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from sqlqueue_spark import fail_points
from tests.support import death_steps
from tests.support.children import started
from tests.support.drivers import death
from tests.support.drivers.endless import ATOMIC, OPTIMISTIC, SENT

_STEPS = (
    *death_steps.STEPS,
    fail_points.IDS_CHECKED,
    fail_points.ROWS_INSERTED,
    fail_points.IDS_INSERTED,
    fail_points.CHUNK_SENT,
    fail_points.ROWS_STAGED,
    fail_points.STAGE_SEALED,
    death.of(ATOMIC, SENT),
    death.of(OPTIMISTIC, SENT),
)
_ROOT = Path(__file__).parents[2]
#: The program passes a step at most this often before a process dies at it.
_NTH = 15
_READER = "python_streaming_source_runner"


@dataclass(frozen=True)
class Sample:
    """Megabytes and processor time of all processes of the program,
    when its driver has lived for ``age`` seconds.
    """

    at: float
    age: float
    jvm: float
    readers: float
    largest_reader: float
    workers: float
    #: How many messages the streams have moved since the sample before,
    #: and milliseconds of a processor for each of them.
    messages: int
    cost: float | None


class Driver:
    """Runs one program at a time.

    Each start has a process group of its own, and a file of its own for what it says.
    """

    def __init__(self, folder: Path, url: str, random_: random.Random) -> None:
        self.folder = folder
        self.starts = 0
        self.cpu_seconds = 0.0
        self._url = url
        self._random = random_
        self._sessions: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._said = folder
        self._born = 0.0
        self._up: float | None = None
        self._dies_at = ""
        self._steps = folder
        self._passes = ("", 0)
        self._cpu: dict[tuple[int, float], float] = {}

    # -- life and death ----------------------------------------------------------------------------

    def start(self, *, dies: bool) -> None:
        """:param dies: whether all of it, the driver alone, or one process is to die at a named step,
        some time or other.
        """
        orders: Mapping[str, str] = {}
        self._dies_at = ""
        if dies:
            step, nth = self._random.choice(_STEPS), self._random.randint(1, _NTH)
            # The program itself passes only the last two steps.
            who: death.Who = self._random.choice(("everything", "driver" if SENT in step else "this process"))
            self._steps = self.folder / f"steps-{self.starts}"
            orders = death.orders(self._steps, step, nth, who)
            self._dies_at = f"kill -9 of {who} at '{step}'"
            self._passes = (step, nth)
        given = ["--folder", str(self.folder)]
        # Its memory is measured, so no Python process of Spark's is a fork of a larger one.
        plain = {"PYTHONPATH": str(_ROOT)}
        self._child, self._said = started("endless", self._url, given, self.folder, {**orders, **plain})
        self._sessions.append(self._child.pid)
        self._born, self._up = time.monotonic(), None
        self.starts += 1

    @property
    def age(self) -> float:
        return time.monotonic() - self._born

    @property
    def is_up(self) -> bool:
        """Whether all queries of the program have been started."""
        return self.up_for > 0

    @property
    def up_for(self) -> float:
        """For how many seconds all queries have been started; 0 before."""
        if self._up is None and (self.folder / f"up-{self._pid}").exists():
            self._up = time.monotonic()
        return 0.0 if self._up is None else time.monotonic() - self._up

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended the program; to be asked when it lives no more."""
        assert self._child is not None
        return self._child.returncode == -signal.SIGKILL

    @property
    def lives(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def died_at_step(self) -> str | None:
        """What died at a named step as it was ordered to, if anything did. This tells it only once."""
        if not self._dies_at or not self._steps.exists():
            return None
        step, nth = self._passes
        if self._steps.read_text().splitlines().count(step) < nth:
            return None
        what, self._dies_at = self._dies_at, ""
        return what

    def kill_everything(self) -> None:
        self._kill(lambda _: True)

    def kill_driver(self) -> None:
        """Kill the program and its JVM, and leave Spark's Python processes behind."""
        self._kill(lambda process: process.pid == self._pid or process.name() == "java")

    def kill_one(self) -> bool:
        """Kill a reader of a stream or a worker; returns whether there was one."""
        found = [each for each in self.processes() if _kind(each) in ("readers", "workers")]
        if not found:
            return False
        _kill(self._random.choice(found))
        return True

    def stop(self, within: float) -> int | None:
        """Stop the program in good order; returns its exit code, or None if it does not end."""
        assert self._child is not None
        (self.folder / "stop").touch()
        try:
            return self._child.wait(within)
        except subprocess.TimeoutExpired:
            return None

    def left_behind(self) -> list[str]:
        """The names of the processes, of all starts, that still live."""
        return [each.name() for session in self._sessions for each in death.processes_of(session)]

    def end(self) -> None:
        """Kill whatever is left of all starts."""
        for session in self._sessions:
            death.kill_session(session)
        if self._child is not None:
            self._child.wait()

    def tail(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]

    def errors(self) -> list[tuple[float, str, str]]:
        """The errors that ended a query: when, which query, and the error."""
        file = self.folder / "errors.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        found = []
        for line in lines:
            try:
                each = json.loads(line)
            except json.JSONDecodeError:  # the program died while it wrote this line
                continue
            found.append((float(each["at"]), str(each["pipeline"]), str(each["error"])))
        return found

    # -- what it costs -----------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        return death.processes_of(self._pid)

    def memory(self) -> tuple[Counter[str], float]:
        """Megabytes by kind of process, and megabytes of the largest reader.

        This also counts processor time.
        """
        found, largest = Counter[str](), 0.0
        for process in self.processes():
            try:
                kind, size = _kind(process), process.memory_info().rss / 2**20
                times, key = process.cpu_times(), (process.pid, process.create_time())
            except psutil.NoSuchProcess:
                continue
            found[kind] += round(size)
            largest = max(largest, size if kind == "readers" else 0.0)
            spent = times.user + times.system
            self.cpu_seconds += spent - self._cpu.get(key, 0.0)
            self._cpu[key] = spent
        return found, largest

    @property
    def _pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def _kill(self, is_one: Callable[[psutil.Process], bool]) -> None:
        """Kill the program first, so that it does not notice the death of its JVM."""
        for process in sorted(self.processes(), key=lambda process: process.pid != self._pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if is_one(process):
                    process.kill()


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _kind(process: psutil.Process) -> str:
    try:
        if process.name() == "java":
            return "JVM"
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "gone"
    if _READER in command:
        return "readers"
    return "workers" if "pyspark" in command else "program"
