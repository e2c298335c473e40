"""Who waits for whom in a state: for locks, which the server sees,
and for other clients, which it does not.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.lock_model.operations import Hear, Operation, Work
from tests.lock_model.state import Actor, State

Edges = Mapping[int, frozenset[int]]


class Waits(NamedTuple):
    """Who waits for whom."""

    for_locks: Edges
    for_clients: Edges
    #: Who is busy on its own side of the connection, and with what.
    at_work: Mapping[int, str]
    #: Those of the waiting who never give up.
    for_ever: frozenset[int]

    @property
    def _all(self) -> Edges:
        """No actor waits for a lock and for a client at once."""
        return {**self.for_locks, **self.for_clients}

    def deadlocked(self) -> list[int]:
        """Those who wait for locks in a circle."""
        return [who for who in self.for_locks if who in reached(who, self.for_locks)]

    def in_a_circle(self) -> list[int]:
        """Those who wait in a circle of which the server sees only a part."""
        return sorted(who for who in self._all if who in reached(who, self._all))

    def until_clients_have_worked(self) -> Iterator[tuple[int, int, str]]:
        """Who waits for a lock, who is in the way, and what a client must do before that lock is free.

        An actor between them that gives up after a while ends the wait.
        """
        beyond = {who: others for who, others in self._all.items() if who in self.for_ever}
        for who, blockers in self.for_locks.items():
            for first in sorted(blockers):
                for last in sorted({first, *reached(first, beyond)}):
                    if last in self.at_work:
                        yield who, first, self.at_work[last]


def waits(actors: tuple[Actor, ...], operations: list[Operation], state: State) -> Waits:
    """Who waits for whom in a state.

    :param operations: what each actor does next, or is just doing.
    """
    names = {actor.name: who for who, actor in enumerate(actors)}
    told = dict(state.told)
    locks = dict(state.locks)
    for_locks, for_clients, at_work = {}, {}, {}
    for_ever: set[int] = set()
    for who, place in enumerate(state.places):
        operation = operations[who]
        if place.wants is not None:
            for_locks[who] = frozenset(locks[place.wants].blockers(who))
            patience = actors[who].patience
        elif isinstance(operation, Hear) and operation.what not in told:
            for_clients[who] = frozenset({names[operation.whom]})
            patience = operation.patience
        else:
            if isinstance(operation, Work):
                at_work[who] = operation.what
            continue
        if patience is None:
            for_ever.add(who)
    return Waits(for_locks, for_clients, at_work, frozenset(for_ever))


def reached(start: int, edges: Edges) -> set[int]:
    """Everybody for whom ``start`` waits, directly or not."""
    found: set[int] = set()
    todo = list(edges.get(start, ()))
    while todo:
        if (who := todo.pop()) not in found:
            found.add(who)
            todo += edges.get(who, ())
    return found
