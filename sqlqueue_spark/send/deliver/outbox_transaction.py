"""One transaction that writes a chunk's work in one database, so that each message is sent once.

An outbox and the queue tables are written together. The outbox is asked which keys it has, the rows that are
missing are inserted, and their keys are added. Optimistic: the keys are added last. A unique violation then
means that a twin was faster: the transaction is rolled back, and the delivery looks again. Pessimistic: the
keys are added first, so that a twin waits. A retry of any kind writes only what is missing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import Duplicate, SqlQueueError, StatementTimeout, TryAgain
from sqlqueue_spark.options import OPTIMISTIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.deliver.addressed_chunk import Decision
from sqlqueue_spark.send.deliver.destination_tables import Rows
from sqlqueue_spark.send.deliver.outbox_lookups import Lookup
from sqlqueue_spark.send.deliver.sends_once import RolledBack, SendsOnce
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed
from sqlqueue_spark.tables.allowed_destinations import Barred
from sqlqueue_spark.tables.insert import insert
from sqlqueue_spark.tables.refused_messages import Why, refused

log = logger(__name__)


@dataclass
class Delivery:
    """A chunk's work on its way into one database: attempted until it is there, or that is not worth it."""

    options: SinkOptions
    work: SendsOnce
    _committing: bool = False
    #: The keys that the last attempt found in the outbox, and those found by the last one that met a
    #: duplicate.
    _seen: Collection[str] | None = None
    _seen_before: Collection[str] | None = None

    def attempt(self, connection: Connection) -> Decision:
        """Write what is missing in one transaction, and tell what that was.

        :raises RolledBack: a destination refuses messages, which may go to the error queue instead.
        """
        self._seen, self._committing = None, False
        known: Collection[str] = ()
        lookup = Lookup(self.work, connection) if self.options.uses_outbox else None
        with connection.transaction(), self.work.entered(connection) as barred:
            if lookup is not None:
                known = self._seen = lookup.known(self.work.asked())
            if last := self.options.outbox == OPTIMISTIC:
                fail_points.step(fail_points.IDS_CHECKED)
            decision = self.work.decide(known)
            self.work.check_allowed(decision, barred)
            if not last:
                _add(lookup, decision)
            self._insert(connection, decision, barred)
            fail_points.step(fail_points.ROWS_INSERTED)
            if last:
                _add(lookup, decision)
            self._committing = lookup is None
        fail_points.step(fail_points.CHUNK_SENT)
        return decision

    def worth_it(self, error: TryAgain) -> bool:
        """Whether another attempt may succeed, and can write nothing twice.

        After a duplicate: a twin that was faster has added keys, so the next look must see more than the last
        one. Without an outbox it is not known what became of a commit whose answer was lost.
        """
        if not self.options.uses_outbox:
            return not isinstance(error, Duplicate) and not self._committing
        if not isinstance(error, Duplicate):
            return True
        before, self._seen_before = self._seen_before, self._seen
        return before is None or before != self._seen

    def _insert(self, connection: Connection, decision: Decision, barred: Barred) -> None:
        why: list[Why[int]] = []
        may_fail, error_queues = self.work.routes.places.home.error_queue is not None, self.work.trusted()
        for to, positions in self.work.messages(decision):

            def inserted(some: Sequence[int], to: Addressed = to) -> None:
                for rows in self.work.message_rows(to, some):
                    write(connection, rows)

            if not may_fail or (to.to is not None and to.to.table in error_queues):  # which must take it
                inserted(positions)
            else:
                own_ids, chosen = self.work.chunk.sends.brought_ids, to.to is not None and to.to.chosen
                why += refused(connection, inserted, positions, own_ids=own_ids, chosen=chosen)
        if why:
            raise RolledBack(why)
        for rows in self.work.beside(decision):
            write(connection, rows)
        for rows in self.work.acknowledged(decision, barred):
            self._acknowledge(connection, rows)

    def _acknowledge(self, connection: Connection, rows: Rows) -> None:
        """Write acknowledgements, unless the queue that a message named refuses them: the batch goes on."""
        try:
            with connection.attempt():
                write(connection, rows)
        except SqlQueueError as error:
            if isinstance(error, TryAgain) and not isinstance(error, Duplicate | StatementTimeout):
                raise
            log.warning("not_acknowledged queue=%s: %s", rows[0].table.name, error)


def _add(lookup: Lookup | None, decision: Decision) -> None:
    if lookup is not None:
        lookup.outbox.add(decision.keys)
        fail_points.step(fail_points.IDS_INSERTED)


def write(connection: Connection, rows: Rows) -> None:
    """Insert rows into their table, which must lie in the connection's database."""
    to, messages = rows
    assert to.target == connection.target, "a place is written over a connection to its own database"
    insert(connection, to.table, messages)
