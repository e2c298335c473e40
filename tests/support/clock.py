"""A time of a test's own."""

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any
from unittest import mock


def wrong_clock(module: ModuleType, **by: float) -> AbstractContextManager[Any]:
    """A block in which the machine's clock is wrong for a module of the package, by these hours or days."""
    wrong = mock.Mock(wraps=datetime, now=lambda zone: datetime.now(zone) + timedelta(**by))
    return mock.patch.object(module, "datetime", wrong)


class Clock:
    """A clock that only sleeping moves, and the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
