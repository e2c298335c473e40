"""Runs real Spark beside senders and .NET endpoints, kills, cuts and restarts everything,
and then proves what happened.

The driver (:mod:`tests.support.drivers.endless`) dies by ``kill -9`` again and again: as a whole, without its
Python processes, or only one of these; by us, or by itself at a named step. We cut connections, stop the
server as a crash does and start it again, and now and then read all tables as a dump does. Some lives of the
driver are long and calm, so that memory and cost show over time. At the end faults cease, the streams drain
everything, and we look up what became of each message.
"""

import random
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from sqlqueue_spark.embedded import EmbeddedServer
from tests.machine.soak_driver import Driver, Sample
from tests.machine.soak_proof import Disturbance, outcomes
from tests.machine.soak_traffic import Traffic
from tests.support.postgresql import PostgresEngine, restart

_SERVER = {"fsync": "off", "max_connections": "200", "timezone": "Asia/Kolkata"}
#: All of these are seconds. On a busy machine a start of Spark takes long, and so does a drain after it.
_TO_START = 240
_STANDS_STILL = 180
_TO_STOP = 90
_TO_VANISH = 60
_SAMPLED_EVERY = 5
_BETWEEN_FAULTS = (2, 20)
_SHORT, _LONG = (5, 60), (150, 300)
_PATIENCE = 3
#: The program notes an error that ended a query at most this many seconds later.
_NOTED_WITHIN = 10


@dataclass(kw_only=True)
class Proof:
    """What was done, and what became of each message."""

    seconds: float = 0.0
    drained_in: float = 0.0
    starts: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    #: By queue: how many batches there were, and how many of them something befell.
    batches: dict[str, tuple[int, int]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    #: Errors that ended a query, in short.
    errors: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    cpu_seconds: float = 0.0
    messages: int = 0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "samples": [vars(each) for each in self.samples]}


def run(folder: Path, random_: random.Random, *, seconds: float) -> Proof:
    """:param seconds: how long faults last, from when Spark has started for the first time."""
    folder.mkdir(parents=True)
    data = Path(
        tempfile.mkdtemp(prefix="sqlqueue-soak-")
    )  # it is not below our folder, because the server's user may not enter that
    try:
        with EmbeddedServer(data / "data", settings=_SERVER) as server, ExitStack() as ends:
            soak = _Soak(folder, server, random_)
            ends.callback(soak.driver.end)
            ends.callback(soak.traffic.end)
            soak.live(seconds)
            soak.drain()
            soak.prove()
            return soak.proof
    finally:
        shutil.rmtree(data, ignore_errors=True)


class _Soak:
    def __init__(self, folder: Path, server: EmbeddedServer, random_: random.Random) -> None:
        self.proof = Proof()
        self.driver = Driver(folder, server.url(), random_)
        self.traffic = Traffic(server.url(), str(random_.random()))
        self._folder = folder
        self._server = server
        self._engine = PostgresEngine(server.url())
        self._random = random_
        self._disturbances: list[Disturbance] = []
        self._began = self._looked = time.monotonic()
        self._before = (0, 0.0)
        #: Whether this driver and its processes are left alive until its life is over,
        #: and how many seconds that life lasts.
        self._calm = False
        self._life = 0.0
        self._ended_by_itself = 0

    # -- while faults are injected -----------------------------------------------------------------

    def live(self, seconds: float) -> None:
        self.traffic.begin()
        self._start(calm=True)
        self._life = self._random.uniform(*_SHORT)
        self._wait_until_up()
        self._began, next_ = time.monotonic(), 0.0
        until = self._began + seconds
        while time.monotonic() < until:
            self._look_after_driver()
            self._sample()
            if self.driver.is_up and time.monotonic() > next_:
                next_ = time.monotonic() + self._random.uniform(*_BETWEEN_FAULTS)
                self._befall()
            time.sleep(0.1)
        self.proof.seconds = time.monotonic() - self._began

    def _start(self, *, calm: bool | None = None) -> None:
        self._calm = self._random.random() < 0.2 if calm is None else calm
        self._life = self._random.uniform(*(_LONG if self._calm else _SHORT))
        self.driver.start(dies=not self._calm and self._random.random() < 0.5)

    def _look_after_driver(self, *, calm: bool | None = None) -> None:
        """Start the driver again when it is gone. It is a failure if anybody but us has ended it."""
        if what := self.driver.died_at_step():
            self._note(what, time.time() - 1)
        if self.driver.lives:
            return
        if self.driver.was_killed:
            self._disturbances.append(Disturbance(time.time() - 1, time.time()))
        else:
            self.proof.failures.append(f"The program has ended by itself; it said: {self.driver.tail()}")
            self._ended_by_itself += 1
            if self._ended_by_itself == _PATIENCE:
                raise RuntimeError(
                    f"The program has ended by itself {_PATIENCE} times; it said: {self.driver.tail()}"
                )
        self._start(calm=calm)

    def _befall(self) -> None:
        kinds: list[tuple[str, Callable[[], object]]] = [
            ("all connections cut", self._engine.cut_connections),
            ("one connection cut", self._cut_one),
            ("server stopped immediate and started", lambda: restart(self._server)),
            ("server stopped immediate, away for a while", self._away),
            ("all tables read as by a dump", self._dump),
        ]
        if not self._calm:
            kinds.append(("kill -9 of one Python process of Spark", self.driver.kill_one))
        if self._life_is_over():
            kinds = [
                ("kill -9 of everything", self.driver.kill_everything),
                ("kill -9 of driver", self.driver.kill_driver),
            ]
        what, befall = self._random.choice(kinds)
        began = time.time()
        befall()
        self._note(what, began)

    def _life_is_over(self) -> bool:
        return self.driver.up_for > self._life

    def _note(self, what: str, began: float) -> None:
        self.proof.faults[what] += 1
        self._disturbances.append(Disturbance(began, time.time()))

    def _cut_one(self) -> None:
        found = self._engine.fetch(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> "
            "pg_backend_pid()"
        )
        if found:
            self._engine.execute(f"SELECT pg_terminate_backend({self._random.choice(found)[0]})")

    def _away(self) -> None:
        self._server.stop(immediate=True)
        time.sleep(self._random.uniform(0.2, 3))
        self._server.start()

    def _dump(self) -> None:
        """Read all tables in a thread of its own, because other faults may befall the dump too."""
        seconds = self._random.uniform(0.5, 5)

        def dump() -> None:
            try:
                with psycopg.connect(self._server.url()) as connection:
                    tables = (
                        "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables WHERE "
                        "schemaname = 'public'"
                    )
                    found = connection.execute(tables).fetchone()
                    assert found is not None
                    connection.execute(f"LOCK TABLE {found[0]} IN ACCESS SHARE MODE")
                    time.sleep(seconds)
            except psycopg.Error:
                return

        threading.Thread(target=dump, daemon=True).start()

    def _wait_until_up(self) -> None:
        until = time.monotonic() + _TO_START
        while not self.driver.is_up:
            self._look_after_driver()
            if time.monotonic() > until:
                raise TimeoutError(
                    f"Spark has not started within {_TO_START} seconds; it said: {self.driver.tail()}"
                )
            time.sleep(0.2)

    # -- when they have ceased ---------------------------------------------------------------------

    def drain(self) -> None:
        """Wait until nothing is left. A driver that was ordered to die at a step may still do so."""
        self.traffic.send_no_more()
        began = moved = time.monotonic()
        least: int | None = None
        while True:
            self._look_after_driver(calm=True)
            self._sample()
            _, waiting = self.traffic.progress()
            if waiting == 0:
                break
            if least is None or waiting < least:
                least, moved = waiting, time.monotonic()
            if time.monotonic() - moved > _STANDS_STILL:
                self.proof.failures.append(
                    f"The streams STAND STILL while {waiting} rows wait, for {_STANDS_STILL} seconds; "
                    f"the program said: {self.driver.tail()}"
                )
                break
            time.sleep(0.2)
        self.proof.drained_in = time.monotonic() - began
        self._end()

    def _end(self) -> None:
        code = self.driver.stop(_TO_STOP)
        if code is None:
            self.proof.failures.append(f"The program did not stop within {_TO_STOP} seconds.")
        elif code != 0 and not self.driver.died_at_step():
            self.proof.failures.append(f"The program ended with code {code}; it said: {self.driver.tail()}")
        self.traffic.end()
        until = time.monotonic() + _TO_VANISH
        while (left := self.driver.left_behind()) and time.monotonic() < until:
            time.sleep(0.2)
        if left:
            self.proof.failures.append(
                f"These processes of killed or stopped programs live on after {_TO_VANISH} seconds: {left}"
            )

    def prove(self) -> None:
        proof = self.proof
        for at, pipeline, error in self.driver.errors():
            self._disturbances.append(Disturbance(at - _NOTED_WITHIN, at, pipeline))
            proof.errors[f"{pipeline}: {_short(error)}"] += 1
        held = self._engine.fetch(
            "SELECT application_name, state FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> "
            "pg_backend_pid() AND backend_type = 'client backend'"
        )
        if held:
            proof.failures.append(f"A process that is gone has a transaction open: {held}")
        for outcome in outcomes(self._server.url(), self._folder, self._disturbances):
            proof.sent[outcome.queue] = outcome.sent
            proof.ended[outcome.queue] = outcome.ended
            proof.batches[outcome.queue] = (outcome.batches, outcome.disturbed)
            proof.failures += outcome.failures
        proof.failures += self.traffic.troubles
        proof.starts = self.driver.starts
        proof.cpu_seconds = self.driver.cpu_seconds
        proof.messages, _ = self.traffic.progress()

    # -- what it costs -----------------------------------------------------------------------------

    def _sample(self) -> None:
        now = time.monotonic()
        if now - self._looked < _SAMPLED_EVERY:
            return
        self._looked = now
        memory, largest = self.driver.memory()
        try:
            messages, _ = self.traffic.progress()
        except psycopg.Error:  # we have cut this connection ourselves
            return
        (messages_before, cpu_before), cpu = self._before, self.driver.cpu_seconds
        self._before = (messages, cpu)
        moved = messages - messages_before
        self.proof.samples.append(
            Sample(
                at=round(now - self._began, 1),
                age=round(self.driver.age, 1),
                jvm=memory["JVM"],
                readers=memory["readers"],
                largest_reader=round(largest),
                workers=memory["workers"],
                messages=moved,
                cost=round(1000 * (cpu - cpu_before) / moved, 3) if moved > 0 else None,
            )
        )


def _short(error: str) -> str:
    """The sentence of an error that says what went wrong, without the stack trace that
    Spark wraps around it.
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("sqlqueue_spark.")]
    said = (ours or lines or ["nothing"])[-1 if ours else 0]
    return re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{8}(-[0-9a-f]+){4}", "…", said))[:160]
