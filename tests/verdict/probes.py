"""An experiment that shows whether a rule holds: what it does,
what the rule lets us expect, and what was seen.
"""

import dataclasses
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

P = TypeVar("P")
#: What was seen, by its name: ``{"rows that the other session gets": [1, 3]}``.
Facts = Mapping[str, object]


class Outcome(StrEnum):
    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    #: The report says why, and the command does not fail for it.
    KNOWN = "does not hold, as known"
    NOT_APPLICABLE = "not applicable"
    #: The experiment itself failed, so that it shows nothing.
    BROKE_OFF = "broke off"


#: With any other outcome the command fails.
FINE = frozenset({Outcome.HOLDS, Outcome.KNOWN, Outcome.NOT_APPLICABLE})


class NotApplicable(Exception):
    """The server, database or table cannot show whether the rule holds."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A line of the report."""

    id: str
    rule: str
    done: str
    seen: str
    outcome: Outcome
    #: On which shape of table, under which setting of the database.
    where: str


@dataclass(frozen=True, kw_only=True)
class Probe(Generic[P]):
    """``expected`` are the facts that the rule lets us expect; where it allows several,
    one of them must be seen.
    """

    id: str
    rule: str
    done: str
    expected: tuple[Facts, ...]
    look: Callable[[P], Facts]
    #: Why it is known not to hold; empty where it must hold.
    known: str = ""

    def expecting(self, *expected: Facts) -> "Probe[P]":
        """The same experiment with another expectation."""
        return dataclasses.replace(self, expected=expected)

    def verdict(self, place: P, where: str) -> Verdict:
        """Carry the experiment out.

        An error that it does not expect shows nothing of the rule; it goes to stderr.
        """
        try:
            facts = self.look(place)
        except NotApplicable as reason:
            return self._verdict(str(reason), Outcome.NOT_APPLICABLE, where)
        except Exception as error:  # noqa: BLE001 -- the other experiments are carried out all the same
            traceback.print_exc(file=sys.stderr)
            # No text of the error: drivers name hosts and users in it.
            return self._verdict(f"an error: {type(error).__name__}", Outcome.BROKE_OFF, where)
        if any(dict(facts) == dict(each) for each in self.expected):
            return self._verdict(told(facts), Outcome.HOLDS, where)
        said = f"{told(facts)}; expected: {' or '.join(map(told, self.expected))}"
        if self.known:
            return self._verdict(f"{said}; {self.known}", Outcome.KNOWN, where)
        return self._verdict(said, Outcome.DOES_NOT_HOLD, where)

    def _verdict(self, seen: str, outcome: Outcome, where: str) -> Verdict:
        return Verdict(id=self.id, rule=self.rule, done=self.done, seen=seen, outcome=outcome, where=where)


class Probes(Generic[P]):
    """The experiments of an engine, in the order in which they stand in their files."""

    def __init__(self) -> None:
        self._all: dict[str, Probe[P]] = {}

    def __call__(
        self, id: str, rule: str, *expected: Facts
    ) -> Callable[[Callable[[P], Facts]], Callable[[P], Facts]]:
        """Register a function. Its docstring says what is done."""
        assert id not in self._all, f"two experiments are called {id}"

        def register(look: Callable[[P], Facts]) -> Callable[[P], Facts]:
            done = " ".join((look.__doc__ or "").split())
            assert done, f"the docstring of {id} says what is done"
            self._all[id] = Probe(id=id, rule=rule, done=done, expected=expected, look=look)
            return look

        return register

    def __iter__(self) -> Iterator[Probe[P]]:
        return iter(self._all.values())

    def __getitem__(self, id: str) -> Probe[P]:
        return self._all[id]

    def ids(self) -> set[str]:
        return set(self._all)


def to_the_end(part: str, where: str, look: Callable[[], Iterable[Verdict]]) -> list[Verdict]:
    """The verdicts of a part.

    Where it comes to no end, a line says so, and other parts can be carried out all the same.
    """
    found: list[Verdict] = []

    def carried_out(_: None) -> Facts:
        found.extend(look())
        return {}

    whole: Probe[None] = Probe(
        id=f"{part}:to-the-end",
        rule=f"All of this part ({part}) can be carried out.",
        done="Its experiments are carried out one after the other.",
        expected=({},),
        look=carried_out,
    )
    verdict = whole.verdict(None, where)
    return found if verdict.outcome is Outcome.HOLDS else [*found, verdict]


def told(facts: Facts) -> str:
    """Facts as a sentence of the report."""
    return "; ".join(f"{name}: {_told(value)}" for name, value in facts.items()) or "nothing"


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, Iterable):
        return ", ".join(map(_told, value)) or "none"
    return "none" if value is None else str(value)
