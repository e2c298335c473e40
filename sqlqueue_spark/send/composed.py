"""The messages of a chunk: each has the id by which it is sent only once, the address that it goes to, and its row.

A message that cannot go there may fail. Then it goes to the error queue instead, and the outbox knows it by another key.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import OF_RETRY, Owed, by_queue
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.delayed_retry_headers import retry_headers
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import format_time, without_headers
from sqlqueue_spark.messages.outgoing import lasting, new_row_ids, replaced, waiting
from sqlqueue_spark.messages.parked import given_up_at, parked_headers
from sqlqueue_spark.send.events import Events
from sqlqueue_spark.send.outbox_keys import error_keys, keys
from sqlqueue_spark.send.sent import Sent

#: Stands in a key for the address of what cannot be sent anywhere.
_NOWHERE = ""

_Columns = TypeVar("_Columns", pa.Array, pa.RecordBatch)


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


class Composed:
    """The messages of a chunk.

    The rows are made only when somebody asks for them: in a batch that comes again most messages were sent before.
    """

    def __init__(
        self,
        ids: pa.Array,
        destinations: pa.Array,
        make: Callable[[], pa.RecordBatch],
        *,
        origins: pa.Array | None = None,
        failed: Mapping[int, FailedMessage] | None = None,
        delayed: bool = False,
        owed: Mapping[int, Owed] | None = None,
        told: Collection[int] = (),
        received: pa.RecordBatch | None = None,
        events: Events | None = None,
        own_ids: bool = False,
        size: int = 0,
        sources: pa.Array | None = None,
        echoes: Collection[int] = (),
        copies: pa.Array | None = None,
    ) -> None:
        """:param make: makes the rows (:data:`OUTGOING`) of all messages, in their order.
        :param origins: what tells the received rows apart that the messages came as; None where they were not received.
        :param failed: those that have failed, by their positions; ``destinations`` has the error queue for them.
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
        self._ids = ids
        self._destinations = destinations
        self._make = make
        self._origins = origins
        self.failed = failed or {}
        self.delayed = delayed
        self.owed = owed or {}
        self._told = told
        self.received = received
        self.events = events
        self._own_ids = own_ids
        self.size = size
        self._sources = sources
        self._echoes = echoes
        self._copies = copies

    def __len__(self) -> int:
        return len(self._ids)

    @functools.cached_property
    def ids(self) -> Sequence[str]:
        return self._ids.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def failing(self, failed: Mapping[int, FailedMessage], error_queue: str) -> Composed:
        """The same messages, of which these have failed too and go to the error queue."""
        positions = sorted(failed)
        destinations = pc.if_else(_among(positions, len(self)), error_queue, self._destinations)
        return self._changed(destinations=destinations, failed={**failed, **self.failed})

    def acknowledging(self, told: Collection[int]) -> Composed:
        """The same messages, of which these are acknowledged: they lose the headers that asked for it."""
        return self._changed(told=told)

    def _changed(
        self,
        *,
        destinations: pa.Array | None = None,
        failed: Mapping[int, FailedMessage] | None = None,
        told: Collection[int] | None = None,
    ) -> Composed:
        return Composed(
            self._ids,
            self._destinations if destinations is None else destinations,
            lambda: self._made,
            origins=self._origins,
            failed=self.failed if failed is None else failed,
            delayed=self.delayed,
            owed=self.owed,
            told=self._told if told is None else told,
            received=self.received,
            events=self.events,
            own_ids=self._own_ids,
            size=self.size,
            sources=self._sources,
            echoes=self._echoes,
            copies=self._copies,
        )

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
            origin = self.ids[at] if self._origins is None else self._origins[at].as_py()
            if origin in failed_before:
                again.add(at)
            failed_before.add(origin)
        whole = self.failing(failed, error_queue)
        return whole.only([at for at in range(len(self)) if at not in again]) if again else whole

    def only(self, kept: Sequence[int]) -> Composed:
        """The messages at these positions alone, which must be in ascending order."""
        its = pa.array(kept, pa.int32())
        return Composed(
            self._ids.take(its),
            self._destinations.take(its),
            lambda: self._made,
            origins=None if self._origins is None else self._origins.take(its),
            failed={number: self.failed[at] for number, at in enumerate(kept) if at in self.failed},
            delayed=self.delayed,
            owed={number: self.owed[at] for number, at in enumerate(kept) if at in self.owed},
            received=None if self.received is None else self.received.take(its),
            events=None if self.events is None else self.events.take(its),
            own_ids=self._own_ids,
            size=self.size * len(kept) // max(1, len(self)),
            sources=its if self._sources is None else self._sources.take(its),
            echoes=frozenset(number for number, at in enumerate(kept) if at in self._echoes),
            copies=None if self._copies is None else self._copies.take(its),
        )

    def copied(
        self, sources: pa.Array, destinations: pa.Array, copies: pa.Array, *, keeps_ids: bool = False
    ) -> Composed:
        """Copies of messages, each to a destination. Their rows are made once, and a copy's when somebody asks for it.

        :param sources: of each copy the position of its message.
        :param copies: which of them are copies of events; the others are messages that are sent.
        :param keeps_ids: whether the rows have the Ids of the messages' own rows, which no other copies may have.
        """
        positions = sources.to_pylist() if self.failed or self.owed else ()
        first: dict[int, int] = {}
        return Composed(
            self._ids.take(sources),
            destinations,
            lambda: self._made,
            origins=None if self._origins is None else self._origins.take(sources),
            failed={number: self.failed[at] for number, at in enumerate(positions) if at in self.failed},
            delayed=self.delayed,
            owed={number: self.owed[at] for number, at in enumerate(positions) if at in self.owed},
            own_ids=self._own_ids or keeps_ids,
            size=self.size * len(sources) // max(1, len(self)),
            sources=sources if self._sources is None else self._sources.take(sources),
            echoes=frozenset(
                number for number, at in enumerate(positions) if first.setdefault(at, number) != number
            ),
            copies=copies,
            received=None if self.received is None else self.received.take(sources),
        )

    def source(self, position: int) -> int:
        """The row of which a message was made; a copy is made of its event's."""
        return position if self._sources is None else self._sources[position].as_py()

    def is_copy(self, position: int) -> bool:
        """Whether a message is the copy of an event for one who has subscribed."""
        return self._copies is not None and bool(self._copies[position].as_py())

    def addresses(self, positions: pa.Array) -> pa.Array:
        """The addresses that the messages at these positions go to."""
        return self._destinations.take(positions)

    def typeless(self) -> list[int]:
        """The positions of events that have no type."""
        return [] if self.events is None else self.events.typeless()

    def keys(self, address: str, positions: Sequence[int], final: Callable[[str], str] = str) -> list[str]:
        """The outbox keys of the messages at these positions.

        :param address: the final address of all that have not failed.
        :param final: gives the final address of one that could not be reached.
        """
        made: list[str] = keys(self._of(self._ids, positions), address).to_pylist()
        numbers = {at: number for number, at in self._failed_of(positions)}
        for to, its in self._by_address(numbers).items():
            where = _NOWHERE if to is None else final(to)
            for at, key in zip(its, self._error_keys(its, where), strict=True):
                made[numbers[at]] = key
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
        if self._origins is not None:
            yield from zip(self._error_keys(positions, _NOWHERE), own, strict=True)
        numbers = {at: number for number, at in self._failed_of(positions)}
        for to, its in self._by_address(numbers).items():
            if to is not None:
                sends = keys(self._of(self._ids, its), final(to)).to_pylist()
                yield from ((key, own[numbers[at]]) for at, key in zip(its, sends, strict=True))

    def acknowledged(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Those of these messages that are acknowledged, by the address of the queue that is told."""
        if not self._told:
            return {}
        its = set(positions).intersection(self._told).difference(self.failed, self._echoes)
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

    def _by_address(self, failed: Iterable[int]) -> dict[str | None, list[int]]:
        """These positions of failed messages by the address that they could not reach."""
        found: dict[str | None, list[int]] = {}
        for at in failed:
            found.setdefault(self.failed[at].to, []).append(at)
        return found

    def destinations(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Each address, with the positions of its messages in ascending order."""
        addresses = pc.unique(self._destinations).to_pylist()
        if len(addresses) == 1:
            yield addresses[0], range(len(self))
            return
        for address in addresses:
            yield address, pc.indices_nonzero(pc.equal(self._destinations, address)).to_pylist()

    def destination(self, position: int) -> str:
        """The address that a message goes to."""
        return self._destinations[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def rows(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows of the messages at these positions, which must be in ascending order."""
        return self._picked(positions) if not (self.failed or self._told) else self._of(self._rows, positions)

    @functools.cached_property
    def _made(self) -> pa.RecordBatch:
        """The rows that the messages are, or are copies of."""
        return self._make()

    def _picked(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows at these positions as they would be if no message had failed; a copy's row has an Id of its own."""
        if self._sources is None:
            return self._of(self._made, positions)
        sources = self._of(self._sources, positions)
        whole = len(sources) == self._made.num_rows and sources.equals(
            pa.array(range(len(sources)), pa.int32())
        )
        rows = self._made if whole else self._made.take(sources)
        return rows if self._own_ids else replaced(rows, id=new_row_ids(rows.num_rows))

    @functools.cached_property
    def _rows(self) -> pa.RecordBatch:
        rows = self._acknowledged
        if not self.failed:
            return rows
        wrong = _among(sorted(self.failed), len(self))
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
        told = [at for at in self._told if at not in self.failed]
        if not told:
            return rows
        headers = rows["headers"].to_pylist()
        for at in told:
            headers[at] = without_headers(headers[at], OF_RETRY)
        return replaced(rows, headers=pa.array(headers, pa.string()))

    def _of(self, columns: _Columns, positions: Sequence[int]) -> _Columns:
        """The rows at these positions, which are in ascending order."""
        return columns if len(positions) == len(self) else columns.take(pa.array(positions, pa.int32()))

    def _failed_of(self, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Which of these positions have failed, each behind its number among them."""
        return (
            (number, at) for number, at in enumerate(positions if self.failed else ()) if at in self.failed
        )

    def _error_keys(self, positions: Sequence[int], address: str) -> list[str]:
        origins = self._ids if self._origins is None else self._origins
        return error_keys(self._of(origins, positions), address).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types


def in_order(positions: Sequence[pa.Array], parts: Sequence[_Columns]) -> _Columns:
    """Put parts together in the order of the rows.

    :param positions: of each part, the positions of its rows, in ascending order.
    """
    if len(parts) == 1:
        return parts[0]
    order = pc.sort_indices(pa.concat_arrays(positions))
    together = pa.concat_batches if isinstance(parts[0], pa.RecordBatch) else pa.concat_arrays
    return together(parts).take(order)


def _among(positions: Sequence[int], count: int) -> pa.Array:
    """For each of so many positions, whether it is one of these."""
    return pc.is_in(pa.array(range(count), pa.int32()), value_set=pa.array(positions, pa.int32()))
