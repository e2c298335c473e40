"""The way of a chunk's messages to their tables: what cannot be reached, and what is refused at the insert, fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sqlqueue_spark.engines.connect import Connection, Target
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.message import STORED_FOR, format_member
from sqlqueue_spark.messages.outgoing import replaced, waiting
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destination, Destinations, Placed, check_one_database, place
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.send.parking import DatabaseDown
from sqlqueue_spark.tables.insert import Inserter, Why, refused
from sqlqueue_spark.tables.outbox import OutboxTable

log = logger(__name__)


class RolledBack(SqlQueueError):
    """The transaction of a chunk is rolled back, because tables refuse some of its messages. Without them it may succeed."""

    def __init__(self, refused: Sequence[Why[int]]) -> None:
        super().__init__("; ".join(str(error) for _, error in refused))
        self.refused = refused


@dataclass
class Routes:
    """Finds the tables of a chunk's messages, over the connections of one task."""

    options: SinkOptions
    destinations: Destinations
    #: Gives a connection with no open transaction.
    connected: Callable[[Target], Connection]
    #: Whether the messages were received in another database than those that these routes lead to. What fails, and acknowledgements,
    #: belong there.
    received_elsewhere: bool = False
    #: The addresses that this task could not reach, so that it looks for each only once.
    _unreachable: dict[str, SqlQueueError] = field(default_factory=dict)

    def placed(self, chunk: Composed) -> tuple[Composed, list[Placed]]:
        """The messages of a chunk by destination.

        :returns: the chunk, in which those messages have failed that cannot reach their destination, and the destinations.
        :raises QueueError: there is no such table and no option ``errorQueue``, or no table for that.
        :raises ConfigurationError: likewise, the text is no address, or its database cannot be reached from here.
        """
        if self.options.error_queue is not None:
            self.find(self.options.error_queue)
        unreachable = [
            (positions, error)
            for address, positions in chunk.destinations()
            if (error := self.unreachable(address)) is not None
        ]
        if unreachable:
            chunk = self.failing(chunk, unreachable)
        if chunk.owed:
            told = [at for at, owed in chunk.owed.items() if self.acknowledged_at(owed.queue)]
            chunk = chunk.acknowledging(told)
        placed = place(chunk.destinations(), self.find)
        if chunk.delayed:
            for each in placed:
                self.delayed(each.destination)
        return chunk, placed

    def find(self, address: str) -> Destination:
        """The table at an address."""
        return self.destinations.find(address, self.connected)

    def own_address(self, queue: str) -> str:
        """The final address of a queue in which messages were received."""
        return self.find(queue).table.address

    def outbox(self, connection: Connection) -> OutboxTable:
        """The sink's outbox in a database."""
        return OutboxTable(connection, self.options.sender or "", self.options.default_schema)

    def delayed(self, to: Destination) -> Destination:
        """The table in which messages for a destination wait until they are due.

        :raises QueueError: there is no such table.
        """
        owner = self.destinations.owner_of_delayed(to.target)
        return self.destinations.find_delayed(to.target, owner, self.connected)

    def acknowledged_at(self, address: str) -> Destination | None:
        """The queue that gets an acknowledgement; None where it cannot be reached in the transaction, which is only a warning."""
        if self._error_at(address) is not None:
            return None
        to = self.find(address)
        return to if to.target == Target.of(self.options) else None

    def waiting_for(self, queue: str) -> Destination:
        """The table in which the messages of a queue wait until they are tried again. Errors as :meth:`delayed`."""
        to = self.find(queue)
        return self.destinations.find_delayed(to.target, to.table.table, self.connected)

    def parted(self, to: Destination, rows: pa.RecordBatch) -> list[tuple[Destination, pa.RecordBatch]]:
        """The rows (:data:`OUTGOING`) for a destination by the tables that they go to: those that wait go to another one."""
        if to.stored_as is not None:
            rows = _stored(rows, to.stored_as)
        later = waiting(rows)
        if not pc.any(later).as_py():
            return [(to, rows)]
        if pc.all(later).as_py():
            return [(self.delayed(to), rows)]
        parts = [(to, rows.filter(pc.invert(later))), (self.delayed(to), rows.filter(later))]
        return [(where, its) for where, its in parts if its.num_rows]

    def unreachable(self, address: str) -> SqlQueueError | None:
        """Why messages to an address fail; None where they do not.

        Without an error queue nothing fails by itself. Its own address is no message's: where it is missing, the batch ends.
        """
        own = self.options.error_queue
        return self._error_at(address) if self.received_elsewhere or own not in (None, address) else None

    def _error_at(self, address: str) -> SqlQueueError | None:
        """Why an address cannot be reached; None where it can."""
        if address not in self._unreachable:
            try:
                self._check(address)
            except (QueueError, ConfigurationError) as error:
                if isinstance(error, ConfigurationError) and error.may_pass:
                    raise
                log.warning("unreachable destination=%s: %s", address, error)
                self._unreachable[address] = error
        return self._unreachable.get(address)

    def subscribers(self, topics: Collection[str]) -> dict[str, list[str]]:
        """The addresses that have subscribed to each of these types, one for each table: several may mean one.

        :raises QueueError: there is no table of subscriptions; or one of these queues is gone, and there is no error queue.
        :raises ConfigurationError: likewise, an address cannot be read, or its database cannot be reached from here.
        """
        found = self.destinations.subscribers.of(topics, self.connected)
        addresses: dict[object, str] = {}
        return {
            topic: [*dict.fromkeys(addresses.setdefault(self._table_of(each, topic), each) for each in its)]
            for topic, its in found.items()
        }

    def _table_of(self, address: str, topic: str) -> object:
        """What tells the table at a subscriber's address apart."""
        try:
            if self.unreachable(address) is not None:
                return self.final(address)
            self._check(address)
        except DatabaseDown:  # its copies wait
            return self.destinations.where(address)
        except QueueError as error:
            raise QueueError(
                f"{error} It has subscribed to {topic!r}; where it is gone for good, end that with sqlqueue unsubscribe, or set the option "
                "errorQueue, and only its copies go there."
            ) from error
        to = self.find(address)
        return to.target, to.table.address

    def failing(self, chunk: Composed, refusals: Sequence[Why[int]]) -> Composed:
        """The chunk, in which these messages have failed: they go to the error queue."""
        failed = {
            at: self.destinations.failed(Failure.of(error), to=to, queue=to, message_id=chunk.ids[at])
            for positions, error in refusals
            for at in positions
            for to in [chunk.destination(at)]
        }
        return chunk.failing(failed, self.options.error_queue or "")

    def reachable(self, outcomes: Outcomes) -> Outcomes:
        """The outcomes, of which those have failed that would send to an address that cannot be reached.

        All that an outcome sends must lie in the database in which its message was received, or it could not go out at once.
        """
        self.find(self.options.error_queue or "")
        for address in outcomes.in_error(range(len(outcomes))):
            self.find(address or self.options.error_queue or "")
        everywhere = range(len(outcomes))
        for queue in {**outcomes.retried(everywhere), **outcomes.parked(everywhere)}:
            self.waiting_for(queue)
        if self.options.audit_queue is not None:
            self.find(self.options.audit_queue)
        for owed in outcomes.owed.values():
            self.acknowledged_at(owed.queue)
        own = Target.of(self.options)
        for queue in outcomes.queues.unique().to_pylist():
            self._check_ends(queue)
            if self.find(queue).target != own:
                raise ConfigurationError(
                    f"The messages of the queue {queue!r} were received in another database than that of the option url, and their "
                    "outcomes belong where they were received; give the sink the url of the source."
                )
        unreachable: list[Why[int]] = []
        for address, positions in outcomes.destinations():
            error = self.unreachable(address)
            if error is None and self.find(address).target != own:
                error = ConfigurationError(
                    f"The destination {address!r} lies in another database than the received message, and what a message sends "
                    "goes out at once or not at all; name a queue of this database as storeAndForward, from which a store-and-forward job sends it "
                    "on."
                )
            if error is not None:
                unreachable.append((positions, error))
        return self.owners_failing(outcomes, unreachable) if unreachable else outcomes

    def _check_ends(self, queue: str) -> None:
        """Refuse an error or audit queue that is the queue itself: what goes there would be received again, for ever."""
        received = self.find(queue).table
        for name, address in (
            ("errorQueue", self.options.error_queue),
            ("auditQueue", self.options.audit_queue),
        ):
            if address is not None and self.find(address).table.address == received.address:
                raise ConfigurationError(
                    f"The option {name} names {received.name}, in which the messages were received, so they would go round for ever; "
                    "name another queue."
                )

    def owners_failing(self, outcomes: Outcomes, refusals: Sequence[Why[int]]) -> Outcomes:
        """The outcomes, of which those have failed that would send these messages. The copy of an event fails alone."""
        if (sends := outcomes.sends) is not None:
            copies = [([at for at in positions if sends.is_copy(at)], error) for positions, error in refusals]
            refusals = [
                ([at for at in positions if not sends.is_copy(at)], error) for positions, error in refusals
            ]
            if any(positions for positions, _ in copies):
                outcomes = replace(outcomes, sends=self.failing(sends, copies))
        failures = {
            outcomes.owners[at]: Failure.of(error) for positions, error in refusals for at in positions
        }
        return outcomes.failing(failures, self.destinations)

    def final(self, address: str) -> str:
        """The final address of a message that has failed, as far as it can be known."""
        try:
            return self.find(address).known_as
        except SqlQueueError as error:
            if isinstance(error, TryAgain):
                raise
        try:
            return str(self.destinations.where(address)[1])
        except ConfigurationError:
            return address

    def insert(
        self, connection: Connection, to: Destination, chunk: Composed, positions: Sequence[int]
    ) -> list[Why[int]]:
        """Insert messages into one table, in the open transaction; returns those that it refuses.

        Where there is no error queue, what it refuses is an error. So is what the error queue itself refuses.
        """
        if not positions:
            return []

        def insert(some: Sequence[int]) -> None:
            for where, rows in self.parted(to, chunk.rows(some)):
                Inserter(connection, where.table, where.columns).insert(rows)

        own = self.options.error_queue
        if not self.received_elsewhere and (own is None or to == self.find(own)):
            insert(positions)
            return []
        return refused(connection, insert, positions)

    def _check(self, address: str) -> None:
        if self.options.transaction_mode == ATOMIC:
            check_one_database(self.options, self.destinations, [address])
        self.find(address)


def _stored(rows: pa.RecordBatch, address: str) -> pa.RecordBatch:
    """The rows (:data:`OUTGOING`) with the header that says where they go in another database, unless they say it themselves."""
    headers = rows["headers"]
    added = pc.binary_join_element_wise(
        pc.binary_slice(headers.cast(pa.binary()), 0, -1),
        f",{format_member(STORED_FOR, address)}}}".encode(),
        b"",
    ).cast(pa.string())
    says = pc.match_substring(headers, f'"{STORED_FOR}":')
    return replaced(rows, headers=pc.if_else(says, headers, added))
