"""How many rows a batch may have: within limits, and so that little of its time is its fixed cost.

The limits are what the options allow, what neighbours can step over, and what the server can bear. A batch
has a fixed cost, so small ones waste the time of a backlog. A long one keeps a transaction open, which costs
every queue of a PostgreSQL database. Only the time of the batches tells what they cost, so it decides the
size of the next. Why these figures: docs/decisions/batch-size.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlqueue_spark.options.options import MOST_LOCKED_BATCH_ROWS
from sqlqueue_spark.row_set import HIGHEST
from sqlqueue_spark.tables.queue_table import QueueTable


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """The most rows and bytes of one claim. The first live row is claimed whatever its size."""

    rows: int
    bytes: int
    #: Whether this number of rows is enough by now; asked after each statement. None: only limits end it.
    enough: Callable[[int], bool] | None = None

    def at_most(self, rows: int) -> "BatchLimits":
        return replace(self, rows=min(self.rows, rows))

    def share(self, queues: int) -> "BatchLimits":
        """An equal share for one of several queues, rounded up. No limit has no shares."""
        if self.rows == HIGHEST:
            return self
        return replace(self, rows=-(-self.rows // queues), bytes=-(-self.bytes // queues))

    def less(self, rows: int, size: int) -> "BatchLimits":
        """What one of several queues leaves to the others. No limit stays none."""
        if self.rows == HIGHEST:
            return self
        return replace(self, rows=self.rows - rows, bytes=self.bytes - size)

    def beside_receivers(self, table: QueueTable) -> "BatchLimits":
        """The limits where one-row receivers have to step over each lock. A claim of everything has none."""
        if table.row_versions or self.rows == HIGHEST:
            return self
        locks_a_row = 2 if table.keeps_skipped else 1  # a heap's row and its index key
        return self.at_most(MOST_LOCKED_BATCH_ROWS // locks_a_row)


class BearableRows:
    """The most rows of a claim that the server can bear; no limit until it refuses a claim as too large."""

    #: After this number of claims of one size a larger one is tried; at once after several refusals running.
    _CLAIMS = 20
    #: A claim without a limit that was too large counts as one of this number of rows.
    _LARGEST = 1_000_000

    def __init__(self) -> None:
        self.rows = HIGHEST
        #: How many claims were borne since it refused one, and after how many a larger one is tried.
        self._borne, self._patience = 1, self._CLAIMS

    def too_large(self, rows: int) -> None:
        """Note that the server had too little memory, or too few locks, for a claim of up to these rows."""
        # It may refuse claims of any size for a while. Then nothing is known of the size.
        self._patience = self._CLAIMS if self._borne else 1
        self.rows, self._borne = max(1, min(rows, self._LARGEST) // 2), 0

    def borne(self) -> None:
        """Note a claim that the server could bear."""
        self._borne += 1
        if self._borne % self._patience == 0:
            self.rows = min(2 * self.rows, HIGHEST)


class SinkCost:
    """What a batch costs in seconds: ``fixed`` whatever is in it, and ``each`` a row.

    Both are estimated from the rows and the seconds of the batches alone: a Kalman filter of two values.
    https://en.wikipedia.org/wiki/Kalman_filter
    """

    #: The noise of a batch's time, and how much both costs may change from one batch to the next; as parts.
    _NOISE, _DRIFT = 0.2, 0.05
    #: A batch that lasts three deviations longer or shorter than expected counts as three: it may be a pause.
    #: So it leaves the doubt as large as it was.
    _SURPRISE = 3.0
    #: This number of batches running that are all longer, or all shorter, is no pause: the cost has changed.
    _CHANGED = 4

    def __init__(self) -> None:
        self.fixed = self.each = 0.0
        #: The variances of ``fixed`` and ``each``, and between them their covariance. None: nothing is known.
        self._variances: tuple[float, float, float] | None = None
        #: How many surprises running there were; below zero where the batches were shorter.
        self._surprises = 0

    @property
    def doubt(self) -> float:
        """The deviation of ``fixed``, in seconds."""
        return 0.0 if self._variances is None else math.sqrt(max(0.0, self._variances[0]))

    def of(self, rows: int) -> float:
        """How long a batch of this number of rows is expected to last, in seconds."""
        return self.fixed + rows * self.each

    def learn(self, rows: int, seconds: float) -> None:
        """Learn from one batch. The first one is taken for half fixed cost: it cannot tell."""
        if self._variances is None:
            half = seconds / 2
            self.fixed, self.each = half, half / rows
            self._variances = half**2, 0.0, (half / rows) ** 2
            return
        of_fixed, of_both, of_each = self._variances
        of_fixed += (self._DRIFT * self.fixed) ** 2
        of_each += (self._DRIFT * self.each) ** 2
        noise = self._NOISE * max(self.of(rows), 0.01)
        variance = of_fixed + 2 * rows * of_both + rows**2 * of_each + noise**2
        most = self._SURPRISE * math.sqrt(variance)
        off = seconds - self.of(rows)
        surprise, off = (off > most) - (off < -most), max(-most, min(most, off))
        self._surprises = surprise + (self._surprises if surprise * self._surprises > 0 else 0)
        if abs(self._surprises) >= self._CHANGED:
            self._variances, self._surprises = None, 0
            self.learn(rows, seconds)
            return
        to_fixed, to_each = (of_fixed + rows * of_both) / variance, (of_both + rows * of_each) / variance
        if not surprise:
            of_fixed, of_both, of_each = (
                of_fixed - to_fixed * (of_fixed + rows * of_both),
                of_both - to_fixed * (of_both + rows * of_each),
                of_each - to_each * (of_both + rows * of_each),
            )
        fixed, each = self.fixed + to_fixed * off, self.each + to_each * off
        self.fixed = max(0.0, fixed)
        # No batch has a fixed cost below zero. What it would be below, the rows cost less.
        self.each = max(1e-9, each + of_both / of_fixed * (self.fixed - fixed))
        self._variances = of_fixed, of_both, of_each


class BatchSize:
    """The rows of the next batch, learned from the time that the last ones took.

    The rows of a batch take eight times as long as its fixed cost. They take at least ``target``, and the
    batch at most ``longest``.

    :param rows: those of the first batch.
    :param target: how long the rows of a batch should take at least, in seconds.
    :param longest: how long a batch may last, in seconds.
    :param most: the most rows of a batch.
    :param told: whether a program tells when a batch is done. Else its time has a trigger's pause in it.
    """

    #: The least rows of a batch, however long it lasts.
    _LEAST = 10
    #: How many times longer than the fixed cost the rows take.
    _SHARE = 8.0
    #: The greatest growth from one batch to the next.
    _GROWTH = 4.0
    #: Two batches whose sizes differ by this factor tell the fixed cost apart. The second one has four times
    #: the rows where it can, else a quarter.
    _APART = 2.0
    #: A size that is wrong by less than this part stays.
    _CALM = 0.25
    #: A batch that may last longer than these seconds counts less fixed cost than is likely: a part of the
    #: doubt, more with each batch. A smaller batch that follows then clears the doubt.
    _LONG, _CAUTION, _MOST_CAUTION = 4.0, 0.1, 0.3
    #: A first batch has Spark's start in its time, so that this factor more rows fit than it shows. Few rows
    #: (``_FEW``) are those of a slow function, beside which the start is short.
    _COLD = 1.5
    #: Noise may have made a batch short, so that only this part of what its time shows surely fits.
    _SURE = 0.92
    #: A batch with this part of its size is full. Only then does the size grow.
    _FULL = 0.8
    #: How long a batch lasts beside neighbours: this number of seconds, or of fixed costs if that is more.
    _BESIDE_SECONDS, _BESIDE_FIXED = 1.0, 2.0
    #: Where the doubt is more than this part of a batch's time, twice the rows are to clear it.
    _DOUBTFUL = 0.25
    #: A batch that lasts this factor longer than the one before is no more a short one and a pause.
    _PAUSES = 1.1
    #: The rows of a first batch beside neighbours, or of a slow function; and rows stepped over in a moment.
    _FEW, _HARMLESS = 300, 20_000

    def __init__(self, rows: int, target: float, longest: float, most: int, *, told: bool = False) -> None:
        self._told = told
        self._target, self._longest, self._most = min(target, longest), longest, most
        self._cost = SinkCost()
        self.rows = min(rows, most)
        #: How many rows the last batch had, and how long it lasted.
        self.had, self.lasted = 0, target
        #: The part of these rows that the sink was given: those that have expired cost it nothing.
        self._live = 1.0
        self._more = False
        #: The sizes of the smallest and the largest batch that the cost was learned from, and their number.
        self._smallest, self._largest, self._learned = most, 0, 0

    @property
    def next_most(self) -> int:
        """The most rows that the next batch is likely to have, while this one runs."""
        return self.rows if self._known or self._learned > 1 else self._times(self._GROWTH)

    @property
    def _known(self) -> bool:
        """Whether batches of different sizes have told the fixed cost. A pause in one leaves doubt."""
        return self._largest >= self._APART * self._smallest and self._cost.doubt < self.lasted

    @property
    def beside_seconds(self) -> float:
        """How long a batch lasts beside neighbours."""
        return max(self._BESIDE_SECONDS, min(self._longest, self._BESIDE_FIXED * self._cost.fixed))

    @property
    def beside_neighbours(self) -> int:
        """The rows of the next batch beside neighbours."""
        if not self.had:
            return min(self.rows, self._FEW)
        if not self._known:  # the next size is to be so different that the fixed cost shows
            factor = self._GROWTH if self.had <= self._HARMLESS else 1 / self._GROWTH
        elif self._cost.fixed >= self._longest:
            return self.rows
        else:
            seconds = max(self.beside_seconds - self._cost.fixed, self.beside_seconds / self._BESIDE_FIXED)
            factor = max(seconds / self._cost.each / self.had, self._SURE * self.beside_seconds / self.lasted)
        return min(self.rows, self._times(factor))

    def begins(self, rows: int, *, live: int | None = None, more: bool = False) -> None:
        """Note that a batch of this number of rows begins.

        :param live: how many of them have not expired; None where all have not.
        :param more: whether more were there. Its claim may have ended before its size.
        """
        self.had, self._more = rows, more or rows >= self._FULL * self.rows
        self._live = 1.0 if live is None else live / rows

    def done(self, seconds: float, *, cold: bool = False) -> None:
        """Note how long that batch lasted.

        :param cold: its time has the start of Spark's workers in it, so it can only show that more rows fit.
        """
        before, self.lasted = self.lasted, max(seconds, 0.001)
        seconds = self.lasted
        if cold:
            if self._more:
                more = self._COLD if self.had > self._FEW else 1.0
                self.rows = max(self.rows, self._times(self._live * more * self._longest / seconds))
            return
        if not self._more and self.had < self.rows / self._GROWTH:
            return  # a small batch says nothing of a large one
        live = round(self._live * self.had)
        fits = self._SURE * self._longest / max(seconds, self._cost.of(live))
        self._cost.learn(live, seconds)
        self._smallest, self._largest = min(self._smallest, live), max(self._largest, live)
        self._learned += 1
        wanted = self._next(fits, before)
        if not self._more:
            wanted = min(wanted, self.rows)
        if abs(wanted - self.rows) > self._CALM * self.rows or wanted == self._most:
            self.rows = wanted

    def _next(self, fits: float, before: float) -> int:
        """The size that a full batch is followed by.

        :param fits: how many times more rows fit, if every second of the last batch was for rows.
        :param before: how long the batch before it lasted.
        """
        if not self._known:
            return self._apart(self._live * fits)
        if self._cost.fixed < self._longest:
            wanted = self._wanted()
            if self._cost.doubt > self._DOUBTFUL * self.lasted:  # equal sizes never tell
                wanted = max(wanted, self._times(self._APART))
            return min(wanted, self._times(fits) if fits < 1 else max(self.rows, self._times(fits)))
        # A job that slows down because its messages fail pauses for longer than a batch may last. A stream
        # that tells nothing has a trigger that comes once a minute, for example.
        if self._told:
            return self._times(1 / self._GROWTH)
        fits = self._longest / self.lasted  # a batch that lasts longer than the pause has none
        return self._times(fits if self.lasted > self._PAUSES * before else self._GROWTH)

    def _times(self, factor: float) -> int:
        """The rows of the last batch times this factor, within limits."""
        return min(self._most, max(self._LEAST, int(self.had * min(self._GROWTH, factor))))

    def _apart(self, fits: float) -> int:
        """A size that is so different from the last one that the fixed cost shows."""
        if not self._more:
            return self.rows
        if fits >= self._APART and self._times(fits) >= self._APART * self.had:
            return self._times(fits)
        return self._times(1 / self._GROWTH) if self.lasted > self._target else self.rows

    def _wanted(self) -> int:
        cost = self._cost
        caution = min(self._MOST_CAUTION, self._CAUTION * self._learned) if self.lasted > self._LONG else 0.0
        fixed = max(0.0, cost.fixed - caution * cost.doubt)
        each = cost.each + (cost.fixed - fixed) / (self._live * self.had)
        seconds = max(self._target, min(self._SHARE * fixed, self._longest - fixed))
        # The next rows may all be live: even then the batch lasts no longer than it may.
        rows = max(seconds, min(seconds / self._live, self._longest - fixed)) / each
        return min(self._most, max(self._LEAST, int(rows)))
