"""The messages of a chunk: each has the id by which it is sent only once, the address that it goes to, and its row.

A message that cannot go there may fail. Then it goes to the error queue instead, and the outbox knows it by another key.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import OF_RETRY, Owed, by_queue
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.delayed_retry_headers import retry_headers
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import format_time, without_headers
from sqlqueue_spark.messages.outgoing import lasting, new_row_ids, replaced, waiting
from sqlqueue_spark.messages.parked import given_up_at, parked_headers
from sqlqueue_spark.send.column_values import Columns, among, grouped, in_order
from sqlqueue_spark.send.events import Events
from sqlqueue_spark.send.outbox_keys import OF_FAILED, keys
from sqlqueue_spark.send.sent import Sent

#: Stands in a key for the address of what cannot be sent anywhere.
_NOWHERE = ""


@dataclass(frozen=True, kw_only=True)
class FailedMessage:
    """A message of a chunk that failed.

    :param to: the address that it could not reach; None where it cannot be sent anywhere. Then all its copies fail as one.
    :param queue: the queue that it failed for, a full address, and ``endpoint``, whose queue that is.
    :param id: what it is known by where its headers do not say it.
    """

    failure: Failure
    to: str | None
    queue: str
    endpoint: str
    id: str

    def retry_headers(self, text: str | None, now: datetime, delay: timedelta) -> str:
        """The headers with which the message waits until it is tried again; ``text`` as for :meth:`headers`."""
        return retry_headers(text, queue=self.queue, row_id=self.id, now=now, due=now + delay)

    @property
    def is_final(self) -> bool:
        """Whether the message goes to an error queue: it is neither tried again later nor waits for a database."""
        return self.failure.retry_after is None and self.failure.waits_for is None

    def parked_headers(self, text: str | None, now: datetime) -> tuple[str, datetime]:
        """The headers with which the message waits for a database, and when it is given up; ``text`` as for :meth:`headers`."""
        latest = now + self.failure.give_up_after
        headers = parked_headers(
            text, row_id=self.id, database=self.failure.waits_for or "", give_up_at=format_time(latest)
        )
        return headers, given_up_at(headers) or latest

    def headers(self, text: str | None) -> str:
        """The headers with which the message goes to the error queue.

        :param text: the headers that it has.
        """
        return failed_headers(text, self.failure, queue=self.queue, endpoint=self.endpoint, row_id=self.id)


@dataclass(frozen=True, kw_only=True, eq=False)
class Composed:
    """The messages of a chunk.

    The rows are made only when they are asked for: in a batch that comes again most messages were sent before.

    :param id_column: the ids, and ``addresses`` where the messages go.
    :param make: makes the rows (:data:`OUTGOING`) of all messages, in their order.
    :param origins: what tells the received rows apart that the messages came as; None where they were not received.
    :param failed: those that have failed, by their positions; ``addresses`` has the error queue for them.
    :param delayed: whether some of them wait until they are due.
    :param owed: the acknowledgements that received messages ask for which ServiceControl has put back, by position.
    :param told: those of these messages that are acknowledged.
    :param received: ``Queue``, ``RowVersion`` and ``Id`` of the row that each message was received as; None where that is not known.
    :param events: which of them are published; they have no destination, but copies (:meth:`copied`) that have one.
    :param own_ids: whether the rows keep the Ids that ``make`` gives them; else copies get new ones.
    :param size: about how many bytes all of them have.
    :param sources: of each message the row of ``make`` that it is a copy of; None where each has a row of its own.
    :param copies: of each message whether it is a copy of an event; None where none is.
    :param echoes: those copies that are acknowledged by another copy of the same message.
    """

    id_column: pa.Array
    addresses: pa.Array
    make: Callable[[], pa.RecordBatch]
    origins: pa.Array | None = None
    failed: Mapping[int, FailedMessage] = field(default_factory=dict)
    delayed: bool = False
    owed: Mapping[int, Owed] = field(default_factory=dict)
    told: Collection[int] = ()
    received: pa.RecordBatch | None = None
    events: Events | None = None
    own_ids: bool = False
    size: int = 0
    sources: pa.Array | None = None
    echoes: Collection[int] = ()
    copies: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.id_column)

    @functools.cached_property
    def ids(self) -> Sequence[str]:
        return self.id_column.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def failing(self, failed: Mapping[int, FailedMessage], error_queue: str) -> Composed:
        """The same messages, of which these have failed too and go to the error queue."""
        addresses = pc.if_else(among(sorted(failed), len(self)), error_queue, self.addresses)
        return self._changed(addresses=addresses, failed={**failed, **self.failed})

    def acknowledging(self, told: Collection[int]) -> Composed:
        """The same messages, of which these are acknowledged: they lose the headers that asked for it."""
        return self._changed(told=told)

    def failing_once(
        self, failed: Mapping[int, FailedMessage], error_queue: str, failed_before: set[str]
    ) -> Composed:
        """The same messages, of which these have failed: but one of each origin, whatever copies its message was to have.

        :param failed_before: the origins that have failed already; those of these messages are added.
        """
        if not failed:
            return self
        again = set()
        for at in sorted(failed):
            origin = self.ids[at] if self.origins is None else self.origins[at].as_py()
            if origin in failed_before:
                again.add(at)
            failed_before.add(origin)
        whole = self.failing(failed, error_queue)
        return whole.only([at for at in range(len(self)) if at not in again]) if again else whole

    def only(self, kept: Sequence[int]) -> Composed:
        """The messages at these positions alone, which must be in ascending order."""
        its = pa.array(kept, pa.int32())
        return self._taken(
            its,
            addresses=self.addresses.take(its),
            events=None if self.events is None else self.events.take(its),
            echoes=frozenset(number for number, at in enumerate(kept) if at in self.echoes),
            copies=None if self.copies is None else self.copies.take(its),
        )

    def copied(
        self, sources: pa.Array, addresses: pa.Array, copies: pa.Array, *, keeps_ids: bool = False
    ) -> Composed:
        """Copies of messages, each to an address. Their rows are made once, and a copy's when it is asked for.

        :param sources: of each copy the position of its message.
        :param copies: which of them are copies of events; the others are messages that are sent.
        :param keeps_ids: whether the rows have the Ids of the messages' own rows, which no other copies may have.
        """
        first: dict[int, int] = {}
        positions = enumerate(sources.to_pylist() if self.owed else ())
        return self._taken(
            sources,
            addresses=addresses,
            events=None,
            own_ids=self.own_ids or keeps_ids,
            echoes=frozenset(number for number, at in positions if first.setdefault(at, number) != number),
            copies=copies,
        )

    def _taken(self, its: pa.Array, **changes: Any) -> Composed:
        """The messages at these positions, with these changes."""
        positions = its.to_pylist() if self.failed or self.owed else ()
        origins, received, sources = (
            None if each is None else each.take(its) for each in (self.origins, self.received, self.sources)
        )
        return self._changed(
            id_column=self.id_column.take(its),
            origins=origins,
            failed={number: self.failed[at] for number, at in enumerate(positions) if at in self.failed},
            owed={number: self.owed[at] for number, at in enumerate(positions) if at in self.owed},
            told=(),
            received=received,
            size=self.size * len(its) // max(1, len(self)),
            sources=its if sources is None else sources,
            **changes,
        )

    def _changed(self, **changes: Any) -> Composed:
        """The same messages but for these changes; the rows of which they are made are made once."""
        return replace(self, make=lambda: self._made, **changes)

    def source(self, position: int) -> int:
        """The row of which a message was made; a copy is made of its event's."""
        return position if self.sources is None else self.sources[position].as_py()

    def is_copy(self, position: int) -> bool:
        """Whether a message is the copy of an event for one who has subscribed."""
        return self.copies is not None and bool(self.copies[position].as_py())

    def typeless(self) -> list[int]:
        """The positions of events that have no type."""
        return [] if self.events is None else self.events.typeless()

    def keys(self, address: str, positions: Sequence[int], final: Callable[[str], str] = str) -> list[str]:
        """The outbox keys of the messages at these positions.

        :param address: the final address of all that have not failed.
        :param final: gives the final address of one that could not be reached.
        """
        made: list[str] = keys(self._of(self.id_column, positions), address).to_pylist()
        for to, its in self._failed_to(positions).items():
            error_keys = self._error_keys([*its.values()], _NOWHERE if to is None else final(to))
            for number, key in zip(its, error_keys, strict=True):
                made[number] = key
        return made

    def other_keys(
        self, address: str, positions: Sequence[int], final: Callable[[str], str]
    ) -> Iterator[tuple[str, str]]:
        """The keys that an outbox knows messages by if they went another way in an earlier try, each with the present key.

        A message that is sent may have failed before, and the other way round: somebody has created its destination, or dropped
        it, or changed what reads its headers. As :meth:`keys`.
        """
        own = self.keys(address, positions, final)
        yield from zip(self._error_keys(positions, address), own, strict=True)
        if self.origins is not None:
            yield from zip(self._error_keys(positions, _NOWHERE), own, strict=True)
        for to, its in self._failed_to(positions).items():
            if to is not None:
                sends = keys(self._of(self.id_column, [*its.values()]), final(to)).to_pylist()
                yield from ((key, own[number]) for number, key in zip(its, sends, strict=True))

    def acknowledged(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Those of these messages that are acknowledged, by the address of the queue that is told."""
        if not self.told:
            return {}
        its = set(positions).intersection(self.told).difference(self.failed, self.echoes)
        return by_queue(self.owed, sorted(its))

    def counted(self, placed: Iterable[Sequence[int]]) -> Sent:
        """How many of the messages at these positions are sent, and how many have failed."""
        together = list(itertools.chain.from_iterable(placed))
        failed = self.failures(together)
        delayed = pc.sum(waiting(self.rows(sorted(together)))).as_py() or 0 if self.delayed else 0
        return Sent(sent=len(together) - failed, failed=failed, delayed=delayed)

    def failures(self, positions: Iterable[int]) -> int:
        """How many of the messages at these positions have failed."""
        return sum(at in self.failed for at in positions) if self.failed else 0

    def _failed_to(self, positions: Sequence[int]) -> dict[str | None, dict[int, int]]:
        """Those of these positions that have failed, by the address that they could not reach, under their numbers among these."""
        found: dict[str | None, dict[int, int]] = {}
        for number, at in enumerate(positions if self.failed else ()):
            if at in self.failed:
                found.setdefault(self.failed[at].to, {})[number] = at
        return found

    def destinations(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Each address, with the positions of its messages in ascending order."""
        for address, positions in grouped(self.addresses):
            whole = len(positions) == len(self)
            yield address, range(len(self)) if whole else positions.to_pylist()

    def destination(self, position: int) -> str:
        """The address that a message goes to."""
        return self.addresses[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def rows(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows of the messages at these positions, which must be in ascending order."""
        return self._picked(positions) if not (self.failed or self.told) else self._of(self._rows, positions)

    @functools.cached_property
    def _made(self) -> pa.RecordBatch:
        """The rows that the messages are, or are copies of."""
        return self.make()

    def _picked(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows at these positions as they would be if no message had failed; a copy's row has an Id of its own."""
        if self.sources is None:
            return self._of(self._made, positions)
        sources = self._of(self.sources, positions)
        whole = len(sources) == self._made.num_rows and sources.equals(
            pa.array(range(len(sources)), pa.int32())
        )
        rows = self._made if whole else self._made.take(sources)
        return rows if self.own_ids else replaced(rows, id=new_row_ids(rows.num_rows))

    @functools.cached_property
    def _rows(self) -> pa.RecordBatch:
        rows = self._acknowledged
        if not self.failed:
            return rows
        wrong = among(sorted(self.failed), len(self))
        bad = rows.filter(wrong)
        told = (self.failed[at] for at in sorted(self.failed))
        headers = [each.headers(text) for text, each in zip(bad["headers"].to_pylist(), told, strict=True)]
        good = pc.invert(wrong)
        everywhere = pa.array(range(len(self)), pa.int32())
        return in_order(
            [everywhere.filter(good), everywhere.filter(wrong)],
            [rows.filter(good), lasting(headers, bad["body"])],
        )

    @property
    def _acknowledged(self) -> pa.RecordBatch:
        """The rows, of which those lose the headers of ServiceControl's retry that are acknowledged."""
        rows = self._picked(range(len(self)))
        told = [at for at in self.told if at not in self.failed]
        if not told:
            return rows
        headers = rows["headers"].to_pylist()
        for at in told:
            headers[at] = without_headers(headers[at], OF_RETRY)
        return replaced(rows, headers=pa.array(headers, pa.string()))

    def _of(self, columns: Columns, positions: Sequence[int]) -> Columns:
        """The rows at these positions, which are in ascending order."""
        return columns if len(positions) == len(self) else columns.take(pa.array(positions, pa.int32()))

    def _error_keys(self, positions: Sequence[int], address: str) -> list[str]:
        origins = self.id_column if self.origins is None else self.origins
        return keys(self._of(origins, positions), address, OF_FAILED).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
