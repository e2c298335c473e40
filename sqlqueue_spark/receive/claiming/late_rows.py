"""Where a look begins, and when it goes back for late rows."""

import heapq
import itertools
import math

from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.row_set import LOWEST


class Head:
    """Where the next look begins: where the last claim ended, or now and then at the start of the table.

    Entries of deleted rows stay at the head of an index until the database cleans them up, and every look
    from the start steps over them. But late rows do appear below the last claim (a late commit, another
    receiver's rollback). So the stream looks for them again after twenty times as long as the last look for
    them took. While one claim follows another, late rows can stand only in the ranges that the claims left
    out. :meth:`late_rows` has these ranges: before the stream takes a claim ahead, it looks only there.
    """

    _SHARE = 20
    #: The most ranges that are looked at one by one. Where there are more, those that lie closest are merged.
    _RANGES = 16
    #: After this time the whole table below is looked at: its numbers may have begun again.
    _WHOLE_SECONDS = 30.0

    def __init__(self) -> None:
        #: The highest row that was claimed last; ``LOWEST`` where that is not known.
        self.ended_at = LOWEST
        self._unclaimed: list[tuple[int, int]] = []
        self._due, self._whole_due = 0.0, math.inf
        #: How long the last look took. Of two the shorter one counts: one may have waited for a lock.
        self._took = self._WHOLE_SECONDS / self._SHARE

    def next(self, now: float) -> int:
        """The RowVersion above which to look; ``now`` in seconds of any steady clock."""
        return LOWEST if now >= self._due else self.ended_at

    def late_rows(self, now: float) -> list[tuple[int, int]]:
        """The ranges (above, up to) in which late rows are looked for now; none when it is not yet time."""
        if now < self._due:
            return []
        whole = now >= self._whole_due and self.ended_at != LOWEST
        return [(LOWEST, self.ended_at)] if whole else list(self._unclaimed)

    def looked_from_start(self, now: float, seconds: float) -> None:
        """Note that a look from the start, or at all ranges of late rows, took this time."""
        self._due, self._took = now + self._SHARE * min(seconds, self._took), seconds
        if not now < self._whole_due < math.inf:
            self._whole_due = now + self._WHOLE_SECONDS

    def look_again(self) -> None:
        """Let the next look be one from the start, or for late rows, as if there had been none yet."""
        self._due = 0.0

    def claimed(self, rows: QueueRows) -> None:
        """Note a claim. Its look began at the start of the table or where the last claim ended."""
        below = self.ended_at
        ranges = []
        for first, last in heapq.merge(rows.live, rows.expired):
            if below == LOWEST or first <= below:
                self._unclaimed, below = [], LOWEST
            if first - 1 > below:
                ranges.append((below, first - 1))
            below = last
        self.ended_at = below
        self._unclaimed = self._fewer([*self._unclaimed, *ranges])

    def passed(self, last: int) -> None:
        """Note a look that ended at this row and locked nothing. Late rows may be anywhere below."""
        self.ended_at, self._unclaimed = last, [(LOWEST, last)]

    def look_from_start_next(self) -> None:
        """Begin the next look at the start: a claim was given up or lost, so rows may stand below."""
        self.ended_at = LOWEST

    def _fewer(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if len(ranges) <= self._RANGES:
            return ranges
        inner = range(1, len(ranges))
        widest = heapq.nlargest(self._RANGES - 1, inner, key=lambda i: ranges[i][0] - ranges[i - 1][1])
        cuts = [0, *sorted(widest), len(ranges)]
        return [(ranges[a][0], ranges[b - 1][1]) for a, b in itertools.pairwise(cuts)]
