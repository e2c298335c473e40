"""What a chunk writes in one database in one transaction, and by which keys an outbox knows it.

Each piece of work is decided by the keys that an outbox has already. So a chunk that is tried again writes
only what is missing. The same decision serves an outbox that is asked first, one that is asked last, a stage,
and a sink without an outbox, for which no key is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.acknowledgement import OF_RETRY, acknowledgements
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import (
    FORWARD_DESTINATION,
    STORED,
    STORED_FOR,
    changed_headers,
    without_headers,
)
from sqlqueue_spark.messages.outgoing import lasting, replaced, waiting
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.column_values import grouped, in_order
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.outcomes import ACKNOWLEDGED, AUDITED, FAILED, Outcomes
from sqlqueue_spark.send.compose.places import Place, Places
from sqlqueue_spark.send.deliver.destinations import Destination, Rows
from sqlqueue_spark.send.deliver.routes import Addressed, Routes
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.outbox_keys import (
    OF_ACKNOWLEDGED,
    OF_FAILED,
    OF_HANDLED,
    OF_ORIGIN,
    earlier_keys,
    keys,
)

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a transaction writes.

    :param rows: the rows of the chunk that have their outcome in it, by position.
    :param messages: the messages that it inserts, and ``copies`` the copies of events that have failed.
    :param acknowledged: the rows that owe an acknowledgement, and have succeeded, now or before.
    :param keys: the keys that it adds to the outbox.
    """

    rows: Sequence[int] = ()
    messages: Sequence[int] = ()
    copies: Sequence[int] = ()
    acknowledged: Sequence[int] = ()
    keys: Sequence[str] = ()
    repeated: int = 0


class Work(Protocol):
    """What one chunk writes in one database."""

    def asked(self) -> Iterable[str]:
        """The keys that the outbox is asked for."""
        ...

    def decide(self, known: Collection[str]) -> Decision:
        """What is to be written where the outbox knows these keys."""
        ...

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        """The messages to insert, by table, in the order in which all senders insert."""
        ...

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        """The rows of messages by the tables that they go into: those that wait go into another one."""
        ...

    def beside(self, decision: Decision) -> list[Rows]:
        """What else is written: failed messages, retries, rows that wait, acknowledgements, audit copies."""
        ...

    def acknowledged(self, decision: Decision) -> Iterable[Rows]:
        """What tells ServiceControl that messages succeeded that it had put back."""
        ...

    def counted(self, decision: Decision) -> Sent: ...


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Messages that were addressed, and what has become of them so far.

    :param rows: the received rows that send them; None for plain messages, of which each is a row by itself.
    :param failed: the rows that have failed, by position; ``refused`` are copies of events that failed alone.
    :param known: the rows of which home knows that they had their outcome before anything was sent.
    :param sent: messages that another database has, and whether they were new there.
    :param told: rows whose acknowledgement can be delivered.
    """

    rows: Outcomes | None
    sends: Composed | None
    addressed: Sequence[Addressed]
    failed: Mapping[int, Failure] = field(default_factory=dict)
    refused: Mapping[int, Failure] = field(default_factory=dict)
    known: Collection[int] = ()
    sent: Mapping[int, bool] = field(default_factory=dict)
    told: Mapping[int, Destination | Place] = field(default_factory=dict)

    @cached_property
    def owners(self) -> Sequence[int]:
        """Of each message the position of its row."""
        if self.rows is not None:
            return self.rows.owners
        return range(0 if self.sends is None else len(self.sends))

    def __len__(self) -> int:
        return len(self.owners) if self.rows is None else len(self.rows)

    @property
    def handled(self) -> bool:
        return self.rows is not None and self.rows.handled

    def messages_of(self, row: int) -> range:
        return range(row, row + 1) if self.rows is None else self.rows.messages_of(row)

    def _is_copy(self, message: int) -> bool:
        if self.handled:
            return self.sends is not None and self.sends.is_copy(message)
        return len(self.messages_of(self.owners[message])) > 1

    def goes(self, message: int) -> bool:
        """Whether a message is still to go out."""
        row = self.owners[message]
        left = row not in self.failed and row not in self.known
        return left and message not in self.refused and message not in self.sent

    def without_waiting(self, rows: Outcomes, lacks: Callable[[str], bool]) -> Chunk:
        """The chunk, of which those rows fail for good that would wait where there is no table for it.

        :param lacks: tells of a queue whether it has none.
        """
        waiting = [at for at, each in self.failed.items() if not each.is_final]
        lacking = {queue for queue in {rows.queue(at) for at in waiting} if lacks(queue)}
        final = {
            at: replace(self.failed[at], retry_after=None, waits_for=None)
            for at in waiting
            if rows.queue(at) in lacking
        }
        return replace(self, failed={**self.failed, **final}) if final else self

    @cached_property
    def address_of(self) -> Mapping[int, Addressed]:
        """Where each message goes."""
        return {at: each for each in self.addressed for at in each.positions}

    def failing(self, failures: Mapping[int, Failure]) -> Chunk:
        return replace(self, failed={**failures, **self.failed})

    def refusing(self, positions: Iterable[int], failure: Failure) -> Chunk:
        """The chunk, of which these messages are refused. One of several copies fails alone, else its row."""
        copies, failed = dict(self.refused), dict(self.failed)
        for at in positions:
            if self.rows is not None and self._is_copy(at):
                copies[at] = failure
            else:
                failed.setdefault(self.owners[at], failure)
        return replace(self, failed=failed, refused=copies)


def send_keys(chunk: Chunk, addressed: Iterable[Addressed], *, remembered: bool = True) -> dict[int, str]:
    """The key of each of these messages, by position; without an outbox no two messages have one key."""
    found: dict[int, str] = {}
    for each in addressed:
        if not remembered:
            found.update({at: str(at) for at in each.positions})
        elif each.positions and chunk.sends is not None:
            made = keys(_known_ids(chunk, each.positions), each.known_as)
            found.update(zip(each.positions, made.to_pylist(), strict=True))
    return found


def _known_ids(chunk: Chunk, positions: Sequence[int]) -> pa.Array:
    """What messages are known by: their ids, or what the row says that we have stored."""
    assert chunk.sends is not None
    ids = chunk.sends.of(chunk.sends.id_column, positions)
    stored = {} if chunk.rows is None else chunk.rows.stored
    if not stored:
        return ids
    return pc.coalesce(pa.array([stored.get(chunk.owners[at]) for at in positions], pa.string()), ids)


def earlier_send_keys(chunk: Chunk, addressed: Iterable[Addressed], own: str | None) -> dict[str, str]:
    """The keys by which version 0.1.0 may have known messages, each with the present key.

    :param own: the name of the table of the option ``queue``.
    """
    present = send_keys(chunk, addressed)
    assert chunk.sends is not None
    return {
        earlier: present[at]
        for each in addressed
        if each.to is not None
        for at in each.positions
        for earlier in earlier_keys(chunk.sends.ids[at], each.to.table.name, own=each.to.table.name == own)
    }


def inserted_rows(routes: Routes, chunk: Chunk, to: Addressed, positions: Sequence[int]) -> list[Rows]:
    """The rows of messages by the tables that they go into. Those that are due later go into another one."""
    assert to.to is not None
    assert chunk.sends is not None
    rows = chunk.sends.rows(positions)
    told = [number for number, at in enumerate(positions) if chunk.told and chunk.owners[at] in chunk.told]
    if told:
        headers = rows["headers"].to_pylist()
        for number in told:
            headers[number] = without_headers(headers[number], OF_RETRY)
        rows = replaced(rows, headers=pa.array(headers, pa.string()))
    if to.stored_for is not None:
        known = chunk.sends.of(chunk.sends.id_column, positions).to_pylist() if chunk.handled else None
        rows = _stored(routes, rows, to, known)
    later = waiting(rows)
    if not pc.any(later).as_py():
        return [(to.to, rows)]
    if pc.all(later).as_py():
        return [(routes.later(to.to), rows)]
    return [(to.to, rows.filter(pc.invert(later))), (routes.later(to.to), rows.filter(later))]


def _stored(
    routes: Routes, rows: pa.RecordBatch, to: Addressed, known_as: Sequence[str] | None
) -> pa.RecordBatch:
    """The rows with the header of their destination in another database; a plain one may have it already.

    :param known_as: what each is known by there, where we store them; None for plain messages.
    """
    assert to.to is not None
    queue = routes.places.full_address("", Place(to.to.target, to.to.table.table))
    headers = []
    for number, text in enumerate(rows["headers"].to_pylist()):
        if known_as is None and f'"{STORED_FOR}":' in text:
            headers.append(text)
            continue
        added = {STORED_FOR: to.stored_for or ""}
        if known_as is not None:
            added[STORED] = known_as[number]
        if f'"{FORWARD_DESTINATION}":' in text:
            added[FORWARD_DESTINATION] = queue
        headers.append(changed_headers(text, set(added), added))
    return replaced(rows, headers=pa.array(headers, pa.string()))


class Elsewhere:
    """The messages of a chunk for another database: its outbox knows them by their sends."""

    def __init__(self, routes: Routes, chunk: Chunk, addressed: Sequence[Addressed]) -> None:
        self._routes = routes
        self.chunk = chunk
        self.addressed = [each for each in addressed if each.positions]
        self.keys = send_keys(chunk, self.addressed, remembered=routes.remembers)

    def asked(self) -> Iterable[str]:
        return self.keys.values()

    def decide(self, known: Collection[str]) -> Decision:
        first: dict[str, int] = {}
        for at, key in self.keys.items():
            if key not in known:
                first.setdefault(key, at)
        reached = {at for each in self.addressed if each.to is not None for at in each.positions}
        new = {key: at for key, at in first.items() if at in reached}
        return Decision(messages=sorted(new.values()), keys=list(new))

    def lost(self, known: Collection[str]) -> Iterator[Addressed]:
        """The messages whose table cannot be reached, and which were not sent before either."""
        for each in self.addressed:
            left = [at for at in each.positions if self.keys[at] not in known]
            if each.to is None and left:
                yield each.only(left)

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        return in_tables(self.addressed, decision.messages)

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        return inserted_rows(self._routes, self.chunk, to, positions)

    def beside(self, _: Decision) -> list[Rows]:
        return []

    def acknowledged(self, _: Decision) -> list[Rows]:
        return []

    def counted(self, decision: Decision) -> Sent:
        assert self.chunk.sends is not None
        return Sent(delayed=self.chunk.sends.delays(decision.messages))


def in_tables(
    addressed: Iterable[Addressed], positions: Sequence[int]
) -> Iterator[tuple[Addressed, Sequence[int]]]:
    """These messages by table. All senders keep one order of tables, so that they never wait in a circle."""
    wanted = set(positions)
    whole = sum(len(each.positions) for each in addressed) == len(wanted)
    reached = [(each.to.table.address, each) for each in addressed if each.to]
    for _, each in sorted(reached, key=lambda pair: pair[0]):
        its = each.positions if whole else [at for at in each.positions if at in wanted]
        if its:
            yield each, its


@dataclass
class _Passed:
    """A decision on rows that are passed on, while it is made."""

    rows: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    keys: dict[str, None] = field(default_factory=dict)
    repeated: int = 0

    def decision(self) -> Decision:
        return Decision(
            rows=self.rows,
            messages=sorted(self.messages),
            copies=self.copies,
            acknowledged=self.acknowledged,
            keys=list(self.keys),
            repeated=self.repeated,
        )


class AtHome:
    """What a chunk writes in the database in which its rows were received, or in the sink's own one.

    :param asks: whether the outbox is asked for the origin of each row. A sink that knows that a batch is
        tried for the first time need not ask where all goes to home: there each failure takes the key of its
        send, too.
    """

    def __init__(self, routes: Routes, chunk: Chunk, *, asks: bool) -> None:
        self._routes = routes
        self._places = routes.places
        self.chunk = chunk
        home = self._places.at_home
        self.addressed = [each for each in chunk.addressed if each.place is None or each.place.target == home]
        self.keys = {} if chunk.handled else send_keys(chunk, self.addressed, remembered=routes.remembers)
        self._asks = asks or chunk.handled

    def find_tables(self) -> None:
        """Find all tables that may be written, before the transaction: a look for one needs its own.

        A row that is to be tried again, and whose queue has no table for that, goes to the error queue at
        once.

        :raises QueueError: another of these tables is missing.
        """
        rows, routes = self.chunk.rows, self._routes
        if rows is not None:
            for queue in rows.queues.unique().to_pylist():
                routes.destinations.received(queue, routes.connected)
            self.chunk = self.chunk.without_waiting(rows, self._lacks_waiting)
        home = self._places.home
        own = {self._error_queue, *(each.error_queue for each in self.chunk.failed.values())} - {None, ""}
        stores = home.store_and_forward
        for queue in filter(None, (*own, home.audit_queue if self.chunk.handled else None)):
            if self._places.beside(queue).target == self._places.at_home:
                routes.destinations.beside(queue, routes.connected)
        if stores is not None:
            routes.destinations.received(stores, routes.connected)

    def _lacks_waiting(self, queue: str) -> bool:
        """Whether a queue has no table in which its messages wait."""
        routes = self._routes
        try:
            routes.destinations.waiting(self._places.received(queue), routes.connected)
        except QueueError as error:
            log.warning(
                "no_delayed_table queue=%s: its messages go to the error queue at once: %s", queue, error
            )
            return True
        return False

    @cached_property
    def _owing(self) -> Collection[int]:
        rows = self.chunk.rows
        return () if rows is None else [at for at in rows.owed if at in self.chunk.told]

    @cached_property
    def _plain(self) -> bool:
        """Whether nothing but sends is written, as nearly always."""
        chunk = self.chunk
        return not (chunk.failed or chunk.refused or chunk.known or chunk.sent or self._owing)

    def has_nothing(self) -> bool:
        """Whether nothing is to be written: all went to another database."""
        chunk = self.chunk
        return not (chunk.handled or self.keys or chunk.failed or chunk.refused or self._owing)

    @cached_property
    def origins(self) -> Sequence[str]:
        """The key of the outcome of each row."""
        rows, sends = self.chunk.rows, self.chunk.sends
        if rows is not None:
            whole = keys(rows.origin_texts, "", OF_ORIGIN)
            return whole.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
        made: dict[int, str] = {}
        for each in self.chunk.addressed:
            if sends is not None and each.positions:
                its = keys(sends.of(sends.id_column, each.positions), each.known_as, OF_FAILED)
                made.update(zip(each.positions, its.to_pylist(), strict=True))
        return [made[at] for at in range(len(self.chunk))]

    @cached_property
    def acknowledgements(self) -> Mapping[int, str]:
        """The keys of acknowledgements of rows that are passed on: their other copies may stand in another chunk."""
        rows = self.chunk.rows
        owing = sorted(self._owing)
        if rows is None or not owing:
            return {}
        made = keys(rows.origin_texts.take(pa.array(owing, pa.int32())), "", OF_ACKNOWLEDGED)
        return dict(zip(owing, made.to_pylist(), strict=True))

    @cached_property
    def failed_copies(self) -> Mapping[int, str]:
        """The keys of messages that are copies of received rows, and fail alone.

        Other copies of a row may stand in another chunk, so its origin cannot say it.
        """
        rows = self.chunk.rows
        found: dict[int, str] = {}
        for each in self.chunk.addressed if rows is not None and not rows.handled else ():
            owners = pa.array([self.chunk.owners[at] for at in each.positions], pa.int32())
            origins = rows.origin_texts.take(owners)  # type: ignore[union-attr] # there is one
            made = keys(origins, each.known_as, OF_FAILED)
            found.update(zip(each.positions, made.to_pylist(), strict=True))
        return found

    @cached_property
    def ids(self) -> Sequence[str]:
        """The key of the message id of each handled row."""
        rows = self.chunk.rows
        assert rows is not None
        made = [
            (its, keys(rows.ids.take(its), self._final(queue), OF_HANDLED))
            for queue, its in grouped(rows.queues)
        ]
        together = in_order(*zip(*made, strict=True))
        return together.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def _final(self, queue: str) -> str:
        return self._routes.destinations.received(queue, self._routes.connected).known_as

    def asked(self) -> Iterable[str]:
        yield from self.keys.values()
        if self.chunk.handled:
            yield from self.ids
        if self.chunk.rows is not None and (self._asks or not self._plain):
            yield from self.origins
            yield from self.failed_copies.values()
            yield from self.acknowledgements.values()
        elif self.chunk.rows is None and self.chunk.failed:
            yield from (self.origins[at] for at in self.chunk.failed)

    def earlier_origins(self) -> dict[str, str]:
        """The keys by which version 0.2.0 may have known outcomes, each with the present key."""
        rows = self.chunk.rows
        found: dict[str, str] = {}
        if rows is None:
            return {key: self.keys[at] for at, key in enumerate(self.origins) if at in self.keys}
        for queue, its in grouped(rows.queues):
            texts, final = rows.origin_texts.take(its), self._final(queue)
            positions = its.to_pylist()
            for made in (keys(texts, final, OF_ORIGIN), keys(texts, "", OF_FAILED)):
                found |= dict(zip(made.to_pylist(), (self.origins[at] for at in positions), strict=True))
        for at, failed in self.failed_copies.items():
            owner = self.chunk.owners[at]
            if len(self.chunk.messages_of(owner)) == 1:
                found[failed] = self.origins[owner]
        return found

    def decide(self, known: Collection[str]) -> Decision:
        if self.chunk.handled:
            return self._of_handled(known)
        if not known and self.has_nothing() and not self.chunk.known:
            again = sum(not new for new in self.chunk.sent.values())
            return Decision(rows=range(len(self.chunk)), repeated=again)
        if not known and self._plain:
            first: dict[str, int] = {}
            for at, key in self.keys.items():
                first.setdefault(key, at)
            messages = sorted(first.values())
            return Decision(
                rows=range(len(self.chunk)),
                messages=messages,
                keys=list(first),
                repeated=len(self.keys) - len(first),
            )
        return self._of_passed(known)

    def _of_passed(self, known: Collection[str]) -> Decision:
        """For rows that are passed on, and plain messages."""
        chunk = self.chunk
        made = _Passed()
        asks = chunk.rows is not None or bool(chunk.failed)
        for row in range(len(chunk)):
            its = chunk.messages_of(row)
            if row in chunk.known or (asks and self.origins[row] in known):
                made.repeated += max(1, len(its))
                continue
            failure = chunk.failed.get(row)
            went = [at for at in its if at in chunk.sent or self._went(at, known, made)]
            if failure is None or (failure.is_final and its and len(went) == len(its)):
                self._of_sound_row(row, known, made)
                if failure is None:
                    made.rows.append(row)
                continue
            made.rows.append(row)
            made.repeated += sum(not chunk.sent.get(at, False) for at in went)
            here = [self.keys[at] for at in its if at in self.keys and at not in went]
            if chunk.rows is not None or not here:
                made.keys[self.origins[row]] = None
            elif failure.is_final:
                made.keys |= dict.fromkeys(here)
        return made.decision()

    def _went(self, message: int, known: Collection[str], made: _Passed) -> bool:
        """Whether a message went out before; of equal plain messages of a chunk one fails for all."""
        key = self.keys.get(message)
        return key is not None and (key in known or (self.chunk.rows is None and key in made.keys))

    def _of_sound_row(self, row: int, known: Collection[str], made: _Passed) -> None:
        """What a row sends that has not failed, or was sent before it failed."""
        chunk = self.chunk
        its = chunk.messages_of(row)
        for at in its:
            key = self.keys.get(at)
            if at in chunk.sent or (key is not None and (key in known or key in made.keys)):
                made.repeated += not chunk.sent.get(at, False)
                continue
            if known and chunk.rows is not None and self.failed_copies[at] in known:
                made.repeated += 1
            elif at in chunk.refused:
                failed = key if chunk.rows is None and key else self.failed_copies[at]
                if failed in made.keys:
                    made.repeated += 1
                    continue
                made.copies.append(at)
                made.keys[failed] = None
            else:
                made.messages.append(at)
                made.keys |= {} if key is None else {key: None}
        if row in self._owing and self.acknowledgements[row] not in known:
            made.acknowledged.append(row)
            made.keys[self.acknowledgements[row]] = None

    def _of_handled(self, known: Collection[str]) -> Decision:
        """For rows that are handled.

        A row whose origin is known has had its outcome, and gets no other. One whose id is known, or
        comes twice, was handled as another row.
        """
        chunk = self.chunk
        if not known and self._plain and len(set(self.ids)) == len(chunk):
            everything = range(len(chunk))
            messages = range(0 if chunk.sends is None else len(chunk.sends))
            return Decision(rows=everything, messages=messages, keys=[*self.origins, *self.ids])
        rows: list[int] = []
        before: list[int] = []
        added: dict[str, None] = {}
        for at, (origin, id_) in enumerate(zip(self.origins, self.ids, strict=True)):
            if origin in known or at in chunk.known:
                continue
            added[origin] = None
            if id_ in known or id_ in added:
                before.append(at)
                continue
            rows.append(at)
            if at not in chunk.failed:
                added[id_] = None
        sound = {at for at in rows if at not in chunk.failed}
        its = [at for at, owner in enumerate(chunk.owners) if owner in sound]
        return Decision(
            rows=rows,
            messages=[at for at in its if at not in chunk.refused],
            copies=[at for at in its if at in chunk.refused],
            acknowledged=[at for at in sorted({*sound, *before}) if at in self._owing],
            keys=list(added),
            repeated=len(chunk) - len(rows),
        )

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        return in_tables(self.addressed, decision.messages)

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        return inserted_rows(self._routes, self.chunk, to, positions)

    def beside(self, decision: Decision) -> list[Rows]:
        now = datetime.now(UTC)
        made = [
            *self._failed(decision),
            *self._failed_copies(decision),
            *self._later(decision, now),
            *self._audited(decision, now),
        ]
        return sorted(made, key=lambda each: each[0].table.address)

    def counted(self, decision: Decision) -> Sent:
        chunk, sends = self.chunk, self.chunk.sends
        kinds = [chunk.failed[at] for at in decision.rows if at in chunk.failed]
        failed = sum(each.is_final for each in kinds) + len(decision.copies)
        retried = sum(each.retry_after is not None for each in kinds)
        waits = len(kinds) - retried - sum(each.is_final for each in kinds)
        elsewhere = sum(chunk.sent.values())
        processed = len(decision.rows) - len(kinds)
        return Sent(
            sent=len(decision.messages) + elsewhere,
            repeated=decision.repeated,
            handled=processed if chunk.handled else 0,
            failed=failed,
            retried=retried,
            waiting=waits,
            delayed=0 if sends is None else sends.delays(decision.messages),
            acknowledged=len(decision.acknowledged),
            audited=processed if chunk.handled and self._places.home.audit_queue is not None else 0,
        )

    def _failed(self, decision: Decision) -> Iterator[Rows]:
        """The rows that go to an error queue."""
        chunk = self.chunk
        by_queue: dict[str, list[int]] = {}
        for at in decision.rows if chunk.failed else ():
            if at in chunk.failed and chunk.failed[at].is_final:
                by_queue.setdefault(chunk.failed[at].error_queue or self._error_queue, []).append(at)
        for queue, its in by_queue.items():
            if chunk.rows is None:
                rows = self._message_errors(its, chunk.failed)
            else:
                rows = replace(chunk.rows, failed=chunk.failed).error_rows(its, self._places)
            yield from self._beside(queue, rows, its, [FAILED] * len(its))

    def _failed_copies(self, decision: Decision) -> Iterator[Rows]:
        """The copies of events that go to the error queue: a copy of a row that is passed on as that row."""
        chunk = self.chunk
        if not decision.copies:
            return
        if chunk.rows is None or chunk.handled:
            owners = [chunk.owners[at] for at in decision.copies]
            errors = self._message_errors(decision.copies, chunk.refused)
            yield from self._beside(self._error_queue, errors, owners, self._told_apart(decision.copies))
            return
        assert chunk.sends is not None
        refused = [(chunk.owners[at], self._full(at), chunk.refused[at]) for at in decision.copies]
        rows = chunk.rows.copy_error_rows(refused, self._places)
        yield from self._beside(
            self._error_queue, rows, [at for at, *_ in refused], self._told_apart(decision.copies)
        )

    def _told_apart(self, copies: Sequence[int]) -> list[str]:
        return [f"{FAILED} for {self.chunk.address_of[at].known_as}" for at in copies]

    def _full(self, message: int) -> str:
        """The full address of a message's destination."""
        assert self.chunk.sends is not None
        return self._places.written(self.chunk.sends.addresses[message].as_py(), received=False)[0]

    @property
    def _error_queue(self) -> str:
        return self._places.home.error_queue or ""

    def _message_errors(self, positions: Sequence[int], failures: Mapping[int, Failure]) -> pa.RecordBatch:
        """Messages of the chunk as rows of an error queue, for the addresses that they could not reach."""
        sends = self.chunk.sends
        assert sends is not None
        rows = sends.rows(sorted(positions))
        headers = []
        for at, text in zip(sorted(positions), rows["headers"].to_pylist(), strict=True):
            queue, endpoint = self._places.written(sends.addresses[at].as_py(), received=False)
            headers.append(
                failed_headers(text, failures[at], queue=queue, endpoint=endpoint, row_id=sends.ids[at])
            )
        return lasting(headers, rows["body"])

    def _later(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        """The rows that are tried again later, or wait for a database."""
        chunk = self.chunk
        if chunk.rows is None or not chunk.failed:
            return
        rows = replace(chunk.rows, failed=chunk.failed)
        for waits, made in ((False, rows.retry_rows), (True, rows.waiting_rows)):
            by_queue: dict[str, list[int]] = {}
            for at in decision.rows:
                failure = chunk.failed.get(at)
                if failure is not None and not failure.is_final and waits == (failure.waits_for is not None):
                    by_queue.setdefault(rows.queue(at), []).append(at)
            for queue, its in by_queue.items():
                to = self._routes.destinations.waiting(self._places.received(queue), self._routes.connected)
                yield to, made(its, self._places, now)

    def acknowledged(self, decision: Decision) -> Iterator[Rows]:
        now = datetime.now(UTC)
        rows = self.chunk.rows
        by_queue: dict[str, list[int]] = {}
        for at in decision.acknowledged:
            assert rows is not None
            by_queue.setdefault(rows.owed[at].queue, []).append(at)
        for queue, its in by_queue.items():
            made = acknowledgements([rows.owed[at].id for at in its], now)  # type: ignore[union-attr] # there is one
            yield from self._beside(queue, made, its, [ACKNOWLEDGED] * len(its))

    def _audited(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        """The copies of the messages that were processed."""
        rows, queue = self.chunk.rows, self._places.home.audit_queue
        processed = [at for at in decision.rows if at not in self.chunk.failed]
        if queue is None or rows is None or not processed or not self.chunk.handled:
            return
        made = rows.audit_rows(processed, self._places, now, set(decision.acknowledged))
        yield from self._beside(queue, made, processed, [AUDITED] * len(processed))

    def _beside(
        self, queue: str, rows: pa.RecordBatch, owners: Sequence[int], what: Sequence[str]
    ) -> Iterator[Rows]:
        """Rows for a queue that belongs to home. Where it lies elsewhere, they are stored at home first.

        :param owners: the received row of each, and ``what`` it is: by both it is known there.
        """
        place = self._places.beside(queue)
        if place.target == self._places.at_home:
            yield self._routes.destinations.beside(queue, self._routes.connected), rows
            return
        received = self.chunk.rows
        store = self._places.home.store_and_forward
        if store is None and (received is None or not received.as_received):
            raise ConfigurationError(
                f"The queue {queue!r} lies in another database, and nothing passes on what is written for "
                "it; name a queue of this database as storeAndForward, from which a store-and-forward job "
                "sends it on."
            )
        full = self._places.full_address(queue, place)
        stored: dict[str, list[tuple[int, str]]] = {}
        for number, (at, text) in enumerate(zip(owners, rows["headers"].to_pylist(), strict=True)):
            origin = self.origins[at] if received is None else received.origin(at).key
            added = {STORED_FOR: full, STORED: f"{origin}/{what[number]}"}
            to = store or received.queue(at)  # type: ignore[union-attr] # it was looked at
            stored.setdefault(to, []).append((number, changed_headers(text, set(added), added)))
        for to, its in stored.items():
            numbers, texts = zip(*its, strict=True)
            part = replaced(rows.take(pa.array(numbers, pa.int32())), headers=pa.array(texts, pa.string()))
            yield self._routes.destinations.received(to, self._routes.connected), part


def stores_at_home(places: Places, rows: Outcomes, owners: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """The queues in which messages of received rows are stored for another database, each with their rows."""
    if places.home.store_and_forward is not None:
        yield places.home.store_and_forward, list(owners)
        return
    by_queue: dict[str, list[int]] = {}
    for at in owners:
        by_queue.setdefault(rows.queue(at), []).append(at)
    yield from by_queue.items()
