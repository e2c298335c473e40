"""The shape of queue tables: creating the classic one, and scripts that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlqueue_spark.engines.connections import Connection
from sqlqueue_spark.engines.dialects import Dialect
from sqlqueue_spark.errors import ConfigurationError, Duplicate, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queue_admin, queues
from sqlqueue_spark.tables.stage import create_statements

#: The longest table name, and what is counted. PostgreSQL: 63 bytes less what index names add.
_LONGEST = {"sqlserver": (128, "characters"), "postgresql": (55, "bytes")}


def create(connection: Connection, table: Table) -> bool:
    """Create a queue table, in a transaction of its own; True if it was not there.

    Safe in a race: others who create the same table wait for one another, and "already there" is done.

    :raises ConfigurationError: the name is too long, or its schema is not there.
    :raises QueueError: the name belongs to something else than a table.
    """
    check_name(connection.dialect, table)
    return once(
        connection, lambda: _create(connection, table), lambda: queues.find(connection, table) is not None
    )


def once(connection: Connection, create: Callable[[], bool], exists: Callable[[], bool]) -> bool:
    """Create something in a transaction of its own; that somebody else was quicker is no error."""
    try:
        with connection.transaction():
            return create()
    except SqlQueueError as error:
        if isinstance(error, ConfigurationError | TryAgain) and not isinstance(error, Duplicate):
            raise
        # Somebody who takes no lock, or another one, may have been quicker.
        with connection.transaction():
            if exists():
                return False
        raise


def _create(connection: Connection, table: Table) -> bool:
    if queues.find(connection, table) is not None:
        return False
    if not queue_admin.schema_exists(connection, table, queue_admin.database(connection)):
        dialect = connection.dialect
        remedy = dialect.render("create_schema", schema=dialect.quote(table.schema))
        raise ConfigurationError(
            f"There is no schema {table.schema!r} for the queue {table}; create it with: {remedy}, or correct "
            "the schema."
        )
    queue_admin.lock_creation(connection, table)
    if queues.find(connection, table) is not None:
        return False
    queue_admin.create(connection, table)
    if queues.find(connection, table) is None:
        raise QueueError(
            f"Something else than a table is called {table} (a view, say), so the queue was not created; "
            "choose another name."
        )
    return True


def script(dialect: Dialect, wanted: Sequence[Table], stage: Table | None = None) -> str:
    """A script that creates these tables, for a database administrator to run as it is, any number of times.

    :param stage: also the stage of an atomic pipeline.
    :raises ConfigurationError: a name is too long.
    """
    parts = []
    for table in wanted:
        check_name(dialect, table)
        parts.append(_scripted(dialect, table, [dialect.render("create", queue=dialect.table(table))]))
    if stage is not None:
        parts.append(_scripted(dialect, stage, create_statements(dialect, stage)))
    return "".join(parts)


def _scripted(dialect: Dialect, table: Table, statements: Sequence[str]) -> str:
    begin = dialect.written_out("script_begin", [dialect.table(table)])
    return "\n".join((begin, ";\n".join(statements), dialect.written_out("script_end"), ""))


def check_name(dialect: Dialect, table: Table) -> None:
    """Refuse a table name that the database would cut.

    :raises ConfigurationError: it is too long.
    """
    longest, unit = _LONGEST[dialect.name]
    length = len(table.table.encode()) if unit == "bytes" else len(table.table)
    if length > longest:
        raise ConfigurationError(
            f"The queue name {table.table!r} is {length} {unit} long, but a queue table on {dialect.title} has "
            f"at most {longest}; choose a shorter name."
        )
