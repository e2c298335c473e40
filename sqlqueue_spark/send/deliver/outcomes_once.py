"""What a chunk writes in the database of its received rows, decided by the keys that its outbox has.

A chunk that is tried again writes only what is missing. The same decision serves an outbox that is asked
first, one that is asked last, a stage, and a sink without an outbox, for which no key is known.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import poison
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.column_values import grouped, in_order, mapped_once
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.destination_tables import Destination, Rows
from sqlqueue_spark.send.deliver.error_and_audit_rows import ErrorAndAuditRows
from sqlqueue_spark.send.deliver.sends_once import SendsOnce, keys_of
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.allowed_destinations import Barred
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import (
    OF_ACKNOWLEDGED,
    OF_FAILED,
    OF_HANDLED,
    OF_ORIGIN,
    keys,
    mark_of_outcomes,
)
from sqlqueue_spark.tables.queue_table import QueueTable

log = logger(__name__)


class OutcomesOnce(SendsOnce):
    """What a chunk writes in the database in which its rows were received, or in the sink's own one."""

    def __init__(self, routes: Routes, chunk: AddressedChunk) -> None:
        self._places = routes.places
        here = [each for each in chunk.addressed if each.target == self._places.at_home]
        super().__init__(routes, chunk, self._places.at_home, here)

    def find_tables(self) -> None:
        """Find all tables that may be written, before the transaction: a look for one needs its own.

        A row that is to be tried again goes to the error queue at once where its queue has no table for that,
        or its headers as they were received cannot be read.

        :raises QueueError: another of these tables is missing.
        """
        rows, routes = self.chunk.rows, self.routes
        if rows is not None:
            waiting = {at: each for at, each in self.chunk.failed.items() if not each.is_final}
            lacking = set(filter(self._lacks_waiting, {rows.queue(at) for at in waiting}))
            final = {}
            for at, each in waiting.items():
                # A transform may have mended headers that cannot be read. What waits must say where it goes.
                readable = parse_headers(rows.texts[at]) is not None
                if not readable and each.waits_for is not None:
                    final[at] = poison(rows.texts[at])
                elif not readable or rows.queue(at) in lacking:
                    final[at] = replace(each, retry_after=None, waits_for=None)
            self.chunk = replace(self.chunk, failed={**self.chunk.failed, **final})
        home = self._places.home
        beside = {home.error_queue, *(each.error_queue for each in self.chunk.failed.values())}
        beside |= {home.audit_queue} if self.chunk.handled else set()
        for queue in filter(None, beside):
            routes.beside(queue)
        if home.store_and_forward is not None:
            routes.received(home.store_and_forward)

    def _named(self) -> Iterator[QueueTable]:
        yield from super()._named()
        told = (to for to in self.chunk.told.values() if isinstance(to, Destination))
        yield from (to.table for to in told if not to.chosen)

    def trusted(self) -> Sequence[QueueTable]:
        error_queue = self._places.home.error_queue
        found = None if error_queue is None else self.routes.beside(error_queue)
        return [] if found is None else [found.table]

    def _lacks_waiting(self, queue: str) -> bool:
        """Whether a queue has no table in which its messages wait."""
        try:
            self.routes.waiting(self._places.received(queue))
        except QueueError as error:
            log.warning(
                "no_delayed_table queue=%s: its messages go to the error queue at once: %s", queue, error
            )
            return True
        return False

    @cached_property
    def _owing(self) -> Collection[int]:
        rows = self.chunk.rows
        return () if rows is None else {at for at in rows.owed if at in self.chunk.told}

    @cached_property
    def _plain(self) -> bool:
        """Whether nothing but sends is written, as nearly always."""
        chunk = self.chunk
        return not (chunk.failed or chunk.refused or chunk.known or chunk.sent or self._owing)

    def has_nothing(self) -> bool:
        """Whether nothing is to be written: all went to another database."""
        chunk = self.chunk
        return not (chunk.handled or self.positions or chunk.failed or chunk.refused or self._owing)

    @cached_property
    def origins(self) -> Sequence[str]:
        """The key of the outcome of each row."""
        if (rows := self.chunk.rows) is not None:
            whole = keys(self._of_their_queues(rows.origin_texts), "", OF_ORIGIN)
            return whole.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
        return [self.failures[at] for at in range(len(self.chunk))]

    @cached_property
    def acknowledgements(self) -> Mapping[int, str]:
        """Keys of acknowledgements of rows that are passed on: other copies may stand in another chunk."""
        if not (owing := sorted(self._owing)):
            return {}
        made = keys(self._firsts.take(pa.array(owing, pa.int32())), "", OF_ACKNOWLEDGED)
        return dict(zip(owing, made.to_pylist(), strict=True))

    @cached_property
    def failures(self) -> Mapping[int, str]:
        """The keys of messages that fail alone: plain ones, and copies of rows that are passed on.

        Other copies of a row may stand in another chunk, so its origin cannot say it.
        """
        return {} if self.chunk.handled else self._failures(self._firsts)

    def _failures(self, firsts: pa.Array) -> Mapping[int, str]:
        """The keys by what the rows are known as."""
        ids = firsts.take(pa.array(self.chunk.owners, pa.int32()))
        return keys_of(self.chunk, self.chunk.addressed, ids, OF_FAILED)

    @cached_property
    def _firsts(self) -> pa.Array:
        """What each row was first known as; a plain message is known by its id."""
        rows = self.chunk.rows
        return self.chunk.sends.id_column if rows is None else self._of_their_queues(rows.first_texts)

    def _of_their_queues(self, texts: pa.Array) -> pa.Array:
        """The texts of the received rows, each with its queue: a row of another one may have the same text.

        Not with the queue's name, which may change between two tries.
        """
        assert self.chunk.rows is not None
        digits = mapped_once(lambda queue: self._received(queue).digits, self.chunk.rows.frame["Queue"])
        return pc.binary_join_element_wise(texts, digits, "-")

    @cached_property
    def ids(self) -> Sequence[str]:
        """The key of the message id of each handled row."""
        rows = self.chunk.rows
        assert rows is not None
        made = [
            (its, keys(rows.frame["MessageId"].take(its), self._received(queue).address, OF_HANDLED))
            for queue, its in grouped(rows.frame["Queue"])
        ]
        together = in_order(*zip(*made, strict=True))
        return together.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def _received(self, queue: str) -> QueueTable:
        return self.routes.received(queue).table

    def had_outcomes(self, outbox: OutboxTable) -> set[str]:
        """The keys of the outcomes that rows and messages have already."""
        if not outbox.has_outcomes() and not self._earlier:  # as nearly always: no keys need even be made
            return set()
        return self.known(outbox, [*self.origins, *self.failures.values()])

    def asked(self, outbox: OutboxTable) -> Iterable[str]:
        yield from self.keys.values()
        if self.chunk.handled:
            yield from self.ids
        if self.chunk.rows is not None and (self.chunk.handled or not self._plain or outbox.has_outcomes()):
            yield from self.origins
            yield from self.failures.values()
            yield from self.acknowledgements.values()
        elif self.chunk.rows is None and self.chunk.failed:
            yield from (self.origins[at] for at in self.chunk.failed)

    def earlier_origins(self) -> dict[str, str]:
        rows = self.chunk.rows
        found: dict[str, str] = {}
        if rows is None:
            return {key: self.keys[at] for at, key in enumerate(self.origins) if at in self.keys}
        for queue, its in grouped(rows.frame["Queue"]):
            texts, final = rows.origin_texts.take(its), self._received(queue).address
            positions = its.to_pylist()
            for made in (keys(texts, final, OF_ORIGIN), keys(texts, "", OF_FAILED)):
                found |= dict(zip(made.to_pylist(), (self.origins[at] for at in positions), strict=True))
        for at, failed in () if self.chunk.handled else self._failures(rows.first_texts).items():
            owner = self.chunk.owners[at]
            if len(self.chunk.messages_of(owner)) == 1:
                found[failed] = self.origins[owner]
        return found

    def decide(self, known: Collection[str]) -> Decision:
        chunk, rows = self.chunk, list(range(len(self.chunk)))
        if not known and self.has_nothing() and not chunk.known:
            return Decision(rows=rows, repeated=sum(not new for new in chunk.sent.values()))
        keeps_equal = chunk.handled or (self.routes.atomic and self.keys)
        if self._plain and not keeps_equal and (not known or set(known) <= set(self.keys.values())):
            made = super().decide(known)
            return replace(made, rows=rows, repeated=len(self.positions) - len(made.messages))
        made = Decision()
        decide_row = self._handled_row if chunk.handled else self._passed_row
        asks = chunk.rows is not None or bool(chunk.failed)
        for row in rows:
            if row in chunk.known or (asks and self.origins[row] in known):  # it has had its outcome
                made.repeated += 1 if chunk.handled else max(1, len(chunk.messages_of(row)))
            else:
                decide_row(row, known, made)
        outcomes = (*self.origins, *self.failures.values())
        if (added := next((key for key in outcomes if key in made.keys), None)) is not None:
            made.keys.add(mark_of_outcomes(added))
        return made

    def _handled_row(self, row: int, known: Collection[str], made: Decision) -> None:
        """For a row that is handled. One whose id is known, or comes twice, was handled as another row."""
        chunk, id_ = self.chunk, self.ids[row]
        made.keys.add(self.origins[row])
        before, sound = id_ in known or id_ in made.keys, row not in chunk.failed
        if before:
            made.repeated += 1
        else:
            made.rows.append(row)
        if sound and not before:
            made.keys.add(id_)
            for at in chunk.messages_of(row):
                (made.copies if at in chunk.refused else made.messages).append(at)
        if row in self._owing and (sound or before):
            made.acknowledged.append(row)

    def _passed_row(self, row: int, known: Collection[str], made: Decision) -> None:
        """For a row that is passed on, or a plain message."""
        chunk = self.chunk
        its, failure = chunk.messages_of(row), chunk.failed.get(row)
        went = [at for at in its if self._went(at, known, made)]
        if failure is None:
            made.rows.append(row)
        if failure is None or (failure.is_final and its and len(went) == len(its)):
            self._sound_row(row, known, made)
            return
        made.rows.append(row)
        made.repeated += sum(not chunk.sent.get(at, False) for at in went)
        here = [self.keys[at] for at in its if at in self.keys and at not in went]
        if chunk.rows is not None or not here:
            made.keys.add(self.origins[row])
        elif failure.is_final:
            made.keys.update(here)

    def _went(self, message: int, known: Collection[str], made: Decision) -> bool:
        """Whether a message went out before, or an equal one of the chunk goes or has failed for both.

        A stage adds no keys, and so keeps equal messages.
        """
        key = self.keys.get(message)
        return message in self.chunk.sent or key in known or (key in made.keys and not self.routes.atomic)

    def _sound_row(self, row: int, known: Collection[str], made: Decision) -> None:
        """What a row sends that has not failed, or was sent before it failed."""
        chunk = self.chunk
        for at in chunk.messages_of(row):
            key = self.keys.get(at)
            if self._went(at, known, made):
                made.repeated += not chunk.sent.get(at, False)
            elif (known and chunk.rows is not None and self.failures[at] in known) or (
                at in chunk.refused and self.failures[at] in made.keys
            ):
                made.repeated += 1
            elif at in chunk.refused:
                made.copies.append(at)
                made.keys.add(self.failures[at])
            else:
                made.messages.append(at)
                made.keys.update(() if key is None else (key,))
        if row in self._owing and self.acknowledgements[row] not in known:
            made.acknowledged.append(row)
            made.keys.add(self.acknowledgements[row])

    def beside(self, decision: Decision) -> list[Rows]:
        return self._rows_beside.rows(decision)

    def acknowledged(self, decision: Decision, barred: Barred) -> Iterable[Rows]:
        for to, rows in self._rows_beside.acknowledged(decision):
            if why := barred.get(to.table.address):
                log.warning("not_acknowledged queue=%s: %s", to.table.name, why)
            else:
                yield to, rows

    @property
    def _rows_beside(self) -> ErrorAndAuditRows:
        return ErrorAndAuditRows(self.routes, self.chunk, lambda row: self.origins[row])

    def counted(self, decision: Decision) -> Sent:
        """What has become of the chunk, also in other databases."""
        chunk = self.chunk
        kinds = [chunk.failed[at] for at in decision.rows if at in chunk.failed] if chunk.failed else []
        processed = len(decision.rows) - len(kinds)
        sent = [*decision.messages, *(at for at, new in chunk.sent.items() if new)]
        return Sent(
            sent=len(sent),
            repeated=decision.repeated,
            handled=processed if chunk.handled else 0,
            failed=sum(each.is_final for each in kinds) + len(decision.copies),
            retried=sum(each.retry_after is not None for each in kinds),
            waiting=sum(each.waits_for is not None for each in kinds),
            delayed=chunk.sends.delays(sent),
            acknowledged=len(decision.acknowledged),
            audited=processed if chunk.handled and self._places.home.audit_queue is not None else 0,
        )
