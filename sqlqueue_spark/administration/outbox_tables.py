"""What people do to outbox tables from outside: create, clean and look into them.

Values in, values out; every function opens a connection of its own and closes it. Nothing here blocks senders.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlqueue_spark.engines.connections import Connection, Target, connect
from sqlqueue_spark.engines.dialects import OUTBOX_DATABASES
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.progress import Progress, untold
from sqlqueue_spark.tables import ddl, queue_admin
from sqlqueue_spark.tables.outbox import OutboxReport, OutboxTable, create_statements
from sqlqueue_spark.tables.outbox_cleanup import forget


@dataclass(frozen=True, kw_only=True)
class Created:
    """An outbox table that is there now; ``new`` if it was not before."""

    outbox: str
    new: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """What an outbox table holds."""

    outbox: str
    found: OutboxReport


def create(options: ConnectionOptions, endpoint: str) -> Created:
    """Create an endpoint's outbox table if it is not there yet; safe when others do the same at the same time.

    :raises ConfigurationError: the engine has no table of such a name, or the schema is not there.
    :raises QueueError: the name belongs to something else than a table.
    """
    with _opened(options, endpoint) as (connection, outbox):
        table = Table(table=outbox.table, schema=outbox.schema or "")
        new = ddl.once(connection, lambda: _create(connection, outbox, table), outbox.exists)
        return Created(outbox=outbox.name, new=new)


def script(engine: str, endpoint: str, *, default_schema: str | None = None) -> str:
    """A script that creates an endpoint's outbox table, for a database administrator; needs no connection.

    It may be run any number of times.

    :param engine: one of the four that keep outbox tables.
    """
    database = OUTBOX_DATABASES[engine]
    table = database.outbox_table(endpoint)
    names = database.outbox_names(default_schema or database.default_schema, table)
    begin = database.written_out(
        "script_begin", [names["outbox"]] if "?" in database.statement("script_begin") else []
    )
    body = ";\n".join(create_statements(database, names))
    return "\n".join(part for part in (begin, body, database.statement("script_end")) if part) + "\n"


def cleanup(
    options: ConnectionOptions,
    endpoint: str,
    keep: timedelta,
    *,
    progress: Progress = untold,
) -> int:
    """Forget the message ids that are older than ``keep``; how many those were.

    Each batch is a transaction of its own. Rows that others hold stay, and so do those that are not dispatched.
    """
    with _opened(options, endpoint) as (connection, outbox):
        return forget(connection, outbox, keep, progress)


def report(options: ConnectionOptions, endpoint: str) -> Report:
    """How many ids an outbox table remembers, since when, and what a .NET endpoint left there undispatched."""
    with _opened(options, endpoint) as (connection, outbox), connection.transaction():
        return Report(outbox=outbox.name, found=outbox.report())


@contextlib.contextmanager
def _opened(options: ConnectionOptions, endpoint: str) -> Iterator[tuple[Connection, OutboxTable]]:
    """An endpoint's outbox table on a connection of its own."""
    with connect(Target.of(options)) as connection:
        yield connection, OutboxTable(connection, endpoint, options.default_schema)


def _create(connection: Connection, outbox: OutboxTable, table: Table) -> bool:
    if outbox.exists():
        return False
    if not queue_admin.schema_exists(connection, table, queue_admin.database(connection)):
        dialect = connection.dialect
        remedy = dialect.render("create_schema", schema=dialect.quote(table.schema))
        raise ConfigurationError(
            f"There is no schema {table.schema!r} for the outbox table {outbox.name}; create it with: {remedy}, or "
            "correct the schema."
        )
    queue_admin.lock_creation(connection, table)
    if outbox.exists():
        return False
    try:
        outbox.create()
    except QueueError as error:
        raise QueueError(
            f"Something else than a table is called {outbox.name} (a view, say), so the outbox table was not created; "
            "choose another endpoint."
        ) from error
    return True
