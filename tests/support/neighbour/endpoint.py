"""A neighbour whose receivers are threads of this process."""

import contextlib
import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self
from uuid import UUID

from tests.support.engines import Engine, QueueTable
from tests.support.neighbour import addresses
from tests.support.neighbour.addresses import Place
from tests.support.neighbour.counts import Counts
from tests.support.neighbour.delayed_mover import Pauses
from tests.support.neighbour.habits import Habits
from tests.support.neighbour.handling import Handler
from tests.support.neighbour.postgresql_wire import PostgresWire
from tests.support.neighbour.receiving import Pump, Receiver, StandsStillError
from tests.support.neighbour.wire import Wire


class _Dead(BaseException):
    """The process is gone: no handler goes on, and nothing is committed."""


class Neighbour:
    """An endpoint on one queue. It may be started once."""

    def __init__(
        self,
        engine: Engine,
        queue: QueueTable,
        habits: Habits | None = None,
        handler: Handler | None = None,
    ) -> None:
        """:param handler: what it does with each message beside what its habits say,
        called by all its receivers.
        """
        self.habits = habits or Habits()
        self._place = Place(queue.schema, queue.name)
        self._handler = handler
        if engine.name == "sqlserver":
            from tests.support import lookalikes  # they need the driver's library
            from tests.support.neighbour.sqlserver_wire import SqlServerWire

            lookalikes.require("deletes_through_cte", "honours_lock_hints")
            kind: type[Wire] = SqlServerWire
            self.address = addresses.to_sqlserver(self._place)
        else:
            kind = PostgresWire
            self.address = addresses.to_postgresql(self._place)
        self._lost = kind.lost
        self._gone: tuple[type[BaseException], ...] = (*kind.lost, _Dead)
        self._open: Callable[[], Wire] = functools.partial(kind, engine.url, self._place)
        #: The ids of the rows that it has handled, in the order of their commits.
        self.handled: list[UUID] = []
        #: The errors that have ended one of its threads; there should be none.
        self.troubles: list[str] = []
        self._failures = Counter[str]()
        self._counts: list[Counts] = []
        self._pump = Pump()
        self._over = threading.Event()
        self._dead = False
        self._gate = threading.Condition()
        self._hangs = False
        self._wires: dict[str, Wire] = {}
        self._holding: dict[str, int] = {}
        self._threads: list[threading.Thread] = []
        self._began = 0.0

    def start(self) -> Self:
        """Begin to look and to receive."""
        assert not self._threads, "it has been started before"
        self._began = time.monotonic()
        self._live("look", self._look)
        for number in range(self.habits.concurrency):
            chance = random.Random(f"{self.habits.seed} {number}")  # noqa: S311
            self._live(f"receiver {number}", functools.partial(self._receive, chance))
        if self.habits.delivers_delayed:
            self._live("mover", functools.partial(self._deliver, Pauses(self.habits.longest_pause)))
        return self

    def stop(self) -> None:
        """End in good order: what is being handled is handled to its end, at once.

        Calling again is harmless.
        """
        self._over.set()
        self.go_on()
        self._pump.end()
        for thread in self._threads:
            thread.join()

    def die(self) -> None:
        """End as a process that is killed: without a word to the server,
        which holds its rows until it notices.
        """
        self._dead = True
        self._over.set()
        for wire in list(self._wires.values()):
            wire.cut()
        self.stop()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Within the block it lives; it ends in good order, unless it has died before."""
        self.start()
        try:
            yield self
        finally:
            self.stop()
        assert not self.troubles, self.troubles

    def hang(self) -> None:
        """From now on it holds what it takes, and handles none of it to its end."""
        with self._gate:
            self._hangs = True

    def go_on(self) -> None:
        with self._gate:
            self._hangs = False
            self._gate.notify_all()

    def holding(self) -> list[int]:
        """The RowVersions that it holds now because it handles them.

        While it hangs none of these is committed.
        """
        with self._gate:
            return sorted(self._holding.values())

    @property
    def stands_still(self) -> bool:
        """Whether the row that it received last cannot be received."""
        return self._pump.stands_still

    def counts(self) -> Counts:
        """What it has done so far."""
        return sum(self._counts, Counts())

    # -- its threads -------------------------------------------------------------------------------

    def _look(self, wire: Wire, counts: Counts) -> None:
        while not self._over.is_set():
            counts.looks += 1
            free = wire.look()
            if free > 0:
                self._pump.allow(free)
            if free <= 0 or self._pump.stands_still:
                self._rest()

    def _receive(self, dice: random.Random, wire: Wire, counts: Counts) -> None:
        receiver = Receiver(
            wire,
            counts,
            self.habits,
            self.address,
            self._handler,
            second=lambda: int(time.monotonic() - self._began),
            pause=self._handling,
            failures=self._failures,
            handled=self.handled,
            dice=dice,
        )
        while self._pump.may_begin():
            stood_still = self._pump.stands_still
            try:
                if not receiver.receive():
                    self._pump.no_more()
                if stood_still:  # a receive that had begun before tells nothing
                    self._pump.went_well()
            except StandsStillError:
                self._pump.no_more(stands_still=True)
            finally:
                self._pump.has_ended()

    def _handling(self, row_version: int) -> None:
        """Handle a message for as long as the habits say."""
        me = threading.current_thread().name
        with self._gate:
            self._holding[me] = row_version
        if self.habits.handling:
            self._over.wait(self.habits.handling.total_seconds())
        with self._gate:
            self._gate.wait_for(lambda: not self._hangs)
            del self._holding[me]
        if self._dead:
            raise _Dead

    def _deliver(self, pauses: Pauses, wire: Wire, counts: Counts) -> None:
        while not self._over.is_set():
            try:
                moved, next_due = wire.move_due()
            except wire.lost:
                raise
            except Exception:  # noqa: BLE001 -- it looks again, as theirs does
                counts.undelivered += 1
                moved, next_due = 0, None
            counts.delivered += moved
            self._over.wait(pauses.after(moved, next_due))

    def _live(self, name: str, work: Callable[[Wire, Counts], None]) -> None:
        counts = Counts()
        self._counts.append(counts)

        def live() -> None:
            try:
                while not self._over.is_set():
                    if not self._connected(name, work, counts):
                        counts.lost += 1
                        self._rest()
            except Exception as error:  # noqa: BLE001 -- its caller is told at the end
                self.troubles.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=live, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _connected(self, name: str, work: Callable[[Wire, Counts], None], counts: Counts) -> bool:
        """Work until the endpoint ends; False if the connection was lost."""
        try:
            wire = self._open()
        except self._lost:
            return False
        self._wires[name] = wire
        try:
            if not self._dead:
                work(wire, counts)
        except self._gone:
            return False
        finally:
            del self._wires[name]
            wire.close()
        return True

    def _rest(self) -> None:
        self._over.wait(self.habits.rest.total_seconds())
