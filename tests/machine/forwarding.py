"""Plays a store-and-forward job: a query whose messages go to two other databases,
and the look of its driver at them.

A message goes to the queue that its header names: ``billing`` is in the database of ``sink.url``,
``shipping`` in that of ``endpoint.shipping.url``. One without that header goes to a queue of the stream's own
database.
"""

import json
import pickle
from collections import Counter
from functools import cache, partial
from typing import Any

import pyarrow as pa

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.message import STORED_FOR
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForward, StoreAndForwardOptions
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.spark.send_task import SendTask, counted
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from sqlqueue_spark.tables.stages.stage import StageRun
from tests.machine.job import GIVEN, LEGACY, URLS
from tests.machine.query import Crash, Query, Setup, watching
from tests.machine.remote import ASIDE, Remote
from tests.machine.world import DELAYED, DESTINATIONS, ENDPOINT, ERROR, SENDER, SOURCES, World
from tests.support.sending import composed
from tests.support.stored import FrameRow

#: An address that names no queue.
NOWHERE = "nowhere"
#: So often Spark runs a task that dies.
_MOST_TASKS = 4
_DAY = 24 * 60 * 60.0
#: The try after the second one of a sender.
_SECOND = 2
_TYPES = {
    "Id": pa.string(),
    "CorrelationId": pa.string(),
    "ReplyToAddress": pa.string(),
    "Expires": pa.timestamp("us", tz="UTC"),
    "Headers": pa.string(),
    "Body": pa.binary(),
    "RowVersion": pa.int64(),
}
_COLUMNS = FrameColumns(names={name: name for name in (*_TYPES, "Queue", "Failure")})


class TaskDied(BaseException):
    """A task is gone, and Spark runs it again; the driver hears nothing of what it did."""


class ForwardingQuery(Query):
    """The job, its driver and its tasks."""

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self.remotes = world.remotes
        #: Whether the driver does not know that rows wait: it looked while locks were held by sessions whose
        #: process is gone, and stepped over their rows; or a fail-over brought them back.
        self.stepped_over = False
        #: What no note can tell when a job gets other options, as a sender has sent it too; and what may
        #: arrive twice since it got them.
        self._sent_too, self.sent_otherwise = set[int](), set[int]()
        #: Where those go that a sender stores himself.
        self._goes: dict[int, str] = {}
        self._databases: RemoteDatabases | None = None
        self._destinations_here: Destinations | None = None
        self._cleaner: OutboxCleaner | None = None
        world.says = self._says

    # -- where messages go -------------------------------------------------------------------------

    def goes_to(self, n: int) -> str | None:
        """The address that a message goes to; None where it stays."""
        if n in self._goes:
            return self._goes[n]
        return self._route(n)[0]

    def _says(self, n: int) -> str:
        to = self.goes_to(n)
        behind = f"@[{ASIDE}]" if self.setup.options.judging == LEGACY else ""
        return "" if to is None else f',"{STORED_FOR}":"{to}{behind}"'

    def arrived(self) -> Counter[int]:
        """How often each message has arrived in the other databases."""
        return sum((each.everywhere() for each in self.remotes.values()), Counter())

    def in_destinations(self) -> Counter[tuple[int, str]]:
        found = {to: each.everywhere() for to, each in self.remotes.items()}
        here = {f"{to} here": self.world.in_table(to) for to in DESTINATIONS}
        others = {name: self.world.in_table(name) for name in (ERROR, DELAYED)}
        return Counter(
            {(n, to): count for to, its in {**found, **here, **others}.items() for n, count in its.items()}
        )

    # -- what befalls it ---------------------------------------------------------------------------

    def allow_for_fail_over(self, before: Counter[tuple[int, str]]) -> None:  # noqa: ARG002 -- none is lost
        """Allow for what came back in the stream's own database, though it had arrived or others have it.

        Nothing is lost. Spark's log says that a batch is done, and the outbox knows no outcome of its rows:
        they come again.
        """
        self.stepped_over = True
        back = {n for name in (SOURCES[0], DELAYED, ERROR) for n in self.world.in_table(name)}
        self.in_doubt |= back & set(self.arrived())
        self.world.ledger.may_double |= {n for n in back if self.world.ledger.taken[n]}
        # The outbox knows those that were kept here; a neighbour who takes the row does not.
        kept = {n for n, _ in self.in_destinations()}
        self.world.ledger.came_back |= set(self.world.in_table(SOURCES[0])) & kept

    def fail_over(self, remote: Remote) -> bool:
        """Let the replica of another database take over.

        What it forgets is lost, unless it still is somewhere here.
        """
        before = remote.everywhere()
        if not remote.fail_over():
            return False
        ids = self.world.ledger.ids
        gone = {ids[n] for n in before - remote.everywhere()}
        # A message that had an id of those was left out.
        self.world.ledger.may_be_lost |= {n for n, id_ in ids.items() if id_ in gone}
        return True

    def allow_for_change(self) -> None:
        """Allow also for what had arrived before it failed: an operator sends it by the new options."""
        super().allow_for_change()
        here = set(self.world.in_table(SOURCES[0])) | set(self.world.in_table(DELAYED))
        self.sent_otherwise |= (self._sent_too & here) | (self.in_doubt & set(self.world.in_table(ERROR)))

    def _befalls(self, what: str) -> None:
        name, _, then = what.partition(" ")
        remote = self.remotes.get(name)
        if remote is None and what not in ("the driver looks", "the task dies"):
            super()._befalls(what)
            return
        self.world.faults[f"another database {then}" if remote else what] += 1
        match remote, then:
            case None, "driver looks":
                self.look()
            case None, _:
                raise TaskDied
            case Remote(), "goes down":
                remote.shut()
            case Remote(), "goes down and notices nothing":
                remote.shut(noticed=False)
            case Remote(), "comes back":
                remote.open()
            case Remote(), "goes down before it hears a commit":
                remote.shut_at_commit(self.process, heard=False)
            case Remote(), "goes down before it answers a commit":
                remote.shut_at_commit(self.process, heard=True)
            case Remote(), "replica is as far":
                remote.take_snapshot()
            case _:
                raise NotImplementedError(what)

    # -- the driver --------------------------------------------------------------------------------

    def look(self, at: str | None = None, what: str = "") -> str:
        """Let the driver look at the other databases, as it does now and then;
        returns in words what came of it.
        """
        self.world.network.process = self.process
        try:
            if at is None:
                back = self._look()
            else:
                with watching(at, lambda: self._befalls(what)):
                    back = self._look()
        except Crash:
            return "the process is dead"
        except SqlQueueError as error:
            return f"not now: {type(error).__name__}: {error}"
        finally:
            self.world.network.forget_faults()
        return f"{back} are put back" if back else "nothing to put back"

    def _begin_job(self) -> None:
        home, other = self._sinks()
        self._databases = RemoteDatabases(Places(home, other), SOURCES[0])
        self._destinations_here = Destinations(home, other)
        at = self._destinations_here.places.at
        self._cleaner = OutboxCleaner(home, clock=lambda: self.world.days * _DAY, at=at)
        self._note_begin(Places(home, other), self._databases)
        self._look()
        self.job.query_begins()

    def _look(self) -> int:
        """Let the driver look, and note what it steps over; returns how many messages are put back."""
        assert self._databases is not None
        self.stepped_over |= bool(self.world.network.unnoticed)
        return self._databases.look()

    # -- the sink ----------------------------------------------------------------------------------

    def _write(self, batch: int, messages: list[dict[str, Any]]) -> None:
        self.attempted[self._past, batch] = set()
        network = self.world.network
        before, stayed, unanswered = set(self.arrived()), self._stays(), network.unanswered
        try:
            self._forward(messages)
        finally:
            more = self._stays() - stayed
            unsure = set(self.arrived()) if network.unanswered > unanswered else before
            self.in_doubt |= set(more) & unsure

    def _stays(self) -> Counter[int]:
        return self.world.in_table(DELAYED) + self.world.in_table(ERROR)

    def _forward(self, messages: list[dict[str, Any]]) -> None:
        """Send a batch as the job's sink does, in two tasks."""
        assert self._databases is not None
        assert self._destinations_here is not None
        home, _ = self._sinks()
        here, down = self._destinations_here, self._databases.down()
        prepare(here, _COLUMNS, (), last=StageRun() if self._wrote else None, down=down)
        self._wrote = True
        task = SendTask(_COLUMNS, here, down, Places(home, home))
        done = Sent()
        half = max(1, -(-len(messages) // 2))
        for part in (messages[:half], messages[half:]):
            if part:
                done += self._run(task, part)
        assert done.received == len(messages), "a job would refuse this batch"
        self._databases.note(done)
        assert self._cleaner is not None
        self._databases.clean(self._cleaner, here.having_outboxes())

    _wrote = False

    @staticmethod
    def _run(task: SendTask, rows: list[dict[str, Any]]) -> Sent:
        columns = {name: pa.array([row[name] for row in rows], type_) for name, type_ in _TYPES.items()}
        frame = pa.table({**columns, "Queue": [SOURCES[0]] * len(rows), "Failure": pa.nulls(len(rows))})
        for _ in range(_MOST_TASKS):
            own: SendTask = pickle.loads(pickle.dumps(task))  # noqa: S301 -- as Spark sends it
            try:
                return counted(
                    [FrameRow(row) for each in own.send(iter(frame.to_batches())) for row in each.to_pylist()]
                )
            except TaskDied:
                continue
        raise AssertionError("a scenario lets a task die once")

    def _sinks(self) -> tuple[SinkOptions, SinkOptions]:
        """The options of the sink: those for the stream's own database, and those for the others."""
        urls = [self.remotes[to].url for to in DESTINATIONS]
        first, second = urls[::-1] if self.options.judging == URLS else urls
        waits = "1ms" if self.setup.gives_up else "6d"
        asked = self.options
        return _sinks(self.world.url, (first, second), asked.queue, asked.outbox, waits, asked.judging)

    # -- others ------------------------------------------------------------------------------------

    def store(self, count: int, at: str | None, stores: tuple[bool, bool]) -> tuple[list[int], bool]:
        """Let a sender of ours store messages for the other databases, or send them; he may die at a step.

        He tries twice. One that is to send, and cannot, stores them in the end.

        :returns: the messages, and whether he died.
        """
        world = self.world
        numbers = world.from_elsewhere(count)
        self._goes.update({n: DESTINATIONS[n % len(DESTINATIONS)] for n in numbers})
        urls = tuple(self.remotes[to].url for to in DESTINATIONS)
        endpoint = SENDER if all(stores) else ENDPOINT
        frame = pa.RecordBatch.from_pydict(
            {
                "Headers": [json.dumps({"NServiceBus.MessageId": world.ledger.ids[n]}) for n in numbers],
                "Body": pa.array([str(n).encode() for n in numbers], pa.binary()),
                "Destination": [self.goes_to(n) for n in numbers],
            }
        )
        before, died, done = world.network.process, False, False
        tries = [(at, stores[0]), (None, stores[1]), *([] if stores[1] else [(None, True)])]
        for attempt, (step, storing) in enumerate(tries):
            if attempt == _SECOND and done:
                break
            given = _sender(world.url, urls, endpoint, storing)
            world.network.process = sender = f"sender {numbers[0]}, {attempt} of scenario {world.scenarios}"
            destinations = Destinations(given)
            try:
                with (
                    watching(step, partial(self._die, sender)),
                    Sender(destinations) as sending,
                ):
                    sending.send(composed(given, frame, destinations=destinations))
                done = True
            except Crash:
                died = True
            except SqlQueueError:
                if storing:
                    raise
            finally:
                world.network.process = before
        world.ledger.sent.update(numbers)
        if stores[0] != stores[1]:  # what is stored may wait, or be taken, though it has been sent
            self.in_doubt.update(numbers)
            self._sent_too.update(numbers)
        return numbers, died

    def _die(self, process: str) -> None:
        self.world.network.cut(process)
        raise Crash


@cache
def _sinks(
    url: str, others: tuple[str, str], local_queue: str, outbox: str, give_up_after: str, judging: str
) -> tuple[SinkOptions, SinkOptions]:
    source = {"url": url, "queue": SOURCES[0], "lockTimeout": "20ms"}
    sink = {
        "url": others[0],
        f"endpoint.{DESTINATIONS[1]}.url": others[1],
        "endpoint": ENDPOINT,
        "errorQueue": ERROR,
        "outbox": outbox,
        "giveUpAfter": give_up_after,
        "lockTimeout": "20ms",
        **GIVEN.get(judging, {}),
    }
    job = StoreAndForwardOptions.parse({"checkpoint": "none", "localQueue": local_queue})
    found = StoreAndForward(source, sink, job)
    return found.places.home, found.places.away


@cache
def _sender(url: str, others: tuple[str, str], endpoint: str, stores: bool) -> SinkOptions:
    elsewhere = {f"endpoint.{to}.url": other for to, other in zip(DESTINATIONS, others, strict=True)}
    return SinkOptions.parse(
        {
            "url": url,
            "endpoint": endpoint,
            **({"storeAndForward": SOURCES[0]} if stores else {}),
            "lockTimeout": "20ms",
            **elsewhere,
        }
    )
