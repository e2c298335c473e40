"""One check: its name, whether all is well, and what it found or what to do."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from sqlqueue_spark.errors import SqlQueueError


class State(Enum):
    FINE = auto()
    WRONG = auto()
    #: Not needed, or not tried.
    OPEN = auto()


@dataclass(frozen=True, kw_only=True)
class Check:
    """:ivar said: what was found, or the remedy in one sentence."""

    name: str
    state: State
    said: str


class Wrong(SqlQueueError):
    """Something is wrong; the text says in one sentence what to do."""


class Open(Exception):
    """A check has no result. The text says why it was not tried or is not needed."""


def checked(name: str, look: Callable[[], str]) -> Check:
    """:param look: returns what it found, or raises :class:`Wrong`, :class:`Open` or another error."""
    try:
        return Check(name=name, state=State.FINE, said=look())
    except Open as why:
        return Check(name=name, state=State.OPEN, said=str(why))
    except SqlQueueError as remedy:
        return Check(name=name, state=State.WRONG, said=str(remedy))
