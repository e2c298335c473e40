"""A chunk: messages that go out in one transaction in each database, and the received rows behind them."""

from __future__ import annotations

import bisect
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.outgoing import new_row_ids, replaced, waiting
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.row_set import portions
from sqlqueue_spark.send.compose.column_values import Columns, among, joined
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.events import Subscribers, addresses_of
from sqlqueue_spark.send.compose.received import Received
from sqlqueue_spark.tables.insert import CHUNK

#: Most bytes of a chunk. Memory holds a chunk three times while it is sent: as it came, as rows, and as the
#: statement's parameters.
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Composed:
    """The messages of a chunk.

    The rows are made only when they are asked for. On SQL Server the name of a database belongs to an address
    in a header, and it is known once the destination was reached.

    :param id_column: the ids, and ``addresses`` where the messages go.
    :param make: gives the rows (:data:`OUTGOING`) of all messages, in their order, made once.
    :param delayed: whether some of them wait until they are due.
    :param events: what those of them are published as that are events (:mod:`.events`). These have no
        destination, but copies (:meth:`copied`) that have one, which are events too.
    :param brought_ids: whether the frame gave some Ids of the rows, so that a twin may have written them.
    :param size: about how many bytes all of them have.
    :param sources: of each message the row of ``make`` that it is a copy of; None where each has a row of its
        own.
    :param untyped: how many lack a type that they need.
    """

    id_column: pa.Array
    addresses: pa.Array
    make: Callable[[], pa.RecordBatch]
    events: pa.Array
    delayed: bool = False
    brought_ids: bool = False
    size: int = 0
    sources: pa.Array | None = None
    untyped: int = 0

    def __len__(self) -> int:
        return len(self.id_column)

    @functools.cached_property
    def ids(self) -> Sequence[str]:
        return self.id_column.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def only(self, kept: Sequence[int]) -> Composed:
        """The messages at these positions alone, which must be in ascending order."""
        its = pa.array(kept, pa.int32())
        return self.copied(its, self.addresses.take(its))

    def copied(self, sources: pa.Array, addresses: pa.Array) -> Composed:
        """Copies of messages, each to an address. A copy's row is made when it is asked for.

        :param sources: of each copy the position of its message.
        """
        return replace(
            self,
            id_column=self.id_column.take(sources),
            addresses=addresses,
            events=self.events.take(sources),
            size=self.size * len(sources) // max(1, len(self)),
            sources=sources if self.sources is None else self.sources.take(sources),
        )

    def is_event(self, position: int) -> bool:
        """Whether a message is an event, or the copy of one for one who has subscribed."""
        return self.events[position].is_valid  # type: ignore[no-any-return] # pyarrow has no types

    def delays(self, positions: Sequence[int]) -> int:
        """How many of the messages at these positions wait until they are due."""
        return (pc.sum(waiting(self.rows(sorted(positions)))).as_py() or 0) if self.delayed else 0

    def rows(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows of the messages at these positions, which must be in ascending order.

        A copy's row has an Id of its own, unless the frame brought one.
        """
        if self.sources is None:
            return self.of(self.make(), positions)
        rows = self.make().take(self.of(self.sources, positions))
        return rows if self.brought_ids else replaced(rows, id=new_row_ids(rows.num_rows))

    def of(self, columns: Columns, positions: Sequence[int]) -> Columns:
        """What stands at these positions of columns of the messages, which are in ascending order."""
        return columns if len(positions) == len(self) else columns.take(pa.array(positions, pa.int32()))


@functools.cache
def nothing() -> Composed:
    """No messages. Made when first asked for, because the first array of Arrow imports pandas."""
    empty = pa.array([], pa.string())
    make = functools.partial(pa.RecordBatch.from_pylist, [], OUTGOING)
    return Composed(id_column=empty, addresses=empty, make=make, events=empty)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Messages, each sent by a row.

    :param places: what reads the addresses that they go to.
    :param rows: the received rows that send them; None for plain messages, of which each is a row by itself.
    :param owners: of each message the position of its row, in ascending order.
    :param failed: the rows that have failed, by their positions. Nothing of what they send goes out.
    """

    places: Places
    sends: Composed
    rows: Received | None = None
    owners: Sequence[int]
    failed: Mapping[int, Failure] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.owners) if self.rows is None else len(self.rows)

    @property
    def handled(self) -> bool:
        return self.rows is not None and self.rows.handled

    def messages_of(self, row: int) -> range:
        """The positions of the messages that a row sends."""
        return self.messages_within(range(row, row + 1))

    def messages_within(self, rows: range) -> range:
        """The positions of the messages that these rows send."""
        first = bisect.bisect_left(self.owners, rows.start)
        return range(first, bisect.bisect_left(self.owners, rows.stop, first))

    def failing(self, failures: Mapping[int, Failure]) -> Self:
        """The same chunk, but these rows have failed too."""
        return replace(self, failed={**failures, **self.failed})

    def with_copies(self, subscribers: Subscribers, written: int) -> tuple[Sequence[Self], int]:
        """The chunk with copies in the place of its events, and how many events have no subscriber.

        Each table that has subscribed gets a copy, with the same message id. The chunk is cut between rows:
        each part has at most as many copies as a transaction should, and all that a received row sends stays
        together. A copy of a plain message is a row by itself. Then copies for one table stand together.

        :param written: the most rows that one statement writes.
        """
        sends, events = self.sends, self.sends.events
        if events.null_count == len(events):
            return [self], 0
        if self.rows is None:
            events = pc.if_else(among(list(self.failed), len(events)), pa.scalar(None, events.type), events)
        to, unsubscribed = addresses_of(events, subscribers)
        fail_points.step(fail_points.SUBSCRIBERS_FOUND)
        whole = self._copied(events, to)
        most = max(1, min(CHUNK, written, CHUNK_BYTES * len(sends) // max(1, sends.size)))
        parts = list(portions(range(len(whole)), Counter(whole.owners).__getitem__, len(whole), most))
        cut = [whole] if len(parts) <= 1 else [whole.only(range(its[0], its[-1] + 1)) for its in parts]
        return cut, unsubscribed

    def _copied(self, events: pa.Array, to: Mapping[str, Sequence[int]]) -> Self:
        """The chunk, which sends these events to these addresses, and its other messages as before."""
        sends = self.sends
        others = pc.indices_nonzero(events.is_null()).cast(pa.int32())
        sources = pa.concat_arrays([others, *(pa.array(its, pa.int32()) for its in to.values())])
        there = [pa.repeat(pa.scalar(address, pa.string()), len(its)) for address, its in to.items()]
        addresses = pa.concat_arrays([sends.addresses.take(others), *there])
        if self.rows is None:
            numbered = enumerate(sources.to_pylist()) if self.failed else ()
            failed = {number: self.failed[at] for number, at in numbered if at in self.failed}
            copies = sends.copied(sources, addresses)
            return replace(self, sends=copies, owners=range(len(sources)), failed=failed)
        order = pc.sort_indices(sources)
        sources, addresses = sources.take(order), addresses.take(order)
        owners = [self.owners[at] for at in sources.to_pylist()]
        return replace(self, sends=sends.copied(sources, addresses), owners=owners)

    def halves(self) -> tuple[Self, Self]:
        """The first half of the rows and the second, each with what it sends."""
        middle = len(self) // 2
        return self.only(range(middle)), self.only(range(middle, len(self)))

    def only(self, kept: range) -> Self:
        """The rows at these positions alone, and what they send."""
        messages = self.messages_within(kept)
        return replace(
            self,
            sends=self.sends.only(messages),
            rows=None if self.rows is None else self.rows.only(kept),
            owners=[self.owners[at] - kept.start for at in messages],
            failed={at - kept.start: each for at, each in self.failed.items() if at in kept},
        )


def chunks(
    batches: Iterable[pa.RecordBatch],
    rows: int = CHUNK,
    messages: Callable[[pa.RecordBatch], Sequence[int]] = lambda batch: range(1, batch.num_rows + 1),
) -> Iterator[pa.RecordBatch]:
    """Cut rows into chunks in their order: at most 4,000 messages and 16 MB each, but at least one row.

    :param messages: gives, for each row of a batch, how many messages the batch's rows make up to this one. A
        row is a message.
    :param rows: the most rows that one statement takes. Where it is less than 4,000 it limits the chunk, so
        that a transaction never adds ids by two statements. The second statement could add ids out of order,
        and then the transaction and its twin could wait for each other.
    """
    most = min(CHUNK, rows)
    chunk: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        counts = messages(batch)
        start = 0
        while start < batch.num_rows:
            counted = counts[start - 1] if start else 0
            few = bisect.bisect_right(counts, counted + most - count, start) - start
            fit = _within(batch.slice(start, few), CHUNK_BYTES - size)
            if taken := fit if chunk else max(1, fit):
                chunk.append(batch.slice(start, taken))
                count += counts[start + taken - 1] - counted
                size += chunk[-1].nbytes
                start += taken
            if count >= most or start < batch.num_rows:
                yield joined(chunk)
                chunk, count, size = [], 0, 0
    if chunk:
        yield joined(chunk)


def _within(batch: pa.RecordBatch, most: int) -> int:
    """How many rows at the begin of a batch have at most this number of bytes."""
    return bisect.bisect_right(range(batch.num_rows), most, key=lambda row: batch.slice(0, row + 1).nbytes)
