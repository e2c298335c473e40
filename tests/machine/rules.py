"""The steps that may happen in a story; each tells one line.

A step that makes no sense where it stands does nothing.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from tests.machine.query import Crash as Dead
from tests.machine.query import Options, Query, Way, watching
from tests.machine.world import APPEARS, DESTINATIONS, ERROR, SOURCES, WAYS, World, listed


class Step(ABC):
    @abstractmethod
    def happen(self, world: World, query: Query) -> str | None:
        """Do the step and return its line. None says that it makes no sense now and that nothing was done."""


@dataclass(frozen=True)
class Nothing(Step):
    def happen(self, world: World, query: Query) -> str | None:
        return None


@dataclass(frozen=True)
class Send(Step):
    count: int = 1
    source: int = 0
    kind: str = "plain"

    def happen(self, world: World, query: Query) -> str | None:
        if self.kind == "poison" and not query.setup.errors:
            return None  # the stream ends there
        if self.kind == "put back by ServiceControl" and not (query.setup.handles or query.setup.forwards):
            return None
        if self.kind == "in transit to its own queue" and not query.setup.handles:
            return None
        if self.kind == "in transit to another database" and not query.setup.elsewhere:
            return None
        lasts = {"expired": "-1 second", "perishable": "1 hour"}.get(self.kind)
        source = _source(self.source, query)
        numbers = world.send(
            source,
            self.count,
            lasts=lasts,
            same_id=self.kind == "of one id",
            on_its_way_to=WAYS.get(self.kind),
            poison=self.kind == "poison",
            retried=self.kind == "put back by ServiceControl",
        )
        kind = "" if self.kind == "plain" else f" ({self.kind})"
        return f"{listed(numbers)} are sent to {source}{kind}"


@dataclass(frozen=True)
class SendLate(Step):
    count: int = 1
    source: int = 0

    def happen(self, world: World, query: Query) -> str | None:
        if len(world.late) > 1:
            return None
        source = _source(self.source, query)
        return f"{listed(world.begin_late(source, self.count))} are sent to {source} and not committed yet"


@dataclass(frozen=True)
class EndLate(Step):
    commit: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not world.late:
            return None
        numbers = world.end_late(commit=self.commit)
        return f"their sender {'commits' if self.commit else 'rolls back'} {listed(numbers)}"


@dataclass(frozen=True)
class TimePasses(Step):
    def happen(self, world: World, query: Query) -> str | None:
        aged = world.age()
        return f"the time of {listed(aged)} runs out" if aged else None


@dataclass(frozen=True)
class Take(Step):
    """A neighbour takes rows; his transaction stays open, unless he commits at once."""

    count: int = 1
    source: int = 0
    then: str = "commits"

    def happen(self, world: World, query: Query) -> str | None:
        if len(world.takers) > 1 or query.setup.elsewhere:  # a neighbour who takes what is stored keeps it
            return None
        source = _source(self.source, query)
        numbers = world.take(source, self.count)
        if not numbers or self.then == "commits":
            world.takers.insert(0, world.takers.pop())
            world.end_take(commit=bool(numbers))
        if not numbers:
            return None
        return (
            f"a neighbour takes {listed(numbers)} from {source} and "
            f"{self.then if self.then == 'commits' else 'holds them'}"
        )


@dataclass(frozen=True)
class EndTake(Step):
    commit: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not world.takers:
            return None
        numbers = world.end_take(commit=self.commit)
        return f"the neighbour {'commits' if self.commit else 'gives back'} {listed(numbers)}"


@dataclass(frozen=True)
class Trigger(Step):
    way: Way = field(default_factory=Way)

    def happen(self, world: World, query: Query) -> str | None:
        return f"Spark triggers{self.way}: {query.trigger(self.way)}"


@dataclass(frozen=True)
class Restart(Step):
    """The query is stopped in good order, if it runs, and goes on with these options changed."""

    changes: tuple[tuple[str, object], ...] = ()

    def happen(self, world: World, query: Query) -> str | None:
        changed: Options = replace(query.options, **dict(self.changes))  # type: ignore[arg-type]
        if (not query.runs and changed == query.options) or query.would_change_mode_and_stream(changed):
            return None
        said = ", ".join(f"{name} {value}" for name, value in self.changes) or "the same options"
        query.restart(changed)
        world.faults["restart"] += 1
        return f"the query is stopped, to go on with {said}"


@dataclass(frozen=True)
class Judge(Step):
    """A job is stopped, if it runs, to go on with other options by which addresses are judged.

    Its note may refuse that. Then it goes on as it was.
    """

    judging: str = ""

    def happen(self, world: World, query: Query) -> str | None:
        if not query.may_change(self.judging):
            return None
        said = query.change(self.judging)
        world.faults[f"other options: {said.partition(':')[0]}"] += 1
        return f"the job is stopped, to go on with {self.judging or 'plain options'}: {said}"


@dataclass(frozen=True)
class RunToEnd(Step):
    """A job is stopped, if it runs, and runs with ``availableNow`` until it ends."""

    way: Way = field(default_factory=Way)

    def happen(self, world: World, query: Query) -> str | None:
        if not query.setup.is_job:
            return None
        return f"the job runs to its end{self.way}: {query.run_to_end(self.way)}"


@dataclass(frozen=True)
class Crash(Step):
    noticed: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not query.runs:
            return None
        query.crash(noticed=self.noticed)
        world.faults["crash"] += 1
        return f"the process dies{'' if self.noticed else '; the server does not notice'}"


@dataclass(frozen=True)
class Cut(Step):
    noticed: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not query.runs or not world.network.of(query.process):
            return None
        query.cut(noticed=self.noticed)
        world.faults["cut"] += 1
        return f"its connections break{'' if self.noticed else '; the server does not notice'}"


@dataclass(frozen=True)
class Notice(Step):
    def happen(self, world: World, query: Query) -> str | None:
        count = world.network.notice()
        return "the server notices what is gone" if count else None


@dataclass(frozen=True)
class Idle(Step):
    """The next trigger is long in coming."""

    def happen(self, world: World, query: Query) -> str | None:
        if not query.runs:
            return None
        return "no trigger comes for a long time" if query.idle() else None


@dataclass(frozen=True)
class Replicate(Step):
    def happen(self, world: World, query: Query) -> str | None:
        world.take_snapshot()
        return "the replica is as far"


@dataclass(frozen=True)
class FailOver(Step):
    numbers_again: bool = False

    def happen(self, world: World, query: Query) -> str | None:
        if world.snapshot is None:
            return None
        before = query.before_fail_over()
        query.cut()
        world.fail_over(numbers_again=self.numbers_again)
        query.allow_for_fail_over(before)
        world.faults["fail-over"] += 1
        again = " and numbers come again" if self.numbers_again else ""
        return f"the replica takes over: what was committed since is gone{again}"


@dataclass(frozen=True)
class SaveCheckpoint(Step):
    def happen(self, world: World, query: Query) -> str | None:
        query.saved = query.checkpoint.copy()
        return f"the checkpoint is copied, with {query.saved.done} batches done"


@dataclass(frozen=True)
class RestoreCheckpoint(Step):
    def happen(self, world: World, query: Query) -> str | None:
        if query.saved is None or query.saved.query != query.checkpoint.query:
            return None
        if query.runs:
            query.stop()
        query.go_back_to(query.saved)
        world.faults["checkpoint back"] += 1
        return f"the query is stopped and its checkpoint restored, with {query.checkpoint.done} batches done"


@dataclass(frozen=True)
class Dump(Step):
    def happen(self, world: World, query: Query) -> str | None:
        if world.dump is not None:
            return None
        world.begin_dump()
        world.faults["dump"] += 1
        return "a dump begins to read all tables"


@dataclass(frozen=True)
class EndDump(Step):
    def happen(self, world: World, query: Query) -> str | None:
        if world.dump is None:
            return None
        world.end_dump()
        return "the dump ends"


@dataclass(frozen=True)
class Alter(Step):
    source: int = 0

    def happen(self, world: World, query: Query) -> str | None:
        source = _source(self.source, query)
        world.faults["DDL"] += 1
        return (
            f"an operator changes the table {source}"
            if world.alter(source)
            else f"an operator wants to change the table {source} and gives up"
        )


@dataclass(frozen=True)
class Truncate(Step):
    source: int = 0

    def happen(self, world: World, query: Query) -> str | None:
        source = _source(self.source, query)
        lost = world.truncate(source)
        if lost is None:
            return None
        world.faults["truncate"] += 1
        return f"an operator truncates {source}, with {listed(lost)}"


@dataclass(frozen=True)
class SaveRows(Step):
    source: int = 0

    def happen(self, world: World, query: Query) -> str | None:
        source = _source(self.source, query)
        if source not in SOURCES:
            return None
        return f"an operator copies {listed(world.save_rows(source))} of {source} away"


@dataclass(frozen=True)
class PutBackRows(Step):
    def happen(self, world: World, query: Query) -> str | None:
        if world.backup is None:
            return None
        back = world.put_back_rows()
        if not back:
            return None
        world.faults["restore"] += 1
        return f"the operator puts {listed(back)} back under their numbers"


@dataclass(frozen=True)
class Appear(Step):
    """A queue is created whose name the pattern matches: a new one, or one that has an old name.

    Its table of delayed messages may be missing.
    """

    name: str = APPEARS
    delayed: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not (query.setup.pattern and world.appear(self.name, delayed=self.delayed)):
            return None
        world.faults["queue appears"] += 1
        return (
            f"the queue {self.name} appears{'' if self.delayed else ', without a table of delayed messages'}"
        )


@dataclass(frozen=True)
class Drop(Step):
    source: int = 0

    def happen(self, world: World, query: Query) -> str | None:
        if not query.setup.pattern or len(query.sources) == 1:
            return None
        source = _source(self.source, query)
        lost = world.drop(source)
        if lost is None:
            return None
        world.faults["queue dropped"] += 1
        return f"an operator drops {source}, with {listed(lost)}"


@dataclass(frozen=True)
class Rename(Step):
    """A queue gets another name that the pattern matches; another queue may get its old name."""

    source: int = 0
    anew: bool = False

    def happen(self, world: World, query: Query) -> str | None:
        if not query.setup.pattern:
            return None
        source = _source(self.source, query)
        name = world.rename(source)
        if name is None:
            return None
        query.allow_for_rename(name)
        world.faults["queue renamed"] += 1
        anew = f", and creates {source} anew" if self.anew and world.appear(source, delayed=False) else ""
        return f"an operator renames {source} to {name}{anew}"


@dataclass(frozen=True)
class MoveBack(Step):
    """The time of all that waits has come, and a mover moves it back; it may die at a step."""

    dies: str | None = None

    def happen(self, world: World, query: Query) -> str | None:
        died = False
        try:
            with watching(self.dies, _die):
                moved = world.move_back()
        except Dead:
            died = True
            world.faults["mover dies"] += 1
            moved = []
        if not moved and not died:
            return None
        return f"a mover dies when {self.dies}" if died else f"a mover moves {listed(moved)} back"


@dataclass(frozen=True)
class Subscribe(Step):
    """The endpoint of the first destination subscribes to the events, or ends that."""

    begin: bool = True

    def happen(self, world: World, query: Query) -> str | None:
        if not query.setup.publishes or query.setup.handles:
            return None
        world.subscribe(DESTINATIONS[0], begin=self.begin)
        return f"{DESTINATIONS[0]} {'subscribes to' if self.begin else 'wants no more'} events"


@dataclass(frozen=True)
class RetryErrors(Step):
    """An operator puts back what is in the error queue; the command may die at a step."""

    dies: str | None = None

    def happen(self, world: World, query: Query) -> str | None:
        waited = set(world.in_table(ERROR))
        if not waited or not (query.setup.handles or query.setup.forwards):
            return None
        world.faults["errors retried"] += 1
        said = retry_errors(world, query, self.dies)
        if query.setup.handles:
            world.ledger.moved_back |= waited - set(world.in_table(ERROR))
        return said


def retry_errors(world: World, query: Query, dies: str | None = None) -> str:
    """Let an operator put back all that is in the error queue; returns in words what came of it."""
    network = world.network
    before, network.process = network.process, f"operator of scenario {world.scenarios}"
    given = ConnectionOptions.parse({"url": world.url, "lockTimeout": "20ms"})
    waited = world.in_table(ERROR)
    try:
        with watching(dies, _die):
            for queue in world.errors:
                failed_retry.retry(given, queue, Selection())
    except Dead:
        return f"an operator puts back what has failed and dies when {dies}"
    finally:
        network.cut(network.process)
        network.process = before
        world.note_numbers()
        query.put_back |= set(waited) - set(world.in_table(ERROR))
    return f"an operator puts back {listed((waited - world.in_table(ERROR)).elements())}, which had failed"


def _die() -> None:
    raise Dead


def _source(number: int, query: Query) -> str:
    return query.sources[number % len(query.sources)]
