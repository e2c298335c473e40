"""Administers tables of delayed messages: creates them, measures them, and delivers messages that are due."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlqueue_spark.engines.engine_of_url import DIALECTS
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import ddl, delayed
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.ddl import Created
from sqlqueue_spark.tables.delayed import DelayedPart, DelayedTable
from sqlqueue_spark.tables.scripts import naming_of, script_of

if TYPE_CHECKING:
    from sqlqueue_spark.send.sent import Sent


@dataclass(frozen=True, kw_only=True)
class DelayedLength:
    """How many messages wait in a table, and how many of them are due.

    :ivar first_due_in: until the first is due that waits for no database (None: none); negative if overdue.
    :ivar waiting: how many wait for databases that are down, which ``waits_for`` names by their options; and
        ``first_given_up_in`` is the time until the first of these is given up.
    """

    table: str
    rows: int
    due: int
    first_due_in: timedelta | None
    waiting: int
    waits_for: tuple[str, ...]
    first_given_up_in: timedelta | None


def create(options: ConnectionOptions, owner: str) -> Created:
    """Create the table for the delayed messages of an endpoint as :func:`create_if_missing` does."""
    with connect(Target.of(options)) as connection:
        return ddl.create(DelayedTable(connection, delayed.table_of(_owner_at(options, owner))))


def script(engine: str, owner: str, *, default_schema: str | None = None) -> str:
    """Return the SQL script that creates the table. It may be run several times."""
    dialect = DIALECTS[engine]
    table = delayed.table_of(naming_of(dialect, default_schema).table(owner))
    ddl.check_name(dialect, table)
    return script_of(DelayedTable, dialect, table)


def length(options: ConnectionOptions, owner: str) -> DelayedLength:
    """:raises QueueError: the table does not exist, or has code of a stranger."""
    table = _owner_at(options, owner)
    with connect(Target.of(options)) as connection, connection.transaction():
        found = delayed.get(connection, table)
        AllowedDestinations(options).check(connection, found)
        parts = DelayedTable(connection, found.table).waiting()
    waiting = [each for each in parts if each.database is not None]
    return DelayedLength(
        table=found.name,
        rows=sum(each.rows for each in parts),
        due=sum(each.due for each in parts),
        first_due_in=_first(each for each in parts if each.database is None),
        waiting=sum(each.rows for each in waiting),
        waits_for=tuple(sorted({each.database or "" for each in waiting})),
        first_given_up_in=_first(waiting),
    )


def deliver(
    options: ConnectionOptions,
    owner: str,
    error_queue: str,
    pause: Callable[[float], bool] | None = None,
    *,
    moved: Callable[[Sent], object] = lambda _: None,
) -> Sent:
    """Deliver what is due now; with ``pause`` the others too, in time. Errors are those of DelayedMover."""
    from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover

    named = _owner_at(options, owner)
    mover = DelayedMover(options=options, owner=named, error_queue=error_queue, chosen=[])
    with contextlib.closing(mover):
        return mover.move_due(moved) if pause is None else mover.run(pause, moved)


def _first(parts: Iterable[DelayedPart]) -> timedelta | None:
    return min((each.first_due_in for each in parts if each.first_due_in is not None), default=None)


def _owner_at(options: ConnectionOptions, owner: str) -> Table:
    """Return the queue that owns the delayed messages. Its table need not exist."""
    return options.naming(Target.of(options).dialect).table(owner)
