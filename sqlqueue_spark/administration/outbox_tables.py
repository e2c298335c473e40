"""What people do to outbox tables from outside: create them, clean them and look into them.

The functions take and return plain values; each opens a connection of its own and closes it. Nothing here blocks senders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.engines.registry import OUTBOX_DATABASES
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import ddl
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.outbox import OutboxReport, OutboxTable, create_statements
from sqlqueue_spark.tables.outbox_cleanup import forget
from sqlqueue_spark.tables.scripts import script_of


@dataclass(frozen=True, kw_only=True)
class Created:
    """An outbox table that is there now; ``new`` says that it was not there before."""

    outbox: str
    new: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an outbox table holds."""

    outbox: str
    database: str
    found: OutboxReport


def create(options: ConnectionOptions, endpoint: str) -> Created:
    """Create an endpoint's outbox table if it is not there yet; safe when others do the same at the same time.

    :raises ConfigurationError: the engine has no table of such a name, or the schema is not there.
    :raises QueueError: the name belongs to something else than a table.
    """
    with _opened(options, endpoint) as (connection, outbox):
        return Created(outbox=outbox.name, new=ddl.create_outbox(connection, outbox))


def script(engine: str, endpoint: str, *, default_schema: str | None = None) -> str:
    """A script that creates an endpoint's outbox table, for a database administrator; needs no connection.

    The administrator may run it any number of times.

    :param engine: one of the four engines that keep outbox tables.
    """
    writer = OUTBOX_DATABASES[engine]
    table = writer.outbox_table(endpoint)
    names = writer.outbox_names(default_schema or writer.default_schema, table)
    return script_of(writer, names["outbox"], create_statements(writer, names))


def cleanup(
    options: ConnectionOptions,
    endpoint: str,
    keep: timedelta,
    *,
    progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Forget the message ids that are older than ``keep``; returns how many those were.

    Each portion is a transaction of its own. Rows that others hold stay, and so do rows that are not dispatched.

    :param progress: is told how many more ids are forgotten.
    """
    with _opened(options, endpoint) as (connection, outbox):
        return forget(connection, outbox, keep, progress)


def report(options: ConnectionOptions, endpoint: str) -> Report:
    """How many ids an outbox table remembers, since when, and how many rows a .NET endpoint left there undispatched."""
    with _opened(options, endpoint) as (connection, outbox), connection.transaction():
        return Report(outbox=outbox.name, database=database(connection), found=outbox.report())


@contextlib.contextmanager
def _opened(options: ConnectionOptions, endpoint: str) -> Iterator[tuple[Connection, OutboxTable]]:
    """An endpoint's outbox table on a connection of its own."""
    with connect(Target.of(options)) as connection:
        yield connection, OutboxTable(connection, endpoint, options.default_schema)
