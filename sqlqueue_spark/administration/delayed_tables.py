"""What people do to tables of delayed messages from outside: create them, look into them, and deliver what is due.

The functions take and return plain values; each opens a connection of its own and closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlqueue_spark.engines.connect import Target, connect
from sqlqueue_spark.engines.registry import DIALECTS
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import ddl, delayed
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.delayed import DelayedTable
from sqlqueue_spark.tables.scripts import script_of

if TYPE_CHECKING:
    from sqlqueue_spark.send.delayed_mover import Moved


@dataclass(frozen=True, kw_only=True)
class Created:
    """A table that is there now; ``new`` says that it was not there before."""

    table: str
    new: bool


@dataclass(frozen=True, kw_only=True)
class Length:
    """What waits in a table; ``first_due_in`` is None where it is empty, and negative where the first message is overdue."""

    table: str
    rows: int
    due: int
    first_due_in: timedelta | None


def create(options: ConnectionOptions, owner: str) -> Created:
    """Create the table in which the delayed messages of a queue or an endpoint wait, if it is not there yet.

    :raises ConfigurationError: its name is too long, or the schema is not there.
    :raises QueueError: the name belongs to something else.
    """
    with connect(Target.of(options)) as connection:
        table = owner_at(options, owner)
        new = ddl.create_delayed(connection, table)
        with connection.transaction():
            there = replace(delayed.table_of(table), catalog=table.catalog or database(connection))
        return Created(table=str(there), new=new)


def script(engine: str, owner: str, *, default_schema: str | None = None) -> str:
    """A script that creates such a table, for a database administrator, any number of times; needs no connection."""
    dialect = DIALECTS[engine]
    naming = Naming(
        default_schema=default_schema or dialect.default_schema, quoted_addresses=dialect.quoted_addresses
    )
    table = delayed.table_of(naming.table(owner))
    ddl.check_name(dialect, table)
    return script_of(dialect, dialect.table(table), delayed.create_statements(dialect, table))


def length(options: ConnectionOptions, owner: str) -> Length:
    """How many messages wait, how many of them are due, and when the first one is.

    :raises QueueError: there is no such table.
    """
    table = owner_at(options, owner)
    with connect(Target.of(options)) as connection, connection.transaction():
        found = delayed.get(connection, table)
        waiting = DelayedTable(connection, found.table).waiting()
        return Length(table=found.name, rows=waiting.rows, due=waiting.due, first_due_in=waiting.first_due_in)


def deliver(
    options: ConnectionOptions,
    owner: str,
    error_queue: str,
    pause: Callable[[float], bool] | None = None,
    *,
    moved: Callable[[Moved], object] = lambda _: None,
) -> None:
    """Deliver what is due: all that is due now, or, with ``pause``, also what will be. Errors and arguments as :class:`DelayedMover`."""
    from sqlqueue_spark.send.delayed_mover import DelayedMover

    mover = DelayedMover(options=options, owner=owner_at(options, owner), error_queue=error_queue)
    if pause is not None:
        mover.run(pause, moved)
        return
    try:
        mover.move_due(moved)
    finally:
        mover.close()


def owner_at(options: ConnectionOptions, owner: str) -> Table:
    """The queue at an address, whose delayed messages are meant; it need not be there."""
    return options.naming(Target.of(options).dialect).table(owner)
