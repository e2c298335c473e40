"""Checks whether everything that a stream needs is there, and says what to do about what is not: a line a check.

Nothing here changes anything, and no line ever shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlqueue_spark.engines.registry import Dialect, dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor import database_checks, driver_checks, machine_checks
from sqlqueue_spark.inspection.doctor.checks import Check, State
from sqlqueue_spark.options import ConnectionOptions

__all__ = ["Check", "State", "examine"]


def examine(
    options: ConnectionOptions | None = None, queue: str | None = None, *, role: str | None = None
) -> Iterator[Check]:
    """Check this machine and, where options lead to a database, the way to it and to a queue.

    A check runs when the caller asks for it. When one fails, all others still run that can run without it.

    :param role: what the login is for, receiver or sender. Without one the login passes if it can do either.
    """
    yield from machine_checks.checks()
    yield from driver_checks.checks(_engine(options), None if options is None else options.url)
    if options is not None:
        yield from database_checks.checks(options, queue, role)


def _engine(options: ConnectionOptions | None) -> Dialect | None:
    try:
        return None if options is None else dialect_of(options.url)
    except ConfigurationError:  # the check of the url tells it
        return None
