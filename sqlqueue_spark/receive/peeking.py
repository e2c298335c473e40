"""A look at a queue by ranges of RowVersion: nothing is claimed, locked, counted or deleted."""

from __future__ import annotations

from sqlqueue_spark import queues
from sqlqueue_spark.claims import LOWEST, Runs
from sqlqueue_spark.connections import Target, connect
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.slices import Slice


def plan_peek(options: SourceOptions) -> list[Slice]:
    """Ranges of similar width that cover what is in the queue now; none when it is empty."""
    target = Target.of(options)
    dialect = target.dialect
    with connect(target) as connection, connection.transaction():
        queue = queues.get(connection, options.queue, options.naming(dialect))
        waiting, highest = queue.waiting(LOWEST), queue.highest()
        if waiting is None or highest is None:
            return []
        width = waiting.rows
        pieces = options.slices(width)
        sizes = [width // pieces] * (pieces - 1)
        ranges = Runs([(highest - width + 1, highest)]).cut([*sizes, width - sum(sizes)])
        statement = queues.read_statement(dialect, queue.table, "read_unexpired")
        return [Slice(statement=statement, queue=queue.table.name, rows=rows) for rows in ranges]
