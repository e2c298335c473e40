"""Plays all orders of steps and faults, breadth first, and keeps the shortest way to each broken promise."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.send_model.configuration import Configuration
from tests.send_model.faults import Faults
from tests.send_model.promises import Promises, Wrong, is_settled
from tests.send_model.rules import Rules
from tests.send_model.world import Step, World

#: A world from which no order of steps without faults leads to a settled one.
STANDS_STILL = "stands still"

MOST_WORLDS = 3_000_000


@dataclass
class Found:
    """What an exploration has found: by finding, of what and by which steps."""

    worlds: int = 0
    wrong: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    inherent: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def story(self) -> str:
        lines = [f"{self.worlds} worlds"]
        for kind, found in (("", self.wrong), ("inherent: ", self.inherent)):
            for finding, (about, steps) in found.items():
                lines.append(f"{kind}{finding}: {about}")
                lines += [f"   {number}. {each}" for number, each in enumerate(steps, 1)]
        return "\n".join(lines)


class Explorer:
    """One exploration of a configuration under rules."""

    def __init__(self, configuration: Configuration, rules: Rules) -> None:
        self.model = Faults(configuration, rules)
        self.found = Found()
        start = self.model.first()
        self._number = {start: 0}
        self._came: list[tuple[int, str]] = [(-1, "")]
        self._before: list[list[int]] = [[]]  # the worlds from which a step without a fault leads here
        self._left = deque([start])

    def explore(self, until: str = "") -> Found:
        """Play everything, or until there is a finding of this name."""
        settled = []
        while self._left:
            world = self._left.popleft()
            at = self._number[world]
            if is_settled(world):
                settled.append(at)
                for wrong in Promises(self.model.configuration, world).broken():
                    self._note(wrong, at, world)
                if until in self.found.wrong:
                    break
            assert len(self._number) < MOST_WORLDS, "the configuration never comes to an end"
            for step in self._steps(world):
                if step.after != world:
                    self._add(at, step)
        else:
            self._look_for_standstill(settled)
        self.found.worlds = len(self._number)
        return self.found

    def _steps(self, world: World) -> Iterator[Step]:
        yield from self.model.spark(world)
        yield from self.model.run_tries(world)
        yield from self.model.movers(world)
        yield from self.model.faults(world)

    def _add(self, at: int, step: Step) -> None:
        to = self._number.get(step.after)
        if to is None:
            to = self._number[step.after] = len(self._came)
            self._came.append((at, step.text))
            self._before.append([])
            self._left.append(step.after)
        if not step.fault:
            self._before[to].append(at)

    def _look_for_standstill(self, settled: list[int]) -> None:
        good = bytearray(len(self._came))
        left = list(settled)
        for each in settled:
            good[each] = 1
        while left:
            for each in self._before[left.pop()]:
                if not good[each]:
                    good[each] = 1
                    left.append(each)
        if (stuck := good.find(0)) >= 0:
            self.found.wrong.setdefault(STANDS_STILL, ("", self._way(stuck)))

    def _note(self, wrong: Wrong, at: int, world: World) -> None:
        needs = self.model.configuration.inherent.get(wrong.finding)
        inherent = needs is not None and all(each.intersection(world.spent) for each in needs)
        found = self.found.inherent if inherent else self.found.wrong
        if wrong.finding not in found:
            found[wrong.finding] = (wrong.about, self._way(at))

    def _way(self, at: int) -> list[str]:
        steps = []
        while at > 0:
            at, text = self._came[at]
            steps.append(text)
        return steps[::-1]


def explore(configuration: Configuration, rules: Rules | None = None, until: str = "") -> Found:
    """Explore a configuration under all rules, or under these."""
    return Explorer(configuration, rules or Rules()).explore(until)
