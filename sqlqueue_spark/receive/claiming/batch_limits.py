"""The most rows and bytes of a batch: what the options allow, what neighbours can step over, what the server
can bear.

How many rows a batch has below these limits: :mod:`batch_size`, by how long batches last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.row_set import HIGHEST
from sqlqueue_spark.tables.queues import QueueTable


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """The most rows and bytes of one claim. The first live row is claimed whatever its size."""

    rows: int
    bytes: int
    #: Whether these rows are enough by now; asked after each statement. None: it goes on to its limits.
    enough: Callable[[int], bool] | None = None

    @classmethod
    def of(cls, options: SourceOptions) -> BatchLimits:
        """The limits of the options."""
        return cls(rows=options.most_rows, bytes=options.max_bytes_per_trigger)

    @classmethod
    def none(cls) -> BatchLimits:
        """No limits: everything that is there."""
        return cls(rows=HIGHEST, bytes=HIGHEST)

    def at_most(self, rows: int) -> BatchLimits:
        """The same limits with no more than this number of rows."""
        return replace(self, rows=min(self.rows, rows))

    def share(self, queues: int) -> BatchLimits:
        """An equal share for one of several queues, rounded up. No limit has no shares."""
        if self.rows == HIGHEST:
            return self
        return replace(self, rows=-(-self.rows // queues), bytes=-(-self.bytes // queues))

    def beside_receivers(self, table: QueueTable, most_locked: int) -> BatchLimits:
        """The limits where one-row receivers have to step over each row that is locked.

        :param most_locked: the most locks that they step over. A claim of everything has no limit here
            either.
        """
        if table.row_versions or self.rows == HIGHEST:
            return self
        locks_a_row = 2 if table.keeps_skipped else 1  # a heap's row and its index key
        return self.at_most(max(1, most_locked // locks_a_row))


class BearableRows:
    """The most rows of a claim that the server can bear; no limit until it refuses a claim as too large."""

    #: After this number of claims of one size a larger one is tried.
    _CLAIMS = 20
    #: A claim without a limit that was too large counts as one of this number of rows.
    _LARGEST = 1_000_000

    def __init__(self) -> None:
        self.rows = HIGHEST
        self._borne = 0

    def too_large(self, rows: int) -> None:
        """Note that the server had too little memory, or too few locks, for a claim of up to these rows."""
        self.rows, self._borne = max(1, min(rows, self._LARGEST) // 2), 0

    def borne(self) -> None:
        """Note a claim that the server could bear."""
        self._borne += 1
        if self._borne >= self._CLAIMS:
            self.rows, self._borne = min(2 * self.rows, HIGHEST), 0
