"""A time of a test's own."""

import functools
import itertools
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any
from unittest import mock

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.receive.holding import settling


def wrong_clock(module: ModuleType, **by: float) -> AbstractContextManager[Any]:
    """A block in which the machine's clock is wrong for a module of the package, by these hours or days."""
    wrong = mock.Mock(wraps=datetime, now=lambda zone: datetime.now(zone) + timedelta(**by))
    return mock.patch.object(module, "datetime", wrong)


def impatient_settling() -> AbstractContextManager[Any]:
    """A block in which a batch that cannot be settled is given up after a few tries: by its clock
    a minute passes with each look.
    """
    clock = itertools.count(step=60.0).__next__
    return mock.patch.object(settling, "Retry", functools.partial(Retry, clock=clock))


class Clock:
    """A clock that only sleeping moves, and the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
