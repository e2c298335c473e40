"""A state of the table and its actors, and what comes of one step of one actor."""

from dataclasses import dataclass
from typing import NamedTuple

from tests.lock_model.locks import Lock, Queue, Resource, Until
from tests.lock_model.operations import (
    Change,
    Count,
    Drop,
    Either,
    End,
    Ended,
    Free,
    Hear,
    Look,
    Operation,
    Processed,
    Silent,
    Start,
    Take,
    Tell,
    Versions,
    Work,
)
from tests.lock_model.script import Result, Script
from tests.lock_model.table import TABLE, Rows


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A program with a connection.

    ``patience``: the session's LOCK_TIMEOUT, in units that only mean longer and shorter; None waits for ever.
    ``priority``: DEADLOCK_PRIORITY; the lowest loses. ``alters``: it takes Sch-M. Where no actor does,
    locks on the table pass one another, and are left out.
    """

    name: str
    start: Start
    patience: int | None = None
    priority: int = 0
    alters: bool = False


class Place(NamedTuple):
    """Where an actor is in its program, what it waits for, and how much of its patience is left."""

    at: int = 0
    wants: Resource | None = None
    left: int | None = None


class State(NamedTuple):
    """Everything that decides what can happen next."""

    places: tuple[Place, ...]
    locks: frozenset[tuple[Resource, Queue]]
    rows: Rows
    told: frozenset[tuple[str, object]]
    #: Which rows were processed, and by whom.
    processed: frozenset[tuple[int, int]]


#: What each actor did in one step; most did nothing.
Said = tuple[str, ...]


class Step:
    """Changes a copy of a state."""

    def __init__(self, actors: tuple[Actor, ...], scripts: tuple[Script, ...], state: State) -> None:
        self._actors = actors
        self._scripts = scripts
        self._places = list(state.places)
        self._locks = dict(state.locks)
        self._rows = state.rows
        self._told = state.told
        self._processed = state.processed
        self._said: list[list[str]] = [[] for _ in actors]

    def done(self) -> tuple[State, Said]:
        # No actor waits for a resource on which no lock is held.
        locks = frozenset(each for each in self._locks.items() if each[1].granted)
        state = State(tuple(self._places), locks, self._rows, self._told, self._processed)
        return state, tuple("; ".join(each) for each in self._said)

    def act(self, who: int, result: Result = None) -> None:
        """Do the actor's next operation.

        :param result: of an :class:`Either`.
        """
        match operation := self._next(who):
            case Take():
                self._take(who, operation)
            case Count(entries=entries):
                self._say(who, "counts without locks")
                self._answer(who, sum(map(self._rows.is_counted, entries)))
            case Versions():
                self._say(who, "reads row versions")
                self._answer(who, self._rows.committed)
            case End(how=how):
                self._end(who, how)
                self._answer(who, None)
            case Work(what=what):
                self._say(who, what)
                self._answer(who, None)
            case Hear(what=what):
                heard = dict(self._told).get(what)
                self._say(who, f"hears: {what}" if heard is not None else f"no longer waits for: {what}")
                self._answer(who, heard)
            case Either(what=what):
                if result:
                    self._say(who, what)
                self._answer(who, result)

    def throw(self, who: int, error: str) -> None:
        """End the actor's wait, its statement and its transaction with an error."""
        self._say(who, {"timeout": "lock timeout (1222)", "deadlock": "deadlock victim (1205)"}[error])
        self._end(who, "rollback")
        self._answer(who, error)

    def wait(self) -> None:
        """Let time pass: everybody who waits has a little less patience."""
        for who, place in enumerate(self._places):
            patience = self._patience(who)
            if patience is not None:
                self._places[who] = place._replace(left=(patience if place.left is None else place.left) - 1)

    def _patience(self, who: int) -> int | None:
        """With how much patience the actor's present wait began;
        None where it waits for ever, or does not wait.
        """
        if self._places[who].wants is not None:
            return self._actors[who].patience
        operation = self._next(who)
        return operation.patience if isinstance(operation, Hear) else None

    def begin(self) -> None:
        """Do what the actors do before anybody can notice."""
        for who in range(len(self._actors)):
            self._silently(who)

    def _next(self, who: int) -> Operation:
        return self._scripts[who].operation(self._places[who].at)

    def _say(self, who: int, what: str) -> None:
        self._said[who].append(what)

    def _take(self, who: int, take: Take) -> None:
        what = take.resource
        if what.row and not take.adds and not self._rows.is_met(what):
            self._answer(who, "absent")
            return
        queue, answer = self._locks.get(what, Queue()).request(
            Lock(who, take.mode, take.until), past=take.past
        )
        self._locks[what] = queue
        said = {"granted": "", "skipped": "steps over ", "waits": "waits for "}[answer]
        self._say(who, f"{said}{take.mode} {what}")
        if answer == "waits":
            self._places[who] = self._places[who]._replace(wants=what)
        else:
            self._answer(who, answer)

    def _has(self, who: int, take: Take) -> bool:
        if take.resource == TABLE and not any(actor.alters for actor in self._actors):
            return True
        queue = self._locks.get(take.resource)
        return queue is not None and queue.covers(Lock(who, take.mode, take.until))

    def _answer(self, who: int, result: Result) -> None:
        place = self._places[who]
        self._places[who] = Place(self._scripts[who].after(place.at, result))
        self._silently(who)

    def _silently(self, who: int) -> None:
        operation = self._next(who)
        if isinstance(operation, Ended):
            self._say(who, f"ends: {operation.outcome}")
        if isinstance(operation, Take) and self._has(who, operation):
            self._answer(who, "granted")
        if isinstance(operation, Silent):
            self._answer(who, self._done_silently(who, operation))

    def _done_silently(self, who: int, operation: Silent) -> Result:
        match operation:
            case Free(until=until):
                self._release(who, until, list(self._locks))
            case Drop(entry=entry):
                self._release(who, Until.TRANSACTION, [entry])
            case Look(row=row):
                return self._rows.is_there(row, who)
            case Change(entry=entry, what="adds"):
                self._rows = self._rows._replace(added=self._rows.added | {(who, entry)})
            case Change(entry=entry):
                self._rows = self._rows._replace(removed=self._rows.removed | {(who, entry)})
            case Tell(what=what, value=value):
                self._say(who, f"says: {what}")
                self._told |= {(what, value)}
            case Processed(rows=rows):
                self._processed |= {(row, who) for row in rows}
        return None

    def _end(self, who: int, how: str) -> None:
        self._say(who, how)
        self._rows = self._rows.ended(who, how)
        self._release(who, Until.TRANSACTION, list(self._locks))

    def _release(self, who: int, until: Until, resources: list[Resource]) -> None:
        served: list[tuple[int, Resource]] = []
        for what in resources:
            self._locks[what], now = self._locks[what].release(who, until)
            served += ((other, what) for other in now)
        for other, what in served:
            mode = next(lock.mode for lock in self._locks[what].granted if lock.owner == other)
            self._say(other, f"gets {mode} {what}")
            self._answer(other, "granted")
