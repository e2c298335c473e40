"""One check: what it looked at, how that is, and what was found or is to be done."""

from __future__ import annotations

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
    """``said`` is what was found, or the remedy in one sentence."""

    name: str
    state: State
    said: str


class Wrong(Exception):
    """What is to be done, in one sentence."""


class Open(Exception):
    """Why nobody can say, or need."""


def checked(name: str, look: Callable[[], str]) -> Check:
    """Make a check. ``look`` returns what it found, or raises :class:`Wrong`, :class:`Open` or an error of ours."""
    try:
        return Check(name=name, state=State.FINE, said=look())
    except Open as why:
        return Check(name=name, state=State.OPEN, said=str(why))
    except (Wrong, SqlQueueError) as remedy:
        return Check(name=name, state=State.WRONG, said=str(remedy))


def not_tried(name: str, why: str) -> Check:
    return Check(name=name, state=State.OPEN, said=f"not tried: {why}")
