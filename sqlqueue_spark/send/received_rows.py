"""Reads rows of a queue once more as they were received: a frame that is sent may have changed their headers and bodies.

Their batch is not settled, so they stand in their table, and the claim's locks hide nothing from a plain read.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark.engines.connect import Connection, Reader, Target, open_reader
from sqlqueue_spark.errors import ClaimLost
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.frame_columns import FrameColumns
from sqlqueue_spark.send.outcome_builder import OutcomeBuilder
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.tables import queues

_READ = pa.schema(
    [("Id", pa.string()), ("Headers", pa.string()), ("Body", pa.binary()), ("RowVersion", pa.int64())]
)
_QUEUE = pa.field("Queue", pa.string())


class ReceivedRows:
    """Rows in queues of one database, over a connection of its own that opens when it is first needed."""

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        self._options = options
        names = [*_READ.names, _QUEUE.name]
        self._builder = OutcomeBuilder(
            columns=FrameColumns(names={name: name for name in names}),
            options=options,
            destinations=destinations,
        )
        self._reader: Reader | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def outcomes(self, connection: Connection, rows: pa.RecordBatch) -> Outcomes:
        """These rows, which send nothing and have not failed.

        :param connection: one to their database, with no open transaction.
        :param rows: the columns ``Queue``, ``RowVersion`` and ``Id``, each row once.
        :raises ClaimLost: a row is not there any more.
        """
        parts = [
            self._of_queue(connection, queue, rows.filter(pc.equal(rows["Queue"], queue)))
            for queue in pc.unique(rows["Queue"]).to_pylist()
        ]
        batch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        return replace(self._builder.received(batch, self._builder.grouped(batch)), by_id=False)

    def _of_queue(self, connection: Connection, queue: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        with connection.transaction():
            table = queues.get(connection, queue, self._options.naming(connection.dialect)).table
        if self._reader is None:
            self._reader = open_reader(Target.of(self._options))
        span = pc.min_max(rows["RowVersion"]).as_py()
        statement = queues.read_statement(connection.dialect, table)
        read = [
            batch.filter(pc.is_in(batch["RowVersion"], value_set=rows["RowVersion"]))
            for batch in self._reader.batches(statement, (span["min"], span["max"]), _READ)
        ]
        found = pa.Table.from_batches(read, _READ).combine_chunks().sort_by("RowVersion")
        asked = dict(zip(rows["RowVersion"].to_pylist(), pc.utf8_lower(rows["Id"]).to_pylist(), strict=True))
        there = dict(
            zip(found["RowVersion"].to_pylist(), pc.utf8_lower(found["Id"]).to_pylist(), strict=True)
        )
        if there != asked:
            raise ClaimLost(
                f"{len(asked.items() - there.items())} rows of {queue} are not there any more while their batch is sent; start the stream "
                "again, which receives what is left."
            )
        batch = found.to_batches()[0] if found.num_rows else pa.RecordBatch.from_pylist([], _READ)
        return batch.append_column(_QUEUE, pa.array([queue] * batch.num_rows, pa.string()))
