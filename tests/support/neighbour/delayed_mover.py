"""When the mover of delayed messages looks next."""

from dataclasses import dataclass
from datetime import timedelta

_SHORTEST = 1.0  # seconds


@dataclass
class Pauses:
    """From a second on, each pause is twice the one before it, up to a minute; what was moved begins anew.

    It never sleeps longer than until the next message is due that it knows of. So what another sender
    puts there while it idles waits as long as that pause lasts: seen were 1 s after 1 s of quiet, 10 s after
    20 s, 32 s after 90 s.
    """

    longest: timedelta = timedelta(minutes=1)
    _present: float = _SHORTEST

    def after(self, moved: int, next_due: float | None) -> float:
        """How many seconds to rest after a look that has moved this number of messages.

        :param next_due: in how many seconds the next one is due that is there.
        """
        pause = _SHORTEST if moved else self._present
        self._present = min(pause * 2, self.longest.total_seconds())
        pause = min(pause, self.longest.total_seconds())
        return pause if next_due is None else min(pause, max(next_due, 0.0))
