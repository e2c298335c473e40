"""Administers outbox tables: creates, cleans and measures them, without blocking senders."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlqueue_spark.administration import Progress, untold
from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import ddl
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.ddl import Created
from sqlqueue_spark.tables.outbox import OutboxReport, OutboxTable
from sqlqueue_spark.tables.outbox_cleanup import forget
from sqlqueue_spark.tables.scripts import script_of


@dataclass(frozen=True, kw_only=True)
class Report:
    outbox: str
    database: str
    found: OutboxReport


def create(options: ConnectionOptions, endpoint: str) -> Created:
    """Create an endpoint's outbox table as :func:`create_if_missing` does."""
    with _opened(options, endpoint) as outbox:
        return ddl.create(outbox)


def script(engine: str, endpoint: str, *, default_schema: str | None = None) -> str:
    """Return the SQL script that creates an endpoint's outbox table. It may be run several times."""
    writer = OUTBOX_DATABASES[engine]
    return script_of(OutboxTable, writer, writer.outbox_table(endpoint, default_schema))


def cleanup(
    options: ConnectionOptions, endpoint: str, keep: timedelta, *, progress: Progress = untold
) -> int:
    """Delete the message ids that are older than ``keep``, in several transactions; return how many.

    Rows that other sessions have locked stay, and so do rows that are not dispatched.
    """
    with _opened(options, endpoint) as outbox:
        return forget(outbox, keep, progress)


def report(options: ConnectionOptions, endpoint: str) -> Report:
    with _opened(options, endpoint) as outbox, outbox.connection.transaction():
        return Report(outbox=outbox.name, database=database(outbox.connection), found=outbox.report())


@contextlib.contextmanager
def _opened(options: ConnectionOptions, endpoint: str) -> Iterator[OutboxTable]:
    with connect(Target.of(options)) as connection:
        yield OutboxTable(connection, endpoint, options.default_schema)
