"""What a neighbour has done, in numbers."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(kw_only=True)
class Counts:
    """Of one thread, or added up. Each counts what was committed, but for the last seven."""

    handled: int = 0
    replied: int = 0
    #: Copies that were sent to subscribers.
    published: int = 0
    sent: int = 0
    #: In transit, and sent on.
    moved_on: int = 0
    #: Unreadable, and moved to the error queue as they were.
    poison: int = 0
    #: Moved to the error queue because handling them failed again and again.
    failed: int = 0
    #: Put into ``<queue>.Delayed`` for that, to be tried again later.
    retried_later: int = 0
    expired: int = 0
    #: Put from ``<queue>.Delayed`` into the queue.
    delivered: int = 0
    looks: int = 0
    #: Receives that found nothing.
    empty: int = 0
    rolled_back: int = 0
    #: Handlers that have failed.
    failures: int = 0
    #: Receives that have ended with a row which cannot be received.
    stood_still: int = 0
    #: Deliveries of delayed messages that have failed.
    undelivered: int = 0
    #: Connections that were lost.
    lost: int = 0
    #: How many messages it handled in each second of its life.
    by_second: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Self) -> Self:
        return type(self)(
            **{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        )

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "by_second": {str(second): n for second, n in self.by_second.items()}}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        by_second = Counter({int(second): n for second, n in found["by_second"].items()})
        return cls(**{**found, "by_second": by_second})
