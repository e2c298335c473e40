"""Connections to databases: the only importer of database drivers, and the one place that translates their errors."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from sqlqueue_spark.engines.connection import BATCH_BYTES, BATCH_ROWS, Connection, Reader, Target
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "Connection",
    "Reader",
    "Target",
    "connect",
    "open_reader",
]


def connect(target: Target, *, again: bool = False) -> Connection:
    """Open a connection; statements on it run in one transaction until commit or rollback.

    :param again: the database was reached before. One that fails over refuses logins for a while.
    :raises ConfigurationError: the login is refused, or a driver is missing; not again.
    :raises ConnectionLost: no database answers; again, also when it lets nobody in.
    """
    try:
        return _driver(target).connect(target)  # type: ignore[no-any-return] # a module chosen by name
    except ConfigurationError as error:
        if not again:
            raise
        raise ConnectionLost(str(error)) from error


def open_reader(target: Target) -> Reader:
    """Open a connection that only reads, as Arrow record batches. Errors as :func:`connect`, some when it first reads."""
    return _driver(target).open_reader(target)  # type: ignore[no-any-return] # a module chosen by name


def _driver(target: Target) -> ModuleType:
    """The engine's driver module, imported late: nobody needs both drivers."""
    try:
        return import_module(f"sqlqueue_spark.engines.{target.dialect.name}.connection")
    except ImportError as error:
        raise ConfigurationError(
            f"The driver for {target.dialect.title} cannot be loaded ({error}); install it with: "
            f"pip install 'sqlqueue-spark[{target.dialect.name}]'."
        ) from error
