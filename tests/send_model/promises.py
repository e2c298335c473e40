"""What the protocol promises: what must be true in each world in which nothing is left to do."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.send_model.configuration import Configuration
from tests.send_model.world import Outcome, Row, World

#: Tables that are no destination.
OWN_TABLES = ("queue", "delayed", "error", "ack", "audit")


class Wrong(NamedTuple):
    """A broken promise: a finding, and of which message."""

    finding: str
    about: str


def is_settled(world: World) -> bool:
    if world.batch or world.tries or any(each.table in ("queue", "delayed") for each in world.home.rows):
        return False
    return world.other.state == world.third.state == "up"


class Promises:
    """Counts the messages of a settled world."""

    def __init__(self, configuration: Configuration, world: World) -> None:
        self.configuration = configuration
        self.outcomes = world.home.outcomes
        rows = [*world.home.rows, *world.other.rows, *world.third.rows]
        self.arrived = [each for each in rows if each.table not in OWN_TABLES]
        self.errors, self.acks, self.audits = (
            Counter(each.root for each in rows if each.table == table) for table in ("error", "ack", "audit")
        )
        self.expected: Counter[tuple[str, str]] = Counter()
        self.failed: set[str] = set()

    def broken(self) -> Iterator[Wrong]:
        roots = {each.root: each for each in self.configuration.rows}
        others = {each.root for each in self.outcomes} | set(self.errors) | set(self.acks) | set(self.audits)
        for root in sorted(roots.keys() | others):
            yield from self._row(root, roots.get(root))
        handled = Counter(
            each.id for each in self.outcomes if each.outcome == "done" and each.kind == "handle"
        )
        yield from (Wrong("handled twice", id_) for id_, number in handled.items() if number > 1)
        there = Counter((each.id, each.table) for each in self.arrived)
        in_error = {(each.id, each.table) for each in self.arrived if each.root in self.failed}
        for each in self.arrived:
            if self.errors[f"{each.root}>{each.table}"]:
                in_error.add((each.id, each.table))
                yield Wrong("delivered and in error", f"the copy of {each.root} at {each.table}")
        for send in sorted(there.keys() | self.expected.keys()):
            if there[send] < self.expected[send]:
                yield Wrong("lost", f"{send[0]} at {send[1]}")
            elif there[send] > max(self.expected[send], send in in_error):
                yield Wrong("delivered twice", f"{send[0]} at {send[1]}: {there[send]}")

    def _row(self, root: str, row: Row | None) -> Iterator[Wrong]:
        its = sorted((each for each in self.outcomes if each.root == root), key=lambda each: each.hop)
        last = _last(its)
        failed = last.outcome == "failed" if last else bool(self.errors[root])
        if row and row.kind in ("handle", "poison") and (last is None or last.outcome == "retried"):
            yield Wrong("no outcome", root)
            return
        if len({each.hop for each in its}) != len(its):
            yield Wrong("two outcomes", f"{root}: {its}")
        if failed:
            self.failed.add(root)
        if failed and self.errors[root] != 1:
            yield Wrong("in error twice" if self.errors[root] else "failed, and not in error", root)
        if not failed and self.errors[root]:
            yield Wrong("done and in error", root)
        if failed and any(each.root == root for each in self.arrived):
            yield Wrong("delivered and in error", root)
        yield from self._results(root, row, its, failed)
        if row and not failed:
            yield from self._sent(row, last)

    def _results(self, root: str, row: Row | None, its: list[Outcome], failed: bool) -> Iterator[Wrong]:
        last = _last(its)
        # Only ServiceControl brings back what was in error: a failed row, a refused copy, a plain message.
        was_in_error = ">" in root or any(
            last is not None and each.outcome == "failed" and each.hop < last.hop for each in its
        )
        was_in_error |= row is not None and row.kind == "plain" and bool(its)
        owed = int(((row is not None and row.owes) or was_in_error) and not failed)
        if self.acks[root] != owed:
            yield Wrong("acknowledged too often" if self.acks[root] > owed else "not acknowledged", root)
        if last is None or failed:
            owed = 0
        elif last.kind == "handle":
            owed = int(last.outcome == "done")
        else:
            owed = int(self.configuration.audits and last.kind != "stored")
        if self.audits[root] != owed:
            yield Wrong("audited too often" if self.audits[root] > owed else "not audited", root)

    def _sent(self, row: Row, last: Outcome | None) -> Iterator[Wrong]:
        if row.kind in ("pass", "plain"):
            self.expected |= Counter(
                (row.id, each) for each in row.to if not self.errors[f"{row.root}>{each}"]
            )
        elif row.kind == "handle" and last and last.outcome == "done":
            if last.kind != "handle":
                yield Wrong("no outcome", f"{row.root} was passed on")
                return
            for at, table in enumerate(self.configuration.answers[int(last.answer.split()[1])] or ()):
                id_ = f"{last.base}/{at}"
                if table != "queue":
                    self.expected[id_, table] = int(not self.errors[id_])
                elif not any(each.id == id_ for each in self.outcomes):
                    yield Wrong("lost", f"what {row.root} sent to its own queue")
                if any(each.id == id_ and each.answer != last.answer for each in self.arrived):
                    yield Wrong("the answer of another try", f"{id_} at {table}")


def _last(its: list[Outcome]) -> Outcome | None:
    """The last outcome; where home forgot that it moved a row, two of a message may be final: done counts."""
    done = [each for each in its if each.outcome == "done"]
    return (done or its)[-1] if its else None
