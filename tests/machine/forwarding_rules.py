"""The steps that only befall a store-and-forward job and the databases that it sends to."""

from dataclasses import dataclass

from tests.machine.forwarding import ForwardingQuery
from tests.machine.job import OF_QUEUE, SCHEMA, URLS
from tests.machine.query import Crash, Query, watching
from tests.machine.remote import READ_ONLY, Remote
from tests.machine.rules import Step
from tests.machine.world import DAYS, DESTINATIONS, World, listed


class ForwardingStep(Step):
    def happen(self, world: World, query: Query) -> str | None:
        return self.befall(world, query) if isinstance(query, ForwardingQuery) else None

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        """As :meth:`Step.happen`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Look(ForwardingStep):
    """The driver looks at the other databases, and something befalls it at a named step."""

    at: str | None = None
    what: str = "crash"

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        if not query.runs:
            return None
        said = f" ({self.what} at '{self.at}')" if self.at else ""
        return f"the driver looks{said}: {query.look(self.at, self.what)}"


@dataclass(frozen=True)
class GoDown(ForwardingStep):
    number: int = 0
    noticed: bool = True

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if remote.down:
            return None
        remote.shut(noticed=self.noticed)
        world.faults["another database goes down"] += 1
        return f"the database of {remote.queue} goes down{'' if self.noticed else '; it does not notice'}"


@dataclass(frozen=True)
class ComeBack(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if not remote.down:
            return None
        remote.open()
        return f"the database of {remote.queue} comes back"


@dataclass(frozen=True)
class GiveUp(ForwardingStep):
    """The time is over for which messages wait, and a mover moves them to the error queue;
    it may die at a step.
    """

    dies: str | None = None

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        died = False
        try:
            with watching(self.dies, _die):
                moved = world.move_back()
        except Crash:
            died, moved = True, []
            world.faults["mover dies"] += 1
        if died:
            return f"a mover dies when {self.dies}"
        if not moved:
            return None
        world.faults["messages given up"] += 1
        return f"{listed(moved)} are given up"


@dataclass(frozen=True)
class DaysPass(ForwardingStep):
    """Days pass while the job is at work. No outbox has to keep for longer what was sent.

    Twice in a scenario they are more than an outbox remembers, and less than that and the longest wait.
    """

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        if query.setup.gives_up or world.network.unnoticed or world.days > DAYS:
            return None
        world.let_days_pass()
        world.faults["days pass"] += 1
        return f"{DAYS} days pass"


@dataclass(frozen=True)
class MovedByOthers(ForwardingStep):
    """A mover of others moves back what waits, and gives each row another Id."""

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        moved = world.moved_by_others()
        if not moved:
            return None
        world.faults["moved by others"] += 1
        return f"a mover of others moves {listed(moved)} back as other rows"


@dataclass(frozen=True)
class Refuse(ForwardingStep):
    """A database answers, and takes nothing; or its queue takes no message."""

    number: int = 0
    how: str = READ_ONLY

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if not remote.refuse(self.how):
            return None
        world.faults[f"another database {self.how}"] += 1
        return f"the database of {remote.queue} {self.how}"


@dataclass(frozen=True)
class Accept(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        return f"the database of {remote.queue} takes what it is given again" if remote.accept() else None


@dataclass(frozen=True)
class DropQueue(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if not remote.exists:
            return None
        remote.drop()
        world.faults["destination dropped"] += 1
        return f"the queue {remote.queue} is dropped in the other database"


@dataclass(frozen=True)
class CreateQueue(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if remote.exists:
            return None
        remote.create()
        return f"the queue {remote.queue} is created again"


@dataclass(frozen=True)
class ReplicateThere(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        remote.take_snapshot()
        return f"the replica of the database of {remote.queue} is as far"


@dataclass(frozen=True)
class FailOverThere(ForwardingStep):
    number: int = 0

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        remote = _remote(query, self.number)
        if not query.fail_over(remote):
            return None
        world.faults["fail-over of another database"] += 1
        return f"the replica of the database of {remote.queue} takes over: what was committed since is gone"


@dataclass(frozen=True)
class StoreByUs(ForwardingStep):
    """A sender with the option storeAndForward stores messages, in two tries; in the first one he may die.

    Without the option he sends them himself. Who changes it between the tries has the job's own outbox.
    """

    count: int = 1
    dies: str | None = None
    #: Whether he stores them in each try.
    stores: tuple[bool, bool] = (True, True)

    def befall(self, world: World, query: ForwardingQuery) -> str | None:
        if not all(self.stores) and query.options.judging in (SCHEMA, OF_QUEUE, URLS):
            return None  # what he sends himself goes to another place than what the job sends
        numbers, died = query.store(self.count, self.dies, self.stores)
        if died:
            world.faults["sender dies"] += 1
        first, then = ("stored" if each else "sent" for each in self.stores)
        dying = f", dying when {self.dies}" if died else ""
        return f"{listed(numbers)} are {first} and, in a second try, {then}{dying}"


def _die() -> None:
    raise Crash


def _remote(query: ForwardingQuery, number: int) -> Remote:
    return query.remotes[DESTINATIONS[number % len(DESTINATIONS)]]
