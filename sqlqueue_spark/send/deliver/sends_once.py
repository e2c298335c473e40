"""What a chunk writes in one database: messages that the outbox there knows by their sends."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.acknowledgement import OF_RETRY
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.header_json import changed_headers, parse_headers, without_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, STORED, STORED_FOR
from sqlqueue_spark.messages.outgoing import replaced, waiting
from sqlqueue_spark.send.compose.database_of_address import Place
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.destination_tables import Destination, Rows
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed, Routes
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations, Barred
from sqlqueue_spark.tables.outbox_keys import earlier_keys, keys
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.refused_messages import Why


class RolledBack(SqlQueueError):
    """The transaction of a chunk is rolled back, because tables refuse some of its messages."""

    def __init__(self, refused: Sequence[Why[int]]) -> None:
        super().__init__("; ".join(str(error) for _, error in refused))
        self.refused = refused


def send_keys(chunk: AddressedChunk, addressed: Iterable[Addressed]) -> dict[int, str]:
    """The key of each of these messages, by position."""
    ids = chunk.sends.id_column
    if chunk.rows is not None and chunk.rows.stored:  # what we have stored is known by what its row says
        told = [chunk.rows.stored.get(owner) for owner in chunk.owners]
        ids = pc.coalesce(pa.array(told, pa.string()), ids)
    return keys_of(chunk, addressed, ids)


def keys_of(
    chunk: AddressedChunk, addressed: Iterable[Addressed], ids: pa.Array, what: str = ""
) -> dict[int, str]:
    """The key of each of these messages, by position, as :func:`keys` makes it.

    :param ids: what each message of the chunk is known by, beside its address.
    """
    found: dict[int, str] = {}
    for each in addressed:
        made = keys(chunk.sends.of(ids, each.positions), each.known_as, what)
        found.update(zip(each.positions, made.to_pylist(), strict=True))
    return found


class SendsOnce:
    """The messages of a chunk for another database than that of its rows."""

    def __init__(self, routes: Routes, chunk: AddressedChunk, addressed: Sequence[Addressed]) -> None:
        self.routes = routes
        self.chunk = chunk
        self.addressed = addressed
        self.positions = [at for each in addressed for at in each.positions]
        # What handled rows send is known by their outcomes; where no outbox is, nothing is known.
        self.keys = {} if chunk.handled or not routes.remembers else send_keys(chunk, addressed)

    def asked(self) -> Iterable[str]:
        """The keys for which the outbox is asked."""
        return self.keys.values()

    def earlier_sends(self, own: str | None) -> Mapping[str, str]:
        """The keys by which version 0.1.0 may have known messages, each with the present key.

        :param own: the name of the table of the option ``queue``.
        """
        ids = self.chunk.sends.ids
        return {
            earlier: self.keys[at]
            for each in self.addressed
            if each.to is not None
            for at in each.positions
            for earlier in earlier_keys(ids[at], each.to.table.name, own=each.to.table.name == own)
        }

    def earlier_origins(self) -> Mapping[str, str]:
        """The keys by which version 0.2.0 may have known outcomes, each with the present key."""
        return {}

    def entered(self, connection: Connection, *, locking: bool = True) -> AbstractContextManager[Barred]:
        """Gives which tables may not be reached that a message names (:class:`AllowedDestinations`)."""
        options = self.routes.places.at(connection.target)
        allowed = AllowedDestinations(options, tuple(self.trusted()))
        return allowed.entered(connection, list(self._named()), locking=locking)

    def check_allowed(self, decision: Decision, barred: Barred) -> None:
        """Raise :class:`RolledBack` where there are messages for tables that may not be reached."""
        if not barred:
            return
        reached = [(each.to.table.address, its) for each, its in self.messages(decision) if each.to]
        if why := [(its, barred[address]) for address, its in reached if address in barred]:
            raise RolledBack(why)

    def _named(self) -> Iterator[QueueTable]:
        """The tables into which this writes because a message names them, and no option of ours."""
        return (each.to.table for each in self.addressed if each.to is not None and not each.to.chosen)

    def trusted(self) -> Sequence[QueueTable]:
        """The error queue, if it lies in this database."""
        return ()

    def decide(self, known: Collection[str]) -> Decision:
        """What is to be written where the outbox knows these keys.

        :raises RolledBack: a table cannot be reached, and messages for it were not sent before either.
        """
        lost: list[Why[int]] = []
        left: list[int] = []
        for each in self.addressed:
            its = [at for at in each.positions if self.keys[at] not in known] if known else each.positions
            if each.to is None and its:
                assert each.error is not None, "nothing is sent to a database that is down"
                lost.append((its, each.error))
            left += its
        if lost:
            raise RolledBack(lost)
        if not self.keys:  # no outbox is asked
            return Decision(messages=sorted(left))
        first = {self.keys[at]: at for at in reversed(left)}
        return Decision(messages=sorted(first.values()), keys=set(first))

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        """What is inserted, by table. All senders keep one order, so that none waits in a circle."""
        wanted = set(decision.messages)
        reached = [(each.to.table.address, each) for each in self.addressed if each.to]
        for _, each in sorted(reached, key=lambda pair: pair[0]):
            if its := [at for at in each.positions if at in wanted]:
                yield each, its

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        """Messages as rows of the tables that they go into. Those due later go into another one."""
        assert to.to is not None
        chunk = self.chunk
        rows = chunk.sends.rows(positions)
        if chunk.told:
            headers = rows["headers"].to_pylist()
            for number, at in enumerate(positions):
                if chunk.owners[at] in chunk.told:
                    headers[number] = without_headers(headers[number], OF_RETRY)
            rows = replaced(rows, headers=pa.array(headers, pa.string()))
        if to.stored_for is not None:
            rows = self._stored(rows, to.to, to.stored_for, positions)
        later = waiting(rows)
        if not pc.any(later).as_py():
            return [(to.to, rows)]
        parts = (to.to, rows.filter(pc.invert(later))), (self.routes.later(to.to.target), rows.filter(later))
        return [(table, part) for table, part in parts if part.num_rows]

    def _stored(
        self, rows: pa.RecordBatch, store: Destination, address: str, positions: Sequence[int]
    ) -> pa.RecordBatch:
        """The rows with the header of their destination in another database, and by what they are known.

        A plain message may have the header already, and needs nothing to be known by.
        """
        queue = self.routes.places.full_address(Place(store.target, store.table.table))
        sends = self.chunk.sends
        ids = sends.of(sends.id_column, positions).to_pylist() if self.chunk.handled else None
        headers = []
        for number, text in enumerate(rows["headers"].to_pylist()):
            if ids is None and f'"{STORED_FOR}":' in text and (parse_headers(text) or {}).get(STORED_FOR):
                headers.append(text)
                continue
            added = {STORED_FOR: address}
            if ids is not None:
                added[STORED] = ids[number]
            if f'"{FORWARD_DESTINATION}":' in text:
                added[FORWARD_DESTINATION] = queue
            headers.append(changed_headers(text, (), added))
        return replaced(rows, headers=pa.array(headers, pa.string()))

    def beside(self, _: Decision) -> list[Rows]:
        return []

    def acknowledged(self, _: Decision, __: Barred) -> Iterable[Rows]:
        return []
