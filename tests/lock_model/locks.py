"""Locks on one resource: who has it, who waits for it, and who comes next.

A newcomer waits where its mode does not pass what others have, or what others wait for. An owner of the
resource that wants a stronger mode (a conversion) only looks at what others have. It is served before the
newcomers. The server's people call this relaxed FIFO.
"""

from enum import IntEnum
from typing import Literal, NamedTuple

Mode = Literal["IS", "IX", "S", "U", "X", "Sch-S", "Sch-M"]
Answer = Literal["granted", "skipped", "waits"]

#: What others may have while an owner is given a mode.
PASSES: dict[Mode, frozenset[Mode]] = {
    "IS": frozenset({"IS", "IX", "S", "U", "Sch-S"}),
    "IX": frozenset({"IS", "IX", "Sch-S"}),
    "S": frozenset({"IS", "S", "U", "Sch-S"}),
    "U": frozenset({"IS", "S", "Sch-S"}),
    "X": frozenset({"Sch-S"}),
    "Sch-S": frozenset({"IS", "IX", "S", "U", "X", "Sch-S"}),
    "Sch-M": frozenset(),
}
#: From the weakest. A table is never asked for S or U here, a row never for an intent.
_STRENGTH: tuple[Mode, ...] = ("Sch-S", "IS", "IX", "S", "U", "X", "Sch-M")


class Until(IntEnum):
    """How long a lock is kept."""

    ROW = 0
    STATEMENT = 1
    TRANSACTION = 2


class Lock(NamedTuple):
    """A lock that its owner has, or waits for."""

    owner: int
    mode: Mode
    until: Until


class Resource(NamedTuple):
    """What can be locked: the table, or one of the entries of a row."""

    kind: str
    row: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.row}" if self.row else self.kind


class Queue(NamedTuple):
    """The locks on one resource. Who waits to strengthen a lock stands in front."""

    granted: tuple[Lock, ...] = ()
    waiting: tuple[Lock, ...] = ()

    def held(self, owner: int) -> Lock | None:
        return next((lock for lock in self.granted if lock.owner == owner), None)

    def covers(self, wanted: Lock) -> bool:
        """Whether the owner has the lock already."""
        have = self.held(wanted.owner)
        return have is not None and _both(have, wanted) == have

    def request(self, wanted: Lock, *, past: bool) -> tuple["Queue", Answer]:
        """Ask for a lock; with ``past`` the owner does not wait for it (``READPAST``)."""
        have = self.held(wanted.owner)
        if have is not None:
            wanted = _both(have, wanted)
        if self._in_the_way(wanted, newcomer=have is None) == set():
            return self._given(wanted), "granted"
        if past:
            return self, "skipped"
        place = sum(1 for lock in self.waiting if self.held(lock.owner)) if have else len(self.waiting)
        return self._replace(waiting=(*self.waiting[:place], wanted, *self.waiting[place:])), "waits"

    def release(self, owner: int, until: Until) -> tuple["Queue", list[int]]:
        """Free the locks that are kept no longer than ``until``, and what the owner waits for.

        Tell who goes on.
        """
        queue = Queue(
            tuple(lock for lock in self.granted if lock.owner != owner or lock.until > until),
            tuple(lock for lock in self.waiting if lock.owner != owner),
        )
        if queue == self:
            return self, []
        served: list[int] = []
        for wanted in queue.waiting:
            if queue.blockers(wanted.owner) == set():
                waiting = tuple(lock for lock in queue.waiting if lock != wanted)
                queue = queue._replace(waiting=waiting)._given(wanted)
                served.append(wanted.owner)
        return queue, served

    def blockers(self, owner: int) -> set[int]:
        """For whom the owner waits: those who have it, and those who wait in front."""
        place, wanted = next((n, lock) for n, lock in enumerate(self.waiting) if lock.owner == owner)
        in_front = self._replace(waiting=self.waiting[:place])
        return in_front._in_the_way(wanted, newcomer=self.held(owner) is None)

    def _in_the_way(self, wanted: Lock, *, newcomer: bool) -> set[int]:
        others = (*self.granted, *self.waiting) if newcomer else self.granted
        passes = PASSES[wanted.mode]
        return {lock.owner for lock in others if lock.owner != wanted.owner and lock.mode not in passes}

    def _given(self, lock: Lock) -> "Queue":
        rest = (each for each in self.granted if each.owner != lock.owner)
        return self._replace(granted=tuple(sorted((*rest, lock))))


def _both(have: Lock, wanted: Lock) -> Lock:
    mode = max(have.mode, wanted.mode, key=_STRENGTH.index)
    return Lock(have.owner, mode, max(have.until, wanted.until))
