"""Waits for what must come, never for a length of time."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within: timedelta = timedelta(seconds=30)) -> T:
    """The first truthy answer of ``look``; fails when there is none in time."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, (
            f"It did not happen within {within}; the last answer was {answer!r}."
        )
        time.sleep(0.02)
