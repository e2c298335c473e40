"""How many rows a batch may have so that it lasts about as long as it should.

A batch has a fixed cost, so small ones waste the time of a backlog. A long one keeps a transaction open,
which costs every queue of a PostgreSQL database. Only the time of a batch tells how fast a sink is, so it
decides the size of the next.
"""

from __future__ import annotations

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
