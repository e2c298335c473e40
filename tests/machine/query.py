"""Plays Spark's side: a query with its checkpoint, its sink and its process,
which calls the core as Spark may, and may die.

Spark logs an offset before it plans a batch, reads every slice in a worker, writes the batch, logs it as
done, and only then asks for more. It may ask twice, plan twice, run a task twice, and call ``commit`` late,
twice or never. A new process goes by the logs: if a batch was logged but is not done, it plans that batch
again and calls nothing before.
"""

import contextlib
import json
import pickle
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar
from unittest import mock

import pyarrow as pa
import stamina

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, NO_TRANSACTION, RECEIVE_ONLY, SinkOptions, SourceOptions
from sqlqueue_spark.receive import (
    Receiver,
    ReceiverBeforeSpark42,
    SliceReader,
    Task,
    receiver,
)
from sqlqueue_spark.receive.claiming import claim_ahead, set_aside
from sqlqueue_spark.receive.offset import INITIAL, Offset, to_json
from sqlqueue_spark.receive.reading import slice_reader
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.tables import outbox_cleanup, queue_table
from sqlqueue_spark.tables.stages.stage import StageRun
from sqlqueue_spark.tables.stages.stage_mark import Batch
from tests.machine import handler
from tests.machine.handler import Answers
from tests.machine.job import GIVEN, OTHER_ERRORS, URLS, Job, Told
from tests.machine.world import (
    DELAYED,
    DESTINATIONS,
    ENDPOINT,
    ERROR,
    ERRORS,
    EVENT_TYPE,
    PATTERN,
    SOURCES,
    World,
    listed,
)
from tests.support.sending import PLAIN, columns_of, composed

OFFSET_NOT_LOGGED = "offset not logged"
BATCH_WRITTEN = "batch written but not logged"
BATCH_LOGGED = "batch logged"
#: In the place of a destination, where a message is handled or fails.
OUTCOME = "an outcome"
#: In the place of a destination, where a message is published: to those who have subscribed.
EVENT = "an event"

#: The addresses to which a message goes; for ``None`` the option ``queue`` says where.
Route = tuple[str | None, ...]


class Crash(BaseException):
    """The process is gone: this error is not handled, and nothing is closed in good order."""


class Broken(AssertionError):
    """A promise is broken; the text is the story."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that a restart may change; source and sink have the same."""

    mode: str = RECEIVE_ONLY
    stream: str = "A"
    queue: str = "billing"
    outbox: str = "optimistic"
    limit: int = 2
    ahead: bool = True
    headroom: str = "auto"
    #: An option of a job by which it judges addresses: a key of ``job.GIVEN``, ``job.URLS``, or none.
    judging: str = ""
    #: What a source over several queues reads.
    reads: tuple[str, ...] = SOURCES

    def __str__(self) -> str:
        reads = "" if self.reads == SOURCES else f", of {' and '.join(self.reads)}"
        reads += f", other {self.judging}" if self.judging else ""
        return (
            f"{self.mode}, stream {self.stream}, queue {self.queue}, outbox {self.outbox}, limit "
            f"{self.limit}, claimAhead {str(self.ahead).lower()}, headroom {self.headroom}{reads}"
        )


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a scenario's query is; it never changes."""

    options: Options = field(default_factory=Options)
    #: Whether the sink stores rows and knows batches by their number, as Delta does.
    #: Else it sends the messages on.
    stores: bool = True
    #: Whether Spark is one before 4.2.
    follows: bool = False
    sources: int = 1
    #: Whether one source reads the queues of all.
    joined: bool = False
    #: Whether that source reads all queues that a pattern matches. They may come and go.
    pattern: bool = False
    #: Whether the second source is atomic too at first; the core refuses that.
    both_atomic: bool = False
    sinks: int = 1
    #: Whether the sink has an error queue.
    errors: bool = False
    #: Whether the sink is given outcomes: each message goes to both destinations or fails,
    #: and not always in the same way.
    handles: bool = False
    #: Whether the second destination is in another database. What goes there is stored in the queue first.
    elsewhere: bool = False
    #: Whether it is a store-and-forward job. Then a message goes to the first queue of its route
    #: in another database.
    forwards: bool = False
    #: Whether the time is over at the end for which messages wait.
    gives_up: bool = False
    routes: tuple[Route, ...] = ((None,),)

    @property
    def readers(self) -> int:
        """How many sources Spark sees."""
        return 1 if self.joined else self.sources

    @property
    def is_job(self) -> bool:
        """Whether it is a job, which notes its options, and not a program of one's own."""
        return self.forwards or self.elsewhere

    @property
    def publishes(self) -> bool:
        """Whether some messages are events.

        A received one publishes one in the place of its second message.
        """
        return any(EVENT in route for route in self.routes)

    @property
    def kind(self) -> str:
        """The mode in which the query begins, and what it does with its messages."""
        if self.stores:
            return f"{self.options.mode}, stored"
        outbox = "" if self.options.mode == ATOMIC else f", outbox {self.options.outbox}"
        does = "stored and forwarded" if self.forwards else "handled" if self.handles else "sent on"
        return f"{self.options.mode}, {does}{outbox}"

    @property
    def _read(self) -> str:
        return " found by a pattern" if self.pattern else " joined in one" if self.joined else ""

    def __str__(self) -> str:
        sink = "a sink that knows batches by number"
        if self.handles:
            sink = f"a sink that is given outcomes{', to two databases' if self.elsewhere else ''}"
        elif self.forwards:
            sink = (
                "a store-and-forward job, by turns to "
                f"{self.routes}{', which gives up' if self.gives_up else ''}"
            )
        elif not self.stores:
            errors = ", with an error queue" if self.errors else ""
            sink = f"{self.sinks} sink(s) that send, by turns, to {self.routes}{errors}"
        return (
            f"{self.options}; {self.sources} source(s){self._read}, "
            f"{sink}{', Spark before 4.2' if self.follows else ''}"
        )


@dataclass(frozen=True, kw_only=True)
class Way:
    """How Spark runs one trigger, and what befalls the process at a named step."""

    asks: int = 1
    plans: int = 1
    reads: int = 1
    commit: str = "late"
    #: How many rows of another source, or of the query's state, the batch has. With 0 or more there is a
    #: batch even if our queues have nothing new; -1 says that there is none then.
    others: int = -1
    at: str | None = None
    what: str = "crash"

    def __str__(self) -> str:
        said = [f"asks {self.asks} times"] if self.asks > 1 else []
        said += [f"plans {self.plans} times"] if self.plans > 1 else []
        said += [f"reads {self.reads} times"] if self.reads > 1 else []
        said += [f"calls commit {self.commit}"] if self.commit != "late" else []
        said += [f"a batch of {self.others} rows from elsewhere, too"] if self.others >= 0 else []
        said += [f"{self.what} at '{self.at}'"] if self.at else []
        return f" ({'; '.join(said)})" if said else ""


@dataclass
class Checkpoint:
    """Spark's logs: the offsets of each batch (one text for each source), and how many batches are done."""

    query: int = 0
    offsets: list[list[str]] = field(default_factory=list)
    done: int = 0
    #: The options under which each batch began; :meth:`Query.follow_remedy` needs them.
    begun: list[Options] = field(default_factory=list)

    def copy(self) -> "Checkpoint":
        return Checkpoint(self.query, [list(each) for each in self.offsets], self.done, list(self.begun))


class _Reader:
    """One source in one process, called as this version of Spark calls it."""

    def __init__(self, world: World, options: SourceOptions, *, follows: bool, first: bool) -> None:
        self._core = Receiver(options, clock=world.clock, sleep=world.sleep)
        # A scenario has a time of its own and plays the same each time. The watch looks by the real clock.
        self._core._scanner._watch.close()
        self._most = options.most_rows
        self._follower = ReceiverBeforeSpark42(self._core, self._most) if follows else None
        if self._follower is not None and first:
            self._follower.initial()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        if self._follower is not None:
            return to_json(self._follower.latest())
        return to_json(self._core.latest(Offset.from_json(start), self._most))

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        planned = (self._follower or self._core).plan(Offset.from_json(start), Offset.from_json(end))
        return [pickle.loads(pickle.dumps(each)) for each in planned]  # noqa: S301 -- as Spark sends them

    def settle(self, end: dict[str, Any]) -> None:
        self._core.settle(Offset.from_json(end))

    def finish(self, start: dict[str, Any]) -> None:
        """Settle the last batch, as the source of a job that is asked to stop."""
        self._core.finish(Offset.from_json(start), rows=True)

    def stop_at_present_end(self) -> None:
        self._core.stop_at_present_end()

    @property
    def given_back(self) -> bool:
        """Whether rows of a logged batch were given back, as the source of a job tells it."""
        told = self._core._done_file
        return isinstance(told, Told) and told.given_back

    def close(self) -> None:
        self._core.close()


class Query:
    """A streaming query, its checkpoint, its sink, and its process."""

    def __init__(self, world: World, setup: Setup) -> None:
        self.world = world
        self.setup = setup
        self.options = setup.options
        self.checkpoint = Checkpoint()
        self.saved: Checkpoint | None = None
        #: What the sink that stores has: rows by query and batch, and the newest number of each query.
        self.stored: dict[tuple[int, int], list[int]] = {}
        self.newest: dict[int, int] = {}
        #: Of a sink that sends: where each message of a batch is to go, for each batch that the sink was
        #: given. The key is ``_past`` and the batch's number.
        self.attempted: dict[tuple[int, int], set[tuple[int, str]]] = {}
        #: Batches of which one attempt was sent without an outbox. No later attempt knows of it,
        #: whatever its options are.
        self.unremembered: set[tuple[int, int]] = set()
        #: As ``attempted``, for the batches that are done.
        self.due: dict[tuple[int, int], set[tuple[int, str]]] = {}
        #: The messages of each batch that come from elsewhere.
        self.others: dict[tuple[int, int], list[int]] = {}
        self.modes = {self.options.mode}
        self.outboxes = {self.options.outbox}
        #: The queues that the option has named, and messages that a fail-over took out of where they
        #: had been sent, and put back.
        self.named = {self.options.queue}
        self.sent_anew: set[int] = set()
        #: Messages that were read and whose batch is not settled yet.
        self.at_risk: set[int] = set()
        #: Beside an atomic source another source of the same stream can only receive.
        self.second_receives_only = not (setup.both_atomic or setup.joined)
        self._queries = 1
        #: How often the checkpoint has gone back or was replaced: a batch is known by this and its number.
        self._past = 0
        self._processes = 0
        self._readers: list[_Reader] = []
        self._ahead_for: dict[int, int] = {}
        #: The messages of the batch that was planned last.
        self._planned = set[int]()
        #: The destinations that each sink of the process has found.
        self._destinations: dict[int, Destinations] = {}
        #: How often the sink was given outcomes.
        self._tries = 0
        #: Of a store-and-forward job, messages that had arrived before they waited or failed: it could
        #: not know that, and the outbox there does.
        self.in_doubt = set[int]()
        #: What has reached another database when a fail-over of home brought its row back: now the answer may
        #: be another one.
        self.answered_before = set[int]()
        #: What an operator has put back that had failed.
        self.put_back = set[int]()
        #: What each sink has staged its last batch for.
        self._last_runs: dict[int, StageRun] = {}
        self.job = Job(lambda: (len(self.checkpoint.offsets), self.checkpoint.done))

    @property
    def process(self) -> str:
        return f"process {self._processes} of scenario {self.world.scenarios}"

    @property
    def runs(self) -> bool:
        return bool(self._readers)

    @property
    def sources(self) -> Sequence[str]:
        """The queues that it reads, by the names that they have now."""
        return self.world.sources if self.setup.pattern else SOURCES[: self.setup.sources]

    # -- what befalls it ---------------------------------------------------------------------------

    def allow_for_rename(self, source: str) -> None:
        """Allow for a queue that is renamed while a batch of its rows is not settled: they come again.

        An outbox knows them. A stage and a sink that knows batches by number do not.
        """
        if self.setup.stores or self.options.mode == ATOMIC:
            self.world.ledger.may_double |= set(self.world.in_table(source)) & self.seen()

    def lose_locks(self) -> None:
        """Allow for an injected death or cut: others may take what the process has read and
        not settled, or holds.

        The message then comes twice. This is so for rows that are only held, too: after a cut the process
        lives on, reads them, and learns of the cut only when it settles.
        """
        self.world.excused |= self.at_risk | self._held()

    def _held(self) -> set[int]:
        """The messages whose rows the process holds."""
        pids = [wire.pid for wire in self.world.network.of(self.process) if wire.busy]
        sources = self.sources if pids else ()
        return {n for source in sources for n in self.world.held_by(source, pids)}

    def crash(self, *, noticed: bool = True) -> None:
        """Let the process die: cut its sockets, and forget all but the logs."""
        self.lose_locks()
        self._may_lose_what_is_taken()
        self._readers = []
        self.job.calm = False
        _Timer.waiting.clear()
        self.world.network.cut(self.process, noticed=noticed)

    def cut(self, *, noticed: bool = True) -> int:
        """Break the connections of the process, which lives on;
        returns how many of them had a transaction open.
        """
        self.lose_locks()
        self.job.calm = False
        return self.world.network.cut(self.process, noticed=noticed)

    def stop(self) -> None:
        """End the process in good order: Spark stops its sources,
        and tells them nothing of the last batch, but for those of a job.
        """
        settled = self.setup.is_job and self._settles()
        self.lose_locks()
        self._may_lose_what_is_taken()
        self._end(ended=settled)

    def idle(self) -> int:
        """Let no trigger come for longer than any timer of the source lasts; returns how many timers end."""
        waiting = list(_Timer.waiting)
        for each in waiting:
            each.end()
        self.world.now += 60.0
        self._ahead_for = {}  # what was claimed ahead is free again
        return len(waiting)

    def vanish(self) -> None:
        """Take the process away, because the scenario is over."""
        _Timer.waiting.clear()
        self._readers = []
        self.world.network.cut(self.process)

    def _settles(self) -> bool:
        """Let the sources of a job settle its last batch; False where the job ends by an error instead."""
        try:
            for reader, start in zip(self._readers, self._offsets(self.checkpoint.done), strict=True):
                reader.finish(start)
        except SqlQueueError:
            return False
        self.at_risk = set()
        return True

    def _end(self, *, ended: bool = False, by_itself: bool = False) -> None:
        """:param ended: whether it is a job that ends without an error."""
        readers, self._readers = self._readers, []
        for each in readers:
            each.close()
        if ended:
            given_back, waits = any(each.given_back for each in readers), bool(self.world.in_table(DELAYED))
            self.job.end(by_itself=by_itself, given_back=given_back, waits=waits)
        else:
            self.job.calm = False
        left = self.world.network.of(self.process)
        if left:
            raise self.broken(
                f"{len(left)} connection(s) of a process that has ended in good order are still open"
            )

    def would_change_mode_and_stream(self, options: Options) -> bool:
        """Whether a batch that has not ended, and has no rows of the atomic source, would go on under another
        mode and another stream.

        People are told not to do so. A batch with rows bears it.
        """
        point = self.checkpoint
        if point.done == len(point.offsets):
            return False
        begun, end = point.begun[point.done], json.loads(point.offsets[point.done][0])
        rows = Offset.if_ours(end)
        without = rows is None or rows.empty or end == self._offsets(point.done)[0]
        return without and options.mode != begun.mode and options.stream != begun.stream

    def restart(self, options: Options) -> None:
        """Stop the query in good order; it goes on with these options."""
        if self.runs:
            self.stop()
        if self.options.outbox == NO_OUTBOX != options.outbox:
            self._allow_again()  # the outbox, which is asked from now on, knows nothing of what was sent
        self.options = options
        self.modes.add(options.mode)
        self.outboxes.add(options.outbox)
        self.named.add(options.queue)

    def may_change(self, judging: str) -> bool:
        """Whether a job may try to go on with other options.

        What was sent before comes again, and no note tells it, once a fail-over, an operator or an older
        checkpoint has brought it back.
        """
        brought_back = self.world.faults["fail-over"] or self.world.faults["restore"] or self._past
        return self.setup.is_job and judging != self.options.judging and not brought_back

    def change(self, judging: str) -> str:
        """Stop the job, and start it with other options; returns in words what came of it."""
        before = self.options
        self.restart(replace(before, judging=judging))
        noted, calm = dict(self.job.files.texts), self.job.calm
        try:
            self._start()
        except SqlQueueError as error:
            self._end()
            if self.job.files.texts == noted:
                self.options, self.job.calm = before, calm
                if "may then be sent twice" in str(error):
                    self._check_reason(calm=calm)
                    return "its note refuses that"
                return f"it does not begin: {type(error).__name__}: {error}"
            said = f"it fails: {type(error).__name__}: {error}"
        else:
            said = "it begins"
        self.allow_for_change()
        return said

    def _check_reason(self, *, calm: bool) -> None:
        if calm and self.checkpoint.done == len(self.checkpoint.offsets) and not self.world.in_table(DELAYED):
            raise self.broken("a job may not have other options, though nothing is left of what it had begun")

    def allow_for_change(self) -> None:
        """Allow for other options. What is brought back is never of before."""
        self.job.changed = True
        self.world.snapshot = self.world.backup = self.saved = None

    def run_to_end(self, way: Way) -> str:
        """Let a job run with ``availableNow``; returns in words what came of it."""
        if self.runs:
            self.stop()
        try:
            self._start()
            for reader in self._readers:
                reader.stop_at_present_end()
        except SqlQueueError as error:
            self._end()
            return f"it fails: {type(error).__name__}: {error}"
        said = ""
        while said != "nothing new":
            said = self.trigger(way)
            way = Way()
            if not self.runs:
                return said
        self._end(ended=True, by_itself=True)
        return "it ends"

    def read_all(self) -> None:
        """Go on with all queues, if some of them are not read."""
        if self.options.reads != SOURCES:
            self.world.tell("the query is stopped, to go on with all queues")
            self.restart(replace(self.options, reads=SOURCES))

    def begin_new_checkpoint(self) -> None:
        """Begin a new query. If the sink has rows that are still in the queue, they come again."""
        if self.runs:
            self.stop()
        self._allow_again()
        self.checkpoint = Checkpoint(query=self._queries)
        self._queries += 1
        self._past += 1

    def _allow_again(self) -> None:
        for source in self.world.sources:
            self.world.ledger.may_double |= set(self.world.in_table(source)) & self.seen()

    def seen(self) -> set[int]:
        """Every message that ever was in the sink."""
        stored = {n for rows in self.stored.values() for n in rows}
        return stored | {n for pairs in self.attempted.values() for n, _ in pairs}

    def go_back_to(self, saved: Checkpoint) -> None:
        """Restore a checkpoint.

        Batches come again under the same numbers with other rows; the sink remembers the first.
        """
        before, self._past = self._past, self._past + 1
        self.checkpoint = saved.copy()
        for batch in range(len(saved.offsets)):
            self.others[self._past, batch] = self.others.get((before, batch), [])
        self.world.ledger.may_double |= {n for numbers in self.others.values() for n in numbers}
        # What the batch had from elsewhere comes again from there; the machine does not play that.
        self.world.ledger.may_be_lost |= {
            n for (_, batch), numbers in self.others.items() if batch >= saved.done for n in numbers
        }
        again = self.seen() if self.setup.stores or NO_OUTBOX in self.outboxes else set()
        for source in self.world.sources:
            # Rows that were settled meanwhile are gone; the others come again in a batch of another number.
            # Where a source only receives, no claim tells the stage that these are the same rows.
            alone = source == SOURCES[1] and ATOMIC in self.modes and self.second_receives_only
            self.world.ledger.may_double |= set(self.world.in_table(source)) & (
                self.seen() if alone else again
            )

    def allow_for_fail_over(self, before: Counter[tuple[int, str]]) -> None:
        """Allow for a fail-over: rows that came back were handled before,
        and what was not sent with the claim may be gone.

        :param before: how often each message stood in each destination before the fail-over.
        """
        back = {n for source in self.world.sources for n in self.world.in_table(source)}
        ledger = self.world.ledger
        ledger.may_double |= {n for n in back if ledger.taken[n]}
        if self.setup.stores:
            ledger.may_double |= back & self.seen()
            return
        ledger.came_back |= back & self.seen()
        if self.setup.elsewhere:
            self.answered_before |= set(self.in_second())
        if NO_OUTBOX in self.outboxes:
            ledger.may_double |= back & self.seen()
        after = self.in_destinations()
        # A message whose id was sent there before was left out. It is gone with the one that was sent.
        keys = {(ledger.ids[n], to) for n, to in before - after}
        attempted = {pair for pairs in self.attempted.values() for pair in pairs}
        gone = {n for n, to in attempted if (ledger.ids[n], to) in keys and not after[n, to]}
        self.sent_anew |= gone & back
        if (
            NO_OUTBOX in self.outboxes
        ):  # else the source asks the outbox at home, which has forgotten them too
            ledger.may_be_lost |= gone
        # For messages from elsewhere no claim tells that they are not on the stage any more.
        gone |= {n for pairs in self.attempted.values() for n, to in pairs if not after[n, to]}
        ledger.may_be_lost |= gone & {n for numbers in self.others.values() for n in numbers}
        if (
            self.setup.sinks > 1
        ):  # the replica had only the first of two seals: the first sink's part goes out, and looks whole
            ledger.may_be_lost |= gone
        if self.second_receives_only:  # it settled when the batch was logged, whatever became of the stage
            its = {n for (at, _), n in ledger.numbers.items() if at == SOURCES[1]}
            ledger.may_be_lost |= gone & its
            ledger.may_double |= back & self.seen() & its

    def in_second(self) -> Counter[int]:
        """How often each message stands in the second destination, wherever a job's options have led to."""
        if self.setup.elsewhere:
            return sum((each.everywhere() for each in self.world.remotes.values()), Counter())
        return self.world.in_table(DESTINATIONS[1])

    def before_fail_over(self) -> Counter[tuple[int, str]]:
        """How often each message stands where a fail-over may destroy it though its batch is done."""
        return self.in_destinations()

    def in_destinations(self) -> Counter[tuple[int, str]]:
        """How often each message stands in each destination."""
        if self.setup.stores:
            return Counter()
        if self.setup.handles:
            first, failed, waiting = (self.world.in_table(name) for name in (DESTINATIONS[0], ERROR, DELAYED))
            passed_on = Counter(n for n in self.in_second().elements() if n in self.world.ledger.passed_on)
            its = first + failed + waiting + passed_on
            return Counter({(n, OUTCOME): count for n, count in its.items()})
        there = (*DESTINATIONS, ERROR) if self.setup.errors else DESTINATIONS
        return Counter({(n, to): count for to in there for n, count in self.world.in_table(to).items()})

    def follow_remedy(self, *, again: bool) -> None:
        """Do what the error that ended the query says, as far as it names something to do.

        :param again: whether the query failed in the same way when it was started once more.
        """
        said = str(self.refused)
        point = self.checkpoint
        if not isinstance(self.refused, ConfigurationError):
            return
        lost = "folder commits" in said and point.done > 0
        if lost and point.done == len(point.offsets) and said != self._removed_for:
            self._removed_for = said
            point.done -= 1
            self.due.pop((self._past, point.done), None)
            self.world.tell("  the newest file of the folder commits is removed, as the error says")
        elif lost or ("give a new checkpoint folder" in said and again):
            self.begin_new_checkpoint()
            self.world.tell("  the query gets a new checkpoint folder, as the error says")
        elif "Two sources use the stage" in said and self.setup.sources > 1 and not self.second_receives_only:
            self.second_receives_only = True
            self.world.tell(
                "  the second source receives only: there is one stage a stream, as the error says"
            )
        elif taken_up := re.search(r"was taken up with transactionMode (\w+), ", said):
            self.options = replace(self.options, mode=taken_up[1])
            self.world.tell(f"  the batch is finished with {taken_up[1]}, as the error says")
        elif point.done < len(point.offsets) and self.options != point.begun[point.done]:
            self.options = point.begun[point.done]
            self.world.tell(f"  the batch is finished as it was begun ({self.options}), as the error says")

    # -- a micro-batch -----------------------------------------------------------------------------

    def trigger(self, way: Way) -> str:
        """Run one trigger; returns in words what came of it."""
        network = self.world.network
        try:
            with watching(way.at, lambda: self._befalls(way.what)):
                return self._trigger(way)
        except Crash:
            return "the process is dead"
        except SqlQueueError as error:
            self._may_lose_what_is_taken()
            self._end()
            self.refused = error
            said = f"{type(error).__name__}: {error}"
            before, self._said = self._said, said
            return "the query fails as before" if said == before else f"the query fails: {said}"
        finally:
            network.forget_faults()

    #: The error that ended the query at the last trigger.
    refused: SqlQueueError | None = None
    _said = ""
    #: The error for which the newest file of the folder commits was removed.
    _removed_for = ""

    def _befalls(self, what: str) -> None:
        self.world.faults[what] += 1
        match what:
            case "crash":
                self.crash()
                raise Crash
            case "crash that is not noticed":
                self.crash(noticed=False)
                raise Crash
            case "cut":
                self.cut()
            case "cut that is not noticed":
                self.cut(noticed=False)
            case "cut before the next commit is heard":
                self.world.network.cut_at_next_commit(self.process, delivered=False)
            case "cut before the next commit is answered":
                self.world.network.cut_at_next_commit(self.process, delivered=True)
            case "the replica is as far":
                self.world.take_snapshot()
            case _:
                raise NotImplementedError(what)

    def _trigger(self, way: Way) -> str:
        self.refused = None
        self.world.now += 1.0  # a batch takes longer than a look
        self._start()
        made = self._construct(way)
        if made is None:
            return "nothing new"
        batch, ends = made
        found = self._plan_and_read(batch, ends, way)
        numbers = [int(message["Body"]) for message in found]
        self._write(batch, found)
        _reached(BATCH_WRITTEN)
        self.checkpoint.done = batch + 1
        if not self.setup.stores:
            self.due[self._past, batch] = self.attempted[self._past, batch]
        _reached(BATCH_LOGGED)
        if way.commit == "at once":
            self._settle_at_once(ends)
        self._look_ahead([*numbers, *self._expired(ends)])
        return f"batch {batch}: {listed(numbers)}"

    def _settle_at_once(self, ends: list[dict[str, Any]]) -> None:
        """Settle as the thread does that watches ``doneFile``.

        After an error the next trigger meets the same error.
        """
        for reader, end in zip(self._readers, ends, strict=True):
            try:
                reader.settle(end)
            except SqlQueueError as error:
                self.world.tell(f"  not settled yet: {error}")
        self.at_risk = set()

    def _start(self) -> None:
        if self._readers:
            return
        if (
            self.setup.stores
            and self.newest.get(self.checkpoint.query, -1) > len(self.checkpoint.offsets) - 1
        ):
            self.world.tell("  refused: the sink knows a newer batch than the checkpoint; a new query begins")
            self.begin_new_checkpoint()
        self._processes += 1
        self.world.network.process = self.process
        self.world.network.before_cut = self.lose_locks
        self.world.network.worker_not_answered = self._may_lose_what_is_taken
        self.at_risk = set()
        self._ahead_for = {}
        self._destinations, self._last_runs = {}, {}
        first = self.checkpoint.done == 0
        self._readers = [
            _Reader(self.world, self._source_options(i), follows=self.setup.follows, first=first)
            for i in range(self.setup.readers)
        ]
        if self.setup.is_job:
            self._begin_job()

    def _begin_job(self) -> None:
        """Begin a run of a job. Errors as of :class:`JobNote`."""
        given = self._sink_options()
        self._note_begin(Places(given, given), None)
        self.job.query_begins()

    def _note_begin(self, places: Places, databases: RemoteDatabases | None) -> None:
        if self.options.judging == OTHER_ERRORS:
            self.world.errors = list(ERRORS)
        self.job.begin(f"checkpoint {self.checkpoint.query}", self._source_options(0), places, databases)

    def _construct(self, way: Way) -> tuple[int, list[dict[str, Any]]] | None:
        point = self.checkpoint
        if point.done < len(point.offsets):
            return point.done, [json.loads(each) for each in point.offsets[point.done]]
        starts = self._offsets(point.done)
        ends = starts
        for _ in range(way.asks):
            ends = [reader.latest(start) for reader, start in zip(self._readers, starts, strict=True)]
            self.at_risk = set()
        _reached(OFFSET_NOT_LOGGED)
        if ends == starts:
            self._holds_nothing()
            if way.others < 0:
                return None
        point.offsets.append([json.dumps(each) for each in ends])
        point.begun.append(self.options)
        if way.others >= 0:
            self.others[self._past, point.done] = self.world.from_elsewhere(way.others)
        if point.done > 0 and way.commit != "never":
            for _ in range(2 if way.commit == "twice" else 1):
                for reader, start in zip(self._readers, starts, strict=True):
                    reader.settle(start)
        return point.done, [json.loads(json.dumps(each)) for each in ends]

    def _plan_and_read(self, batch: int, ends: list[dict[str, Any]], way: Way) -> list[dict[str, Any]]:
        starts = self._offsets(batch)
        tasks: list[Task] = []
        for _ in range(way.plans):
            tasks = [
                task
                for reader, start, end in zip(self._readers, starts, ends, strict=True)
                if end != start or batch == 0
                for task in reader.plan(start, end)
            ]
        self._planned = {n for task in tasks for n in self._numbers_of(task)}
        found = self._read(tasks)
        self.at_risk |= {int(message["Body"]) for message in found}
        for _ in range(way.reads - 1):
            taking = any(part.counts for task in tasks for part in task)
            if not taking and self._read(tasks) != found:
                raise self.broken("a task that runs twice reads two different things")
        wrong = {int(message["Body"]) for message in found} & self.world.ledger.in_transit
        if wrong:
            raise self.broken(f"{listed(wrong)} are in transit to another queue, and were delivered")
        wrong = {int(message["Body"]) for message in found} & self.world.ledger.stillborn
        if wrong:
            raise self.broken(f"{listed(wrong)} had expired before anybody claimed them, and were delivered")
        elsewhere = self.others.get((self._past, batch), [])
        return [
            *found,
            *({"Body": str(n), "Headers": f'{{"NServiceBus.MessageId":"m{n}"}}'} for n in elsewhere),
        ]

    def _numbers_of(self, task: Task) -> list[int]:
        return [
            self.world.ledger.numbers.get((part.queue.partition("@")[0], seq), 0)
            for part in task
            for seq in part.rows.rows()
        ]

    def _read(self, tasks: list[Task]) -> list[dict[str, Any]]:
        reader = SliceReader(Target.of(self._source_options(0)))
        return [message for task in tasks for batch in reader.rows(task) for message in batch.to_pylist()]

    def _may_lose_what_is_taken(self) -> None:
        """Allow for mode none: if a batch is not written, the rows that it has taken are lost."""
        if self.options.mode == NO_TRANSACTION:
            self.world.ledger.may_be_lost |= self._planned

    def _offsets(self, batch: int) -> list[dict[str, Any]]:
        """The offsets at which a batch begins, one for each source."""
        if batch == 0:
            return [dict(INITIAL) for _ in range(self.setup.readers)]
        return [json.loads(each) for each in self.checkpoint.offsets[batch - 1]]

    # -- the sink ----------------------------------------------------------------------------------

    def _write(self, batch: int, messages: list[dict[str, Any]]) -> None:
        key = (self.checkpoint.query, batch)
        if self.setup.stores:
            if batch > self.newest.get(key[0], -1):
                self.stored[key] = [int(message["Body"]) for message in messages]
                self.newest[key[0]] = batch
            return
        key = (self._past, batch)
        rows = [(message, to) for message in messages for to in self._route(int(message["Body"]))]
        if self.options.outbox == NO_OUTBOX and self.options.mode != ATOMIC:
            self.unremembered.add(key)
        if key in self.unremembered and key in self.attempted:
            self.world.ledger.may_double |= {n for n, _ in self.attempted[key]}
        if (self.options.mode == ATOMIC or self.options.outbox == NO_OUTBOX) and any(
            len(route) > 1 for route in self.setup.routes
        ):  # two tasks may have a copy each of what cannot be read, and nothing tells them so
            self.world.ledger.may_double |= {
                int(message["Body"]) for message in messages
            } & self.world.ledger.poison
        due = {(n, self._goes_to(n, to)) for message, to in rows for n in [int(message["Body"])]}
        self.attempted[key] = due
        share = -(-len(rows) // self.setup.sinks)
        for i in range(self.setup.sinks):
            self._send(i, rows[i * share : (i + 1) * share])

    def _goes_to(self, n: int, to: str | None) -> str:
        if self.setup.handles:
            return OUTCOME
        to = DESTINATIONS[1] if to == EVENT else to
        return ERROR if n in self.world.ledger.poison else to or self.options.queue

    def _route(self, n: int) -> Route:
        return self.setup.routes[n % len(self.setup.routes)]

    def _send(self, sink: int, rows: list[tuple[dict[str, Any], str | None]]) -> None:
        """Send rows as the sink does for ``foreachBatch``, in two tasks."""
        given = self._sink_options()
        found = self._destinations.setdefault(sink, Destinations(given))
        addresses = dict.fromkeys(to or self.options.queue for _, to in rows if to != EVENT)
        batch = Batch(
            query=f"query {self.checkpoint.query}", number=self.checkpoint.done, attempt=self.process
        )
        if self.setup.handles:
            frames = self._outcomes([message for message, _ in rows], found.places)
            columns = handler.columns_of(given)
        else:
            frames = self._frames(rows)
            columns = columns_of("EventType") if self.setup.publishes else PLAIN
        last = self._last_runs.get(sink)
        run = self._last_runs[sink] = prepare(found, columns, addresses, batch=batch, last=last)

        def make(each: pa.RecordBatch) -> Any:
            if not self.setup.handles:
                return composed(given, each)
            return builder_of(columns, found.places).compose([each])

        if given.transaction_mode == ATOMIC:
            seal(given, [stage(found, make(each)) for each in frames], run)
        else:
            for each in frames:
                with Sender(found) as sender:
                    sender.send(make(each))

    def _outcomes(self, messages: list[dict[str, Any]], places: Places) -> list[pa.RecordBatch]:
        """What the tasks' functions make of the messages, each time something else."""
        self._tries += 1
        function = Answers(self._tries, self.setup.publishes)
        received = [{"Queue": SOURCES[0], **message} for message in messages]
        half = max(1, -(-len(received) // 2))
        found = [
            each
            for at in range(0, len(received), half)
            for each in handler.outcomes(function, received[at : at + half], places)
        ]
        wrong = {n for each in found for n in handler.misjudged(each, self.world.ledger.passed_on)}
        if wrong:
            raise self.broken(f"{listed(wrong)} were taken for what they are not: handled, or not handled")
        return found

    def _frames(self, rows: list[tuple[dict[str, Any], str | None]]) -> list[pa.RecordBatch]:
        """What the two tasks of a sink are given."""
        received = {"Id": pa.string(), "RowVersion": pa.int64()} if self.setup.errors else {}
        table = pa.table(
            {
                **{
                    name: pa.array([message.get(name) for message, _ in rows], type_)
                    for name, type_ in received.items()
                },
                "Headers": pa.array([message["Headers"] for message, _ in rows], pa.string()),
                "Body": pa.array(
                    [
                        bytes(message["Body"])
                        if isinstance(message["Body"], bytes)
                        else message["Body"].encode()
                        for message, _ in rows
                    ],
                    pa.binary(),
                ),
                "Destination": pa.array([None if to == EVENT else to for _, to in rows], pa.string()),
                **(
                    {
                        "EventType": pa.array(
                            [EVENT_TYPE if to == EVENT else None for _, to in rows], pa.string()
                        )
                    }
                    if self.setup.publishes
                    else {}
                ),
            }
        )
        return table.to_batches(max_chunksize=max(1, -(-len(rows) // 2)))  # type: ignore[no-any-return] # pyarrow has no types

    # -- options -----------------------------------------------------------------------------------

    def _common(self) -> dict[str, str]:
        return {
            "url": self.world.url,
            "transactionMode": self.options.mode,
            "stream": self.options.stream,
            "lockTimeout": "20ms",
        }

    def _source_options(self, source: int) -> SourceOptions:
        mode = RECEIVE_ONLY if source and self.second_receives_only else self.options.mode
        return _parsed(
            SourceOptions,
            **self._common() | {"transactionMode": mode},
            **self._reads(source),
            maxMessagesPerTrigger=str(self.options.limit),
            minMessagesPerPartition="2",
            claimAhead=str(self.options.ahead).lower(),
            neighbourHeadroom=self.options.headroom,
            pollInterval="20ms",
            **({"outboxEndpoint": ENDPOINT} if self._asks_outbox(source) else {}),
            **({"doneFile": "of a job"} if self.setup.is_job else {}),
            **self._elsewhere(),
        )

    def _elsewhere(self) -> dict[str, str]:
        """The option by which source and sink know that the second destination is in another database."""
        if not self.setup.elsewhere:
            return {}
        to, leads = DESTINATIONS[1], DESTINATIONS[0 if self.options.judging == URLS else 1]
        return {f"endpoint.{to}.url": self.world.remotes[leads].url}

    def _reads(self, source: int) -> dict[str, str]:
        if self.setup.pattern:
            return {"queuePattern": PATTERN}
        return {"queues": json.dumps(self.options.reads)} if self.setup.joined else {"queue": SOURCES[source]}

    def _asks_outbox(self, source: int) -> bool:
        """Whether a source asks the sink's outbox, which knows nothing of another source's stage."""
        staged = source > 0 and self.second_receives_only
        return not (self.setup.stores or self.options.outbox == NO_OUTBOX or staged)

    def _sink_options(self) -> SinkOptions:
        errors = self.setup.errors or self.setup.handles
        return _parsed(
            SinkOptions,
            **self._common(),
            queue=self.options.queue,
            outbox=self.options.outbox,
            endpoint=ENDPOINT,
            **self._elsewhere(),
            **{**({"errorQueue": ERROR} if errors else {}), **GIVEN.get(self.options.judging, {})},
        )

    # -- what must hold at every step --------------------------------------------------------------

    def _holds_nothing(self) -> None:
        """Check that the core has no transaction open when it says that nothing is new:
        others could not take its rows.
        """
        busy = [wire for wire in self.world.network.of(self.process) if wire.busy]
        if busy:
            raise self.broken(
                "the stream says that there is nothing new, and has a transaction open that holds rows"
            )

    def _expired(self, ends: list[dict[str, Any]]) -> list[int]:
        """The messages of a batch that have expired: it has them, and delivers none."""
        return [
            self.world.ledger.numbers.get((part.queue.partition("@")[0], seq), 0)
            for end in map(Offset.from_json, ends)
            for part in (() if end is None else end.parts)
            for seq in part.expired.rows()
        ]

    def _look_ahead(self, present: list[int]) -> None:
        """Check that the rows of a claim ahead are delivered within two batches."""
        if not self.options.ahead or self.options.mode == NO_TRANSACTION:
            return
        busy = sum(wire.busy for wire in self.world.network.of(self.process))
        held = self._held() if busy > 1 else set()
        self._ahead_for = {n: self._ahead_for.get(n, 0) + 1 for n in held - set(present)}
        starved = {n for n, batches in self._ahead_for.items() if batches > 2}
        if starved:
            raise self.broken(
                f"{listed(starved)} were claimed ahead, and two batches have gone by without them"
            )

    def broken(self, what: str) -> Broken:
        return Broken("\n".join(["", *self.world.story, f"BROKEN: {what}"]))


_O = TypeVar("_O", SourceOptions, SinkOptions)

_parsed_before: dict[object, Any] = {}


def _parsed(kind: type[_O], **given: str) -> _O:
    """The parsed options. Equal options are parsed only once,
    because to parse them costs more than a query.
    """
    key = (kind, tuple(sorted(given.items())))
    if key not in _parsed_before:
        _parsed_before[key] = kind.parse(given)
    found: _O = _parsed_before[key]
    return found


_watch: tuple[str, Callable[[], None]] | None = None


def reached(step: str) -> None:
    """The function that ``SQLQUEUE_AT_STEP`` names while the machine runs."""
    global _watch
    if _watch is not None and _watch[0] == step:
        (_, befalls), _watch = _watch, None
        befalls()


_reached = reached


@contextlib.contextmanager
def watching(step: str | None, befalls: Callable[[], None]) -> Iterator[None]:
    global _watch  # noqa: PLW0603
    _watch = None if step is None else (step, befalls)
    try:
        yield
    finally:
        _watch = None


class _Inline(threading.Thread):
    """A thread that does its work when it is started, so that all things happen in one order."""

    def start(self) -> None:
        self.run()

    def join(self, timeout: float | None = None) -> None:
        """Do nothing: the work is done already."""


class _NoTimer:
    """A timer that never ends, because what it watches takes no time here."""

    name, daemon = "", False

    def __init__(self, *_: object) -> None: ...
    def start(self) -> None: ...
    def cancel(self) -> None: ...


class _Timer(_NoTimer):
    """A timer that ends when a scenario says that time goes by."""

    waiting: ClassVar[list["_Timer"]] = []

    def __init__(self, _: float, done: Callable[[], object]) -> None:
        self._done = done

    def start(self) -> None:
        _Timer.waiting.append(self)

    def cancel(self) -> None:
        if self in _Timer.waiting:
            _Timer.waiting.remove(self)

    def end(self) -> None:
        self.cancel()
        self._done()


@contextlib.contextmanager
def protocol() -> Iterator[None]:
    """Within the block steps are told, claims ahead are made at once,
    and when a database gives way we try once more.
    """
    with (
        mock.patch.dict("os.environ", SQLQUEUE_AT_STEP=f"{__name__}:{reached.__name__}"),
        mock.patch.object(
            claim_ahead, "threading", SimpleNamespace(Thread=_Inline, Lock=threading.Lock, Timer=_Timer)
        ),
        mock.patch.object(outbox_cleanup, "threading", SimpleNamespace(Thread=_Inline)),
        mock.patch.object(receiver, "DoneFile", Told),
        mock.patch.object(queue_table, "LOCKED_MS", 20),
        mock.patch.object(set_aside, "LATER_SECONDS", 1.0),
        mock.patch.object(slice_reader, "threading", SimpleNamespace(Timer=_NoTimer, Lock=threading.Lock)),
        handler.in_this_process(),
        stamina.set_testing(True, attempts=2),
    ):
        yield
