"""Whether everything is there that a stream needs, and what is to be done about what is not: a line a check.

Nothing here changes anything, and no line ever shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlqueue_spark.engines.dialects import Dialect, dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor import database_checks, driver_checks, machine_checks
from sqlqueue_spark.inspection.doctor.checks import Check, State
from sqlqueue_spark.options import ConnectionOptions

__all__ = ["Check", "State", "examine"]


def examine(
    options: ConnectionOptions | None = None, queue: str | None = None, *, role: str | None = None
) -> Iterator[Check]:
    """Look at this machine and, where options lead to a database, at the way to it and to a queue.

    Each check is made as it is asked for; one that fails keeps no other from being made that can be.

    :param role: what the login is for, receiver or sender; without one, either will do.
    """
    yield from machine_checks.checks()
    yield from driver_checks.checks(_engine(options), None if options is None else options.url)
    if options is not None:
        yield from database_checks.checks(options, queue, role)


def _engine(options: ConnectionOptions | None) -> Dialect | None:
    try:
        return None if options is None else dialect_of(options.url)
    except ConfigurationError:  # which is told where the url is looked at
        return None
