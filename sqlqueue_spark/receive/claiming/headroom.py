"""Leaves the oldest free rows to neighbours: other consumers of the queue, which take one row a transaction.

Each of their receives steps over every locked row at the head of the queue, so a claim at the head would slow
them to a crawl. Where neighbours are seen, a claim begins behind a *headroom*: as many of the oldest free
rows as they take while a batch lasts, with a margin. Why these figures: docs/decisions/headroom.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlqueue_spark import plain_text
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BatchSize
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queues import Oldest, Queue

log = plain_text.logger(__name__)

#: How many rows behind a claim are remembered. If some have gone by the next claim, a neighbour took them.
_SAMPLE = 16
#: A claim of at most this number of rows is searched for rows that a neighbour holds.
_SEARCHED = 1_000
#: The headroom before it is known how fast the neighbours are, and its least and its greatest size.
_FIRST, _LEAST, _MOST = 4_000, 32, 1_000_000
#: The greatest size beside another stream of ours: what it takes cannot be told from what neighbours take.
_MOST_SHARED = 32_000
#: How many locked rows neighbours step over in a second.
_STEPPED_OVER = 100_000
#: The headroom lasts at least twice as long as a batch.
_MARGIN = 2.0
#: While a backlog waits, it is filled up for this time at once. In between neighbours meet no row of ours.
_STOCK_SECONDS = 8.0
#: Where the neighbours have taken all of it, their pace is not known: it grows by this factor.
_GROWTH = 4
#: Neighbours that have taken nothing for this time, and at this number of looks, are gone. The time doubles
#: each time they come back soon, up to the last one.
_GONE_SECONDS, _GONE_LOOKS, _MOST_GONE_SECONDS = 5.0, 2, 60.0
#: A session that holds or seeks rows and has taken none for this time is forgotten: it may do so for ever.
_IDLE_SECONDS = 2.0
#: A neighbour that this number of looks running have seen during a batch counts.
_SIGHTINGS = 2
#: How long the neighbours' pace is measured before the first headroom, and among how many rows.
_MEASURED_SECONDS, _MEASURED_ROWS = 0.25, 8_000


@dataclass
class _Left:
    """What was left to the neighbours at the last look; without values: nothing that is known."""

    #: No row of interest stands at or below this one.
    floor: int = LOWEST
    #: The last row that was left.
    up_to: int = LOWEST
    #: How many free rows that were.
    rows: int = 0
    #: When it was looked.
    seconds: float = 0.0
    #: Whether these are as many as there should be.
    enough: bool = True


class Headroom:
    """How many rows are left to neighbours, and where a claim may begin.

    :param wanted: a fixed size; 0 leaves no rows; None follows the neighbours' pace.
    :param size: how many rows the batches of the stream have, and how long they last.
    """

    def __init__(
        self, wanted: int | None, clock: Callable[[], float], sleep: Callable[[float], None], size: BatchSize
    ) -> None:
        self._wanted = wanted
        self._clock = clock
        self._sleep = sleep
        self._size = size
        #: How many free rows a claim leaves at least; 0 while no neighbour is seen.
        self.rows = wanted or 0
        self._left = _Left()
        #: How long the neighbours' pace was measured in all.
        self.measured_seconds = 0.0
        #: When the neighbours last took a row, and how many looks ago; whether they ever took one.
        self._taken_at, self._looks_since, self._took = clock(), 0, False
        #: After how long without a row they count as gone, and when they were last gone.
        self._gone_seconds, self._gone_at = _GONE_SECONDS, float("-inf")
        #: Whether it was looked before the first claim, and how many looks running have seen neighbours.
        self._looked, self._sightings = False, 0
        #: Rows that the neighbours take in a second.
        self._pace = 0.0
        #: The greatest size.
        self._most = _MOST
        #: The last row that was ever claimed.
        self._claimed_to = LOWEST
        #: Whether a limit has ended the last claim, so that a backlog waits behind it.
        self._backlog = False
        #: How many rows sessions held that took none, and how many looked. They may do so for ever.
        self._known_held, self._known_looking = 0, 0

    @property
    def beside_neighbours(self) -> bool:
        return self.rows > 0 or self._sightings >= _SIGHTINGS

    @property
    def left(self) -> int:
        """How many free rows were left to neighbours at the last look."""
        return self._left.rows if self.rows else 0

    @property
    def end(self) -> int:
        """The last row that is left to neighbours; claims begin above it."""
        return self._left.up_to if self.rows else LOWEST

    def limited(self, limits: BatchLimits, *, told: bool = True) -> BatchLimits:
        """The limits of the next claim: beside neighbours a batch is short.

        :param told: whether it is told who looks for a row. Else neighbours are seen when they have taken
            one, so they must be able to step over the claim while its batch lasts.
        """
        if self.rows:
            return limits.at_most(self._size.beside_neighbours)
        if told or self._wanted == 0:
            return limits
        return limits.at_most(int(_STEPPED_OVER * max(1.0, self._size.lasted)))

    def begin(self, queue: Queue, most: int = HIGHEST) -> int:
        """Look what neighbours do; return above which row ``most`` rows are claimed: ``HIGHEST`` for none."""
        if self._wanted == 0:
            return LOWEST
        now = self._clock()
        if not self.rows and not self._appear(queue, most):
            return LOWEST
        left, asked = self._left, self.rows
        looked = self._look(queue, left, asked)
        if not looked.enough and self._claimed_to > left.up_to:  # a number far ahead may have been claimed
            self._claimed_to = LOWEST
            looked = self._look(queue, left, asked)
        self._note(looked, left, now)
        if not self.rows:
            log.info("neighbours_gone queue=%s: they have taken nothing for %.0f s", queue.table.name,
                     now - self._taken_at)  # fmt: skip
            self._left, self._claimed_to = _Left(), LOWEST  # numbers may have begun again
            return LOWEST
        self._left = self._filled(queue, left, looked, asked, now)
        log.debug("headroom queue=%s rows=%d taken=%d left=%d held=%d pace=%.0f batch=%d seconds=%.2f "
                  "look=%.3f", queue.table.name, self.rows, left.rows - looked.free_before, self._left.rows,
                  looked.held, self._pace, self._size.beside_neighbours, self._size.lasted,
                  self._clock() - now)  # fmt: skip
        return self._left.up_to if self._left.enough else HIGHEST

    @property
    def watches(self) -> bool:
        """Whether it is worth to look for neighbours while a batch runs."""
        return self._wanted != 0 and not self.rows

    def sees(self, queue: Queue) -> bool:
        """Look who looks for a row while a batch runs; True if two looks running have seen a neighbour."""
        looking = queue.oldest(HIGHEST, HIGHEST, HIGHEST, 1).looking
        self._sightings = self._sightings + 1 if looking > self._known_looking else 0
        self._known_looking = min(self._known_looking, looking)  # other sessions may come in their place
        return self._sightings >= _SIGHTINGS

    def appeared(self, queue: Queue) -> bool:
        """Whether neighbours are seen that were not there when the last claim was made."""
        if self.rows or self._wanted == 0 or not self._seen_since(queue):
            return False
        self._sightings = _SIGHTINGS
        return True

    def claimed(self, queue: Queue, after: int, part: QueueRows | None) -> None:
        """Note what was claimed above ``after``, and look for neighbours beside it if none was seen yet."""
        self._backlog = part is not None and part.full
        if self._wanted == 0 or part is None:
            return
        self._claimed_to = max(self._claimed_to, part.last)
        if self.rows:
            return
        self._left = _Left()  # of these rows some may be among the claimed ones
        if part.full:
            seen = queue.oldest(part.last, part.last, part.last, _SAMPLE)
            self._left = _Left(seen.floor, seen.last, seen.free, self._clock())
        elif part.count <= _SEARCHED:
            seen = queue.oldest(after, after, after, _SAMPLE)
        else:
            return
        if self._new_holder(seen):
            self._begins(queue, 0.0)

    def forget_claims(self) -> None:
        """Forget where claims have ended: one was given up or lost, so free rows may stand anywhere."""
        self._claimed_to = LOWEST
        if not self.rows:
            self._left = _Left()

    # -- what the neighbours do ------------------------------------------------------------------

    def _appear(self, queue: Queue, most: int) -> bool:
        """Whether a neighbour was seen during the batch, or rows behind the last claim were taken since."""
        if not self._looked:
            return self._runs_already(queue, most)
        floor, sighted = self._left.floor, self._sightings >= _SIGHTINGS
        if sighted:
            # A claim ahead was given up, and it is not known which rows the neighbour has taken or given
            # back: the oldest free row may stand anywhere.
            self._claimed_to = floor = LOWEST
        elif not self._seen_since(queue):
            return False
        self._sightings = 0
        self._begins(queue, self._measured(queue, queue.oldest(LOWEST, LOWEST, LOWEST, _MEASURED_ROWS)))
        self._left = _Left(floor, floor)
        return True

    def _seen_since(self, queue: Queue) -> bool:
        """Whether rows behind the last claim were taken since, or a neighbour holds one or looks for one."""
        before, self._left = self._left, _Left()
        if not before.rows:
            return False
        seen = queue.oldest(before.floor, before.up_to, before.up_to, _SAMPLE)
        return (seen.free_before < before.rows and not seen.streams) or self._new_holder(seen)

    def _runs_already(self, queue: Queue, most: int) -> bool:
        """Whether neighbours take rows before the first claim. When it is looked, they may hold none."""
        self._looked = True
        before = queue.oldest(LOWEST, LOWEST, LOWEST, _MEASURED_ROWS)
        if not _holders(before) and min(before.free, most) < _MEASURED_ROWS:
            return False
        if pace := self._measured(queue, before):
            self._begins(queue, pace)
        return pace > 0

    def _new_holder(self, seen: Oldest) -> bool:
        """Whether more sessions hold rows, or look for one, than when the neighbours were taken for gone."""
        holders = _holders(seen)
        new = holders > self._known_held
        self._known_held = min(self._known_held, holders)
        return new

    def _begins(self, queue: Queue, pace: float) -> None:
        now = self._clock()
        soon = now - self._gone_at <= _MOST_GONE_SECONDS
        self._gone_seconds = min(_MOST_GONE_SECONDS, 2 * self._gone_seconds) if soon else _GONE_SECONDS
        self._taken_at, self._looks_since, self._took = now, 0, False
        self._pace = pace
        known = int(_MARGIN * self._pace * self._size.beside_seconds)
        # Behind a batch the pace may be that of receivers which have starved in it, and just begin again.
        least = min(_FIRST, self._size.had) or (_LEAST if known else _FIRST)
        self.rows = self._wanted or max(least, known)
        log.info("neighbours_seen queue=%s headroom=%d pace=%.0f", queue.table.name, self.rows, self._pace)

    def _measured(self, queue: Queue, before: Oldest) -> float:
        """How many rows a second the neighbours take after a look, while the stream holds none.

        It is 0 where that is not known: another stream of ours takes rows, too.
        """
        if before.streams or self._wanted is not None:
            return 0.0
        self._sleep(_MEASURED_SECONDS)
        self.measured_seconds += _MEASURED_SECONDS
        after = queue.oldest(before.floor, before.last, before.last, 1)
        taken = max(0, before.free - after.free_before)  # they may also give rows back
        return taken / _MEASURED_SECONDS

    def _look(self, queue: Queue, left: _Left, count: int) -> Oldest:
        return queue.oldest(left.floor, left.up_to, max(left.up_to, self._claimed_to), count)

    def _filled(self, queue: Queue, left: _Left, looked: Oldest, asked: int, now: float) -> _Left:
        """What is left to the neighbours from now on.

        Rows that were left stay so, while they are enough and not too many. Then no row that the stream
        drains stands before a row of the neighbours, until the headroom is filled up.

        :param looked: a look for as many rows as were ``asked`` for.
        """
        # Never less than was asked for, so it shrinks one look later: a neighbour that pauses keeps its rows.
        stock = max(asked, self.rows)
        if self._wanted is None and self._backlog:
            stock = max(stock, min(self._most, int(_STOCK_SECONDS * self._pace)))
        if self.rows <= looked.free_before <= stock:
            return _Left(looked.floor, left.up_to, looked.free_before, now)
        if stock > asked and (more := self._look(queue, left, stock)).enough:
            looked = more
        elif self.rows > asked:
            looked = self._look(queue, left, self.rows)
        return _Left(looked.floor, looked.last, looked.free, now, looked.enough)

    def _note(self, looked: Oldest, left: _Left, now: float) -> None:
        """Learn from what is left of the rows that were left at the last look."""
        taken = left.rows - looked.free_before
        if taken <= 0:  # who pauses finds the same headroom again
            self._looks_since += 1
            may_be_dead = _holders(looked) > 0 and not self._took
            patience = _IDLE_SECONDS if may_be_dead else self._gone_seconds
            if now - self._taken_at >= patience and self._looks_since >= _GONE_LOOKS:
                self.rows, self._known_held, self._known_looking = 0, _holders(looked), looked.looking
                self._gone_at = self._gone_at if may_be_dead else now
            return
        self._taken_at, self._looks_since, self._took = now, 0, True
        self._most = _MOST_SHARED if looked.streams else _MOST
        if self._wanted is None and left.rows and now > left.seconds:
            self.rows = self._grown(taken, left, now - left.seconds)

    def _grown(self, taken: int, left: _Left, seconds: float) -> int:
        """The size of the headroom, when ``taken`` rows were taken from it within this time."""
        if taken >= left.rows:
            return min(self._most, _GROWTH * self.rows)
        self._pace = max(taken / seconds, self._pace / 2)
        wanted = int(_MARGIN * self._pace * max(self._size.beside_seconds, self._size.lasted))
        return min(self._most, max(_LEAST, self.rows // 2, wanted))


def _holders(seen: Oldest) -> int:
    """How many rows neighbours hold, but at least how many of them look for one.

    A receive that steps over all rows of a fast stream looks for seconds. It would find no row if the stream
    did not see it.
    """
    return max(seen.held, seen.looking)
