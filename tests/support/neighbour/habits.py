"""How a neighbour lives: a value, so that a process of its own can be told too."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class Habits:
    """The defaults are those of a .NET endpoint with an empty handler."""

    #: Most messages that it handles at a time.
    concurrency: int = 8
    #: For how long it handles each message.
    handling: timedelta = timedelta(0)
    #: The share of its receives that it rolls back when the message is handled.
    rolls_back: float = 0.0
    #: How often a message is tried again at once when its handler has failed.
    immediate_retries: int = 5
    #: How often a message is tried again later when that does not help:
    #: the n-th time after n times the increase.
    delayed_retries: int = 0
    delayed_retries_increase: timedelta = timedelta(seconds=10)
    #: Where failed and unreadable messages go; an address as the transport reads it.
    error_queue: str = "error"
    #: How long it rests when there is nothing free, or when it stands still, or when its connection was lost.
    rest: timedelta = timedelta(seconds=1)
    #: The message type of a reply to each message that says where to reply to.
    replies: str = ""
    #: The types of an event that it publishes for each message: the event's own,
    #: and then those that it inherits from.
    publishes: tuple[str, ...] = ()
    #: Whether it delivers what is due in ``<queue>.Delayed``.
    delivers_delayed: bool = False
    #: How long the mover of delayed messages rests at most.
    longest_pause: timedelta = timedelta(minutes=1)
    #: Whether the ids of the handled rows are kept.
    remembers: bool = True
    #: Of the dice that say which receives are rolled back.
    seed: str = ""
