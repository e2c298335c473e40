"""Messages of a stage whose destination is gone, or refuses them, go to the error queue, in the transaction that settles their batch.

Every method runs inside the connection's open transaction and never commits.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sqlqueue_spark.engines.connections import Connection
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.failed import Failure, failed_headers
from sqlqueue_spark.messages.outgoing import lasting
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.insert import Inserter, columns_of, moved
from sqlqueue_spark.tables.queues import InTransit, QueueTable
from sqlqueue_spark.tables.refusals import Refusal, refused


@dataclass(frozen=True)
class Undelivered:
    """Sends staged messages one way or the other: to their destination where it takes them, else to the error queue.

    :param error_queue: its address, under the naming of ``options``.
    """

    connection: Connection
    options: SourceOptions | SinkOptions
    error_queue: str

    @classmethod
    def of(cls, connection: Connection, options: SourceOptions | SinkOptions) -> Undelivered | None:
        """None where the options name no error queue."""
        return None if options.error_queue is None else cls(connection, options, options.error_queue)

    def send(
        self, rows: Sequence[InTransit], to: Table, found: QueueTable | None, error: SqlQueueError
    ) -> int:
        """Send messages to a queue that has refused them together; returns how many went to the error queue.

        :param found: the destination; None where it is gone, or is no queue. Then all fail.
        :param error: why they could not be sent together.
        :raises QueueError: there is no error queue, or it refuses them.
        """
        refusals: Sequence[Refusal[InTransit]] = [Refusal(rows, error)]
        if found is not None:
            inserter = Inserter(self.connection, found, columns_of(self.connection, found))
            refusals = refused(self.connection, lambda some: inserter.insert(moved(some)), rows)
        for part, why in refusals:
            self._fail(part, to, why)
        return sum(len(part) for part, _ in refusals)

    def _fail(self, rows: Sequence[InTransit], to: Table, error: SqlQueueError) -> None:
        dialect = self.connection.dialect
        wanted = self.options.naming(dialect).table(self.error_queue)
        found = queues.find(self.connection, wanted)
        if found is None:
            raise queues.missing(self.connection, wanted, self.error_queue, "for what fails", "errorQueue")
        address = to.full_address(quoted=dialect.quoted_addresses)
        failure = Failure.of(error)
        headers = [
            failed_headers(
                row.headers, failure, queue=address, endpoint=to.table, row_id=row.id or str(uuid.uuid4())
            )
            for row in rows
        ]
        bodies = pa.array([row.body or b"" for row in rows], pa.binary())
        Inserter(self.connection, found, columns_of(self.connection, found)).insert(lasting(headers, bodies))
