"""When to look again at a queue that had no rows: the pauses double, so that an idle stream costs little."""

from collections.abc import Callable
from datetime import timedelta

_FIRST_PAUSE = 0.05
#: Longest sleep inside one call, so that stopping the stream is not held up.
LONGEST_SLEEP = 0.25


class PollBackoff:
    """The pauses between looks, from 50 milliseconds up to ``longest``."""

    def __init__(
        self, longest: timedelta, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._longest = longest.total_seconds()
        self._clock = clock
        self._sleep = sleep
        self._empty_looks = 0
        #: When it is time to look, by the clock.
        self.next_look = 0.0

    def wait(self) -> None:
        """Sleep until it is time to look, but no longer than one call may."""
        pause = self.next_look - self._clock()
        if pause > 0:
            self._sleep(min(pause, LONGEST_SLEEP))

    @property
    def due(self) -> bool:
        return self._clock() >= self.next_look

    def found(self) -> None:
        """Something was there: look again at once."""
        self._empty_looks, self.next_look = 0, 0.0

    def nothing_found(self, *, then_end: bool = False) -> None:
        """Nothing was there: rest, unless the stream is to end now."""
        pause = min(self._longest, _FIRST_PAUSE * 2 ** min(self._empty_looks, 30))
        self._empty_looks += 1
        self.next_look = self._clock() + (0 if then_end else pause)
