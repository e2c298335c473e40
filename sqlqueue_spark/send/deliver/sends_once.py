"""What a chunk writes in one database, in one transaction, so that each message is sent once.

An outbox and the queue tables are written together. The outbox is asked which keys it has, the rows that are
missing are inserted, and their keys are added. Optimistic: the keys are added last. A unique violation then
means that a twin was faster: the transaction is rolled back, and the delivery looks again. Pessimistic: the
keys are added first, so that a twin waits. A retry of any kind writes only what is missing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from sqlqueue_spark import errors, fail_points
from sqlqueue_spark.engines.open_connection import Connection, Target
from sqlqueue_spark.messages.acknowledgement import OF_RETRY
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.header_json import changed_headers, parse_headers, without_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, STORED, STORED_FOR
from sqlqueue_spark.messages.outgoing import replaced, waiting
from sqlqueue_spark.options import OPTIMISTIC
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.database_of_address import Place
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.destination_tables import Destination, Rows
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed, Routes
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations, Barred
from sqlqueue_spark.tables.insert import insert
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import VERSION_0_1, VERSION_0_2, earlier_keys, keys
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.refused_messages import Why, refused

log = logger(__name__)


class RolledBack(errors.SqlQueueError):
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
    """The messages of a chunk for another database than that of its rows: attempted until they are there.

    :param target: the database, and ``addressed`` the messages.
    """

    def __init__(
        self, routes: Routes, chunk: AddressedChunk, target: Target, addressed: Sequence[Addressed]
    ) -> None:
        self.routes = routes
        self.chunk = chunk
        self.addressed = addressed
        self.positions = [at for each in addressed for at in each.positions]
        # What handled rows send is known by their outcomes; where no outbox is, nothing is known.
        self.keys = {} if chunk.handled or not routes.remembers else send_keys(chunk, addressed)
        self._options = routes.places.at(target)
        #: By version, the keys by which an outbox may know the work, each with the present key.
        self._earlier: dict[str, Mapping[str, str]] = {}
        self._committing = False
        #: The keys that the last attempt found in the outbox, and those found by the last one that met a
        #: duplicate.
        self._seen: Collection[str] | None = None
        self._seen_before: Collection[str] | None = None

    def attempt(self, connection: Connection) -> Decision:
        """Write what is missing in one transaction, and tell what that was.

        :raises RolledBack: a destination refuses messages, which may go to the error queue instead.
        """
        self._seen, self._committing = None, False
        known: Collection[str] = ()
        outbox = self.outbox(connection) if self._options.uses_outbox else None
        with connection.transaction(), self.entered(connection) as barred:
            if outbox is not None:
                known = self._seen = self.known(outbox, self.asked(outbox))
            if last := self._options.outbox == OPTIMISTIC:
                fail_points.step(fail_points.IDS_CHECKED)
            decision = self.decide(known)
            self.check_allowed(decision, barred)
            if not last:
                _add(outbox, decision)
            self._insert(connection, decision, barred)
            fail_points.step(fail_points.ROWS_INSERTED)
            if last:
                _add(outbox, decision)
            self._committing = outbox is None
        fail_points.step(fail_points.CHUNK_SENT)
        return decision

    def worth_it(self, error: errors.TryAgain) -> bool:
        """Whether another attempt may succeed, and can write nothing twice.

        After a duplicate: a twin that was faster has added keys, so the next look must see more than the last
        one. Without an outbox it is not known what became of a commit whose answer was lost.
        """
        if not self._options.uses_outbox:
            return not isinstance(error, errors.Duplicate) and not self._committing
        if not isinstance(error, errors.Duplicate):
            return True
        before, self._seen_before = self._seen_before, self._seen
        return before is None or before != self._seen

    def outbox(self, connection: Connection) -> OutboxTable:
        """The outbox of a connection's database, to be asked by :meth:`known`. No transaction may be open."""
        outbox, places = OutboxTable.of_sink(connection, self._options), self.routes.places
        if self.routes.destinations.may_hold(outbox, VERSION_0_2):
            self._earlier[VERSION_0_2] = self.earlier_origins()
        if self.routes.destinations.may_hold(outbox, VERSION_0_1) and self.keys:
            queue = places.away.queue
            found = queue and self.routes.found(places.destination(queue), queue)
            own = found.table.name if isinstance(found, Destination) else None
            self._earlier[VERSION_0_1] = self._earlier_sends(own)
        return outbox

    def known(self, outbox: OutboxTable, asked: Iterable[str]) -> set[str]:
        """Which of these keys an outbox has, and the present keys of what an earlier version has done."""
        found = outbox.seen(asked)
        for version, earlier in self._earlier.items():
            found |= {earlier[each] for each in outbox.seen_of(earlier, version)}
        return found

    def asked(self, outbox: OutboxTable) -> Iterable[str]:  # noqa: ARG002 -- outcomes need it
        """The keys for which the outbox is asked, in the transaction in which it is."""
        return self.keys.values()

    def _earlier_sends(self, own: str | None) -> Mapping[str, str]:
        """The keys by which version 0.1.0 may have known messages, each with the present key.

        :param own: the name of the table of the option ``queue``; None if there is none.
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
        allowed = AllowedDestinations(self._options, tuple(self.trusted()))
        return allowed.entered(connection, list(self._named()), locking=locking)

    def check_allowed(self, decision: Decision, barred: Barred) -> None:
        """Raise :class:`RolledBack` where messages are to go to tables that cannot or may not be reached."""
        wanted, why = set(decision.messages), list[Why[int]]()
        for each in self.addressed:
            error = each.error if each.to is None else barred.get(each.to.table.address)
            if error is None:
                continue
            # Equal messages of the chunk, of which one is to be written, are refused together.
            if keys := {self.keys.get(at, at) for at in each.positions if at in wanted}:
                why.append(([at for at in each.positions if self.keys.get(at, at) in keys], error))
        if why:
            raise RolledBack(why)

    def _named(self) -> Iterator[QueueTable]:
        """The tables into which this writes because a message names them, and no option of ours."""
        return (each.to.table for each in self.addressed if each.to is not None and not each.to.chosen)

    def trusted(self) -> Sequence[QueueTable]:
        """The error queue, if it lies in this database."""
        return ()

    def decide(self, known: Collection[str]) -> Decision:
        """What is to be written where the outbox knows these keys."""
        keys = self.keys  # none where no outbox is asked
        left = [at for at in self.positions if keys[at] not in known] if known and keys else self.positions
        if not keys:
            return Decision(messages=sorted(left))
        first = {keys[at]: at for at in reversed(left)}
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
        """What is inserted beside messages, by table, and the acknowledgements, which may be refused."""
        return []

    def acknowledged(self, _: Decision, __: Barred) -> Iterable[Rows]:
        return []

    def _insert(self, connection: Connection, decision: Decision, barred: Barred) -> None:
        why: list[Why[int]] = []
        may_fail, error_queues = self.routes.places.home.error_queue is not None, self.trusted()
        for each, positions in self.messages(decision):

            def inserted(some: Sequence[int], to: Addressed = each) -> None:
                for rows in self.message_rows(to, some):
                    write(connection, rows)

            assert each.to is not None
            if not may_fail or each.to.table in error_queues:  # which must take it
                inserted(positions)
            else:
                own_ids = self.chunk.sends.brought_ids
                why += refused(connection, inserted, positions, own_ids=own_ids, chosen=each.to.chosen)
        if why:
            raise RolledBack(why)
        for rows in self.beside(decision):
            write(connection, rows)
        for rows in self.acknowledged(decision, barred):
            try:
                with connection.attempt():
                    write(connection, rows)
            except errors.SqlQueueError as error:  # the batch goes on
                refuses = isinstance(error, errors.Duplicate | errors.StatementTimeout)
                if isinstance(error, errors.TryAgain) and not refuses:
                    raise
                log.warning("not_acknowledged queue=%s: %s", rows[0].table.name, error)


def _add(outbox: OutboxTable | None, decision: Decision) -> None:
    if outbox is not None:
        outbox.add(decision.keys)
        fail_points.step(fail_points.IDS_INSERTED)


def write(connection: Connection, rows: Rows) -> None:
    """Insert rows into their table, which must lie in the connection's database."""
    to, messages = rows
    assert to.target == connection.target, "a place is written over a connection to its own database"
    insert(connection, to.table, messages)
