"""Peeks at a queue by ranges of RowVersion: nothing is claimed, locked, counted or deleted."""

from __future__ import annotations

from itertools import pairwise

from sqlqueue_spark.engines.connections import Target, connect
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.slices import Slice
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues

#: The most numbers of one range, however few rows have them: a :class:`RowSet` counts all its numbers, in 63 bits.
_WIDEST = 1 << 62


def plan_peek(options: SourceOptions) -> list[Slice]:
    """Ranges of similar width that cover what is in the queue now; none when it is empty."""
    target = Target.of(options)
    dialect = target.dialect
    with connect(target) as connection, connection.transaction():
        queue = queues.get(connection, options.queue, options.naming(dialect))
        ends = queue.ends()
        if ends is None:
            return []
        lowest, highest = ends
        width = max(1, highest - lowest + 1)
        pieces = max(options.slices(width), -(-width // _WIDEST))
        firsts = [lowest + width * piece // pieces for piece in range(pieces + 1)]
        statement = queues.read_statement(dialect, queue.table, "read_unexpired")
        return [
            Slice(statement=statement, queue=queue.table.name, rows=RowSet([(first, end - 1)]))
            for first, end in pairwise(firsts)
        ]
