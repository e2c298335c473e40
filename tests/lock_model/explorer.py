"""Goes through every interleaving of a few actors, breadth first,
and reports what is wrong with the shortest story of each.

The server's own steps take no time beside a lock timeout. So time passes only while no actor can go on but
clients with work of their own, which takes as long as they like.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tests.lock_model.operations import Either, Ended, Hear, Operation, Work
from tests.lock_model.script import Script
from tests.lock_model.state import Actor, Place, Said, State, Step
from tests.lock_model.table import Rows
from tests.lock_model.waits import Waits, waits

Kind = Literal["deadlock", "circle", "waits for a client", "stands still", "lost", "left", "twice"]


class Finding(NamedTuple):
    """Something that is wrong.

    ``deadlock``: the server ends one of ``who``. ``circle``: ``who`` wait for one another, and the server
    does not see it. ``waits for a client``: the first of ``who`` waits for a lock of the second, until a
    client has done what ``about`` says, and no actor in between gives up. ``stands still``: no actor ever
    goes on. ``lost``: a row is gone that no actor has processed. ``left``: all have ended, and a row is still
    there that ``who`` have processed. ``twice``: ``who`` have processed one row.
    """

    kind: Kind
    who: tuple[str, ...]
    about: str = ""


class Story(NamedTuple):
    """How it comes to a state: a column for each actor, a line for each step.

    The last line says what they do in it.
    """

    names: tuple[str, ...]
    steps: tuple[Said, ...]
    last: Said

    def __str__(self) -> str:
        head = [("", *self.names), ("---",) * (len(self.names) + 1)]
        lines = [
            *head,
            *((str(number), *step) for number, step in enumerate(self.steps, 1)),
            ("now", *self.last),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Report:
    """What all interleavings show."""

    names: tuple[str, ...]
    states: int = 0
    findings: dict[Finding, Story] = field(default_factory=dict)
    #: How each actor ends, in the order of their names, whenever all end.
    outcomes: dict[tuple[str, ...], Story] = field(default_factory=dict)

    def of(self, *kinds: Kind) -> list[Finding]:
        """The findings of some kinds, sorted."""
        return sorted(finding for finding in self.findings if finding.kind in kinds)


_TIME_PASSES = "…"


class Explorer:
    """Explores a table with some actors."""

    def __init__(
        self, actors: tuple[Actor, ...], rows: tuple[int, ...], *, most_states: int = 400_000
    ) -> None:
        self._actors = actors
        self._scripts = tuple(Script(actor.start) for actor in actors)
        committed = frozenset(rows)
        start = State(
            (Place(),) * len(actors), frozenset(), Rows(committed, born=committed), frozenset(), frozenset()
        )
        step = self._step(start)
        step.begin()
        self._start, _ = step.done()
        self._most = most_states
        self._before: dict[State, tuple[State, Said] | None] = {self._start: None}
        self._report = Report(tuple(actor.name for actor in actors))

    def explore(self) -> Report:
        """Go through all states."""
        todo = deque([self._start])
        while todo:
            state = todo.popleft()
            self._report.states += 1
            assert self._report.states <= self._most, "more states than the model is meant for"
            for after, said in self._steps(state):
                known = len(self._before)
                self._before.setdefault(after, (state, said))
                if len(self._before) > known:
                    todo.append(after)
        return self._report

    def _steps(self, state: State) -> Iterator[tuple[State, Said]]:
        operations = [
            script.operation(place.at) for script, place in zip(self._scripts, state.places, strict=True)
        ]
        now = waits(self._actors, operations, state)
        self._note(state, operations, now)
        if circle := now.deadlocked():
            lowest = min(self._actors[who].priority for who in circle)
            for who in circle:
                if self._actors[who].priority == lowest:
                    yield self._thrown(state, who, "deadlock")
            return
        quick = False
        for who, operation in enumerate(operations):
            if isinstance(operation, Ended) or who in now.for_locks or who in now.for_clients:
                continue
            quick = quick or not isinstance(operation, Work)
            for result in (True, False) if isinstance(operation, Either) else (None,):
                step = self._step(state)
                step.act(who, result)
                yield step.done()
        if not quick:
            yield from self._time_passes(state, now)

    def _time_passes(self, state: State, now: Waits) -> Iterator[tuple[State, Said]]:
        out = [who for who, place in enumerate(state.places) if place.left == 0]
        for who in out:
            if who in now.for_locks:
                yield self._thrown(state, who, "timeout")
            else:
                step = self._step(state)
                step.act(who)
                yield step.done()
        if not out and {*now.for_locks, *now.for_clients} != now.for_ever:
            step = self._step(state)
            step.wait()
            after, _ = step.done()
            yield after, (_TIME_PASSES,) * len(self._actors)

    def _thrown(self, state: State, who: int, error: str) -> tuple[State, Said]:
        step = self._step(state)
        step.throw(who, error)
        return step.done()

    def _step(self, state: State) -> Step:
        return Step(self._actors, self._scripts, state)

    def _note(self, state: State, operations: list[Operation], now: Waits) -> None:
        if deadlocked := now.deadlocked():
            self._found(state, "deadlock", deadlocked)
        elif circle := now.in_a_circle():
            self._found(state, "circle", circle)
        for who, first, work in now.until_clients_have_worked():
            self._found(state, "waits for a client", (who, first), work)
        if lost := state.rows.born - state.rows.committed - {row for row, _ in state.processed}:
            self._found(state, "lost", (), f"row {min(lost)}")
        for row in state.rows.born:
            if len(by := _by(state, row)) > 1:
                self._found(state, "twice", by)
        going = {who for who, each in enumerate(operations) if not isinstance(each, Ended)}
        if going and going == now.for_ever and not now.deadlocked():
            self._found(state, "stands still", sorted(going))
        ends = tuple(each.outcome for each in operations if isinstance(each, Ended))
        if len(ends) == len(operations):
            self._note_end(state, ends)

    def _note_end(self, state: State, ends: tuple[str, ...]) -> None:
        assert not state.locks, "everybody has ended, and locks are left"
        for row in sorted(state.rows.committed & {row for row, _ in state.processed}):
            self._found(state, "left", _by(state, row), f"row {row}")
        if ends not in self._report.outcomes:
            self._report.outcomes[ends] = self._story(state)

    def _found(self, state: State, kind: Kind, who: tuple[int, ...] | list[int], about: str = "") -> None:
        finding = Finding(kind, tuple(self._report.names[each] for each in who), about)
        if finding not in self._report.findings:
            self._report.findings[finding] = self._story(state)

    def _story(self, state: State) -> Story:
        steps: list[Said] = []
        at = self._before[state]
        while at is not None:
            before, said = at
            if any(said):
                steps.append(said)
            at = self._before[before]
        last = (self._present(state, who) for who in range(len(self._actors)))
        return Story(self._report.names, tuple(reversed(steps)), tuple(last))

    def _present(self, state: State, who: int) -> str:
        place = state.places[who]
        if place.wants is not None:
            queue = dict(state.locks)[place.wants]
            mode = next(lock.mode for lock in queue.waiting if lock.owner == who)
            others = " and ".join(self._report.names[each] for each in sorted(queue.blockers(who)))
            return f"waits for {others} ({mode} {place.wants})"
        match self._scripts[who].operation(place.at):
            case Hear(whom=whom, what=what) if what not in dict(state.told):
                return f"waits to hear from {whom}: {what}"
            case Work(what=what):
                return what
            case Ended(outcome=outcome):
                return f"has ended: {outcome}"
            case _:
                return "goes on"


def _by(state: State, row: int) -> list[int]:
    """Who has processed a row."""
    return sorted(who for which, who in state.processed if which == row)


def explore(*actors: Actor, rows: tuple[int, ...] = (1, 2)) -> Report:
    """Go through every interleaving of some actors on a table that has these rows."""
    return Explorer(actors, rows).explore()
