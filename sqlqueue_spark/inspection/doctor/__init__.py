"""Checks that everything a stream needs is there; each check says what it found or what to do.

The checks change nothing, and their texts hold no secrets.
"""

from collections.abc import Iterator
from contextlib import suppress

from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor import database_checks, machine_checks
from sqlqueue_spark.inspection.doctor.checks import Check, State
from sqlqueue_spark.options import ConnectionOptions

__all__ = ["Check", "State", "examine"]


def examine(
    options: ConnectionOptions | None = None, queue: str | None = None, *, role: str | None = None
) -> Iterator[Check]:
    """Check this machine and, if options are given, the way to a database and a queue.

    Each check runs when the iterator is advanced. After a failure, those that do not depend on it still run.

    :param role: the role of the login, receiver or sender. Without one the login passes if it can do either.
    """
    yield from machine_checks.checks()
    engine = None
    with suppress(ConfigurationError):  # reported by the check of the url
        engine = None if options is None else dialect_of(options.url)
    yield from machine_checks.drivers_of(engine, None if options is None else options.url)
    if options is not None:
        yield from database_checks.checks(options, queue, role)
