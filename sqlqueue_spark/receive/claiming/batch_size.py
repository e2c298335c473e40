"""How many rows a batch may have: within limits, and so that it lasts about as long as it should.

The limits are what the options allow, what neighbours can step over, and what the server can bear. A batch
has a fixed cost, so small ones waste the time of a backlog. A long one keeps a transaction open, which costs
every queue of a PostgreSQL database. Only the time of a batch tells how fast a sink is, so it decides the
size of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlqueue_spark.row_set import HIGHEST
from sqlqueue_spark.tables.queues import QueueTable

#: The least rows of a batch, however long it lasts.
LEAST = 1_000
#: The greatest change of the size from one batch to the next. A batch has a fixed cost, so four times the
#: rows last less than four times as long.
_MOST_GROWTH, _MOST_SHRINKING = 4.0, 0.5
#: A batch with this part of its size is full. Only then does the size grow.
_FULL = 0.8
#: Where a batch has at most 0.6 of the rows of the one before and lasts more than 0.9 of its time, the time
#: does not depend on the rows. Then the larger size is kept for 20 batches.
_SMALLER, _SHORTER, _KEPT_FOR = 0.6, 0.9, 20


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """The most rows and bytes of one claim. The first live row is claimed whatever its size."""

    rows: int
    bytes: int
    #: Whether this number of rows is enough by now; asked after each statement. None: only limits end it.
    enough: Callable[[int], bool] | None = None

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


class BatchSize:
    """The rows of the next batch, learned from the time that the last ones took.

    :param rows: those of the first batch.
    :param seconds: how long a batch should last.
    :param most: the most rows of a batch.
    """

    def __init__(self, rows: int, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self.rows = min(rows, most)
        #: How long the last batch lasted.
        self.lasted = seconds
        #: How many rows the last batch had, and whether more were there.
        self.had, self._more = 0, False
        #: The rows of the batch before, and how long it lasted.
        self._before: tuple[int, float] | None = None
        self._kept_for = 0

    @property
    def _full(self) -> bool:
        """Whether the last batch had about as many rows as it may have, or more were there: more may wait."""
        return self._more or self.had >= _FULL * self.rows

    def begins(self, rows: int, *, more: bool = False) -> None:
        """Note that a batch of this number of rows begins.

        :param more: whether more were there. Its claim may have ended before its size, because Spark waited
            for it.
        """
        self.had, self._more = rows, more

    def done(self, seconds: float, *, cold: bool = False) -> None:
        """Note how long that batch lasted.

        :param cold: its time has the start of Spark's workers in it, so it can only show that more rows fit.
        """
        self.lasted = seconds
        if cold and seconds > self._seconds:
            return
        if self._kept_for:
            self._kept_for -= 1
            return
        before, self._before = self._before, (self.had, seconds)
        factor = min(_MOST_GROWTH, max(_MOST_SHRINKING, self._seconds / max(seconds, 0.001)))
        if factor >= 1:
            if self._full:
                self.rows = min(self._most, max(self.rows, int(self.had * factor)))
        elif before is not None and self.had <= _SMALLER * before[0] and seconds > _SHORTER * before[1]:
            self.rows, self._kept_for, self._before = before[0], _KEPT_FOR, None
        else:
            self.rows = min(self._most, max(LEAST, int(self.had * factor)))
