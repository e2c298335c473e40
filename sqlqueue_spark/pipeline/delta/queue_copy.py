"""Copies the rows of a queue into an archive by their Ids, and leaves them to the receiver of the queue.

A round looks at the numbers and Ids of *all* rows in the queue. A highest number so far would not tell what
is new: numbers are given before rows are committed, so a lower one may come up later, and after a TRUNCATE
they begin again. The Ids are looked up in the archive, and only rows that are missing there are read whole. A
row that was found in the archive is known, and is not looked up again while it is in the queue. Nothing else
is kept. After a crash the first round takes longer, and no row is copied twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline.delta.archive_table import ArchiveTable
from sqlqueue_spark.receive.reading.peek import Present, present_rows
from sqlqueue_spark.row_set import RowSet, bounded
from sqlqueue_spark.spark.some_rows import SomeRows

#: Most rows of a merge, and most bytes of its headers and bodies.
_MOST_ROWS, _MOST_BYTES = 100_000, 256 << 20


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a round has done."""

    rows: int
    copied: int
    seconds: float

    def __str__(self) -> str:
        return f"rows={self.rows} copied={self.copied} seconds={self.seconds:.1f}"


class QueueCopy:
    """Copies a queue round by round.

    :param transform: makes of the rows of the queue those of the archive. It must keep their Ids.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Mapping[str, str],
        table: ArchiveTable,
        transform: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._options = SourceOptions.parse(source)
        self._queue = SomeRows(spark, source)
        self._table = table
        self._transform = transform
        self._database = Retry(f"looking at {self._options.one_queue}")
        self._reached = False
        #: Rows that were in the queue at the last look, and that the archive has.
        self._known: dict[int, str] = {}

    def round(self, is_asked: Callable[[], bool] = lambda: False) -> Round:
        """Copy what stands in the queue now and is not in the archive.

        :param is_asked: whether to stop; it is asked between two merges.
        """
        began = time.monotonic()
        self._known, others = self._database.retried(self._look)
        self._reached = True
        fail_points.step(fail_points.ROWS_LOOKED_AT)
        rows, copied = len(self._known) + len(others), 0
        for piece in _pieces(others):
            if is_asked():
                break
            copied += self._copy(piece)
        return Round(rows=rows, copied=copied, seconds=time.monotonic() - began)

    def _look(self) -> tuple[dict[int, str], list[Present]]:
        """The rows of the queue that are known, and the others. A row that has gone is forgotten."""
        known: dict[int, str] = {}
        others: list[Present] = []
        for row in present_rows(self._options, again=self._reached):
            if self._known.get(row.row_version) == row.id:
                known[row.row_version] = row.id
            else:
                others.append(row)
        return known, others

    def _copy(self, looked_at: list[Present]) -> int:
        missing = self._table.missing([row.id for row in looked_at])
        self._known |= {row.row_version: row.id for row in looked_at if row.id not in missing}
        wanted = RowSet.of(row.row_version for row in looked_at if row.id in missing)
        if not len(wanted):
            return 0
        # Rows that were merged are looked up next time. They are not noted here: fewer rows may be read than
        # were looked at, because a receiver may hold a row and give it back.
        copied = self._table.merge(self._transform(self._queue.read(wanted)))
        fail_points.step(fail_points.ROWS_COPIED)
        return copied


def _pieces(rows: list[Present]) -> Iterator[list[Present]]:
    rest = iter(rows)
    for count in bounded([row.size for row in rows], _MOST_ROWS, _MOST_BYTES):
        yield list(islice(rest, count))
