"""Where a look searches: its scans, in their order. Rows come from the first scan that finds some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlqueue_spark.receive.claim import Head
from sqlqueue_spark.row_set import HIGHEST, LOWEST


@dataclass
class Scan:
    """A range of rows, above ``after`` and up to ``up_to``, and how long it took to look there."""

    after: int
    up_to: int
    seconds: float = 0.0


class Scans:
    """Lists the scans of one look after the other. Go on with a list only when the scan before has found nothing.

    :param clock: seconds of any steady clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: It is told what was found, except late rows.
        self.head = Head()
        #: No row above this one is claimed.
        self.end = HIGHEST

    @property
    def bounded(self) -> bool:
        """Whether this run ends at a row (``Trigger.AvailableNow``)."""
        return self.end != HIGHEST

    def late(self) -> Iterator[Scan]:
        """Below the last claim, when it is time to look for late rows there."""
        scans = [Scan(after, up_to) for after, up_to in self.head.late_rows(self._clock())]
        yield from scans
        if scans:
            self.head.looked_from_start(self._clock(), sum(scan.seconds for scan in scans))

    def onward(self) -> Iterator[Scan]:
        """From the end of the last claim. A bounded run ends only when the whole table has no row for it."""
        after = self.head.next(self._clock())
        yield Scan(after, self.end)
        if self.bounded and after != LOWEST:
            yield Scan(LOWEST, self.end)

    def done(self, scan: Scan) -> None:
        """Note that a scan has ended, whether it has found rows or not."""
        if scan.after == LOWEST:
            self.head.looked_from_start(self._clock(), scan.seconds)
