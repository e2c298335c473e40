"""Who may do what: the statements that give a login the rights of a role, and no others.

Which rights those are is worked out from the statements of that role, and stands in ``grants_*.sql`` of each engine, a
right a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlqueue_spark.addresses import Table
from sqlqueue_spark.dialects import Dialect

#: Receives from queues; sends to queues; creates queues and all that belongs to them.
RECEIVER, SENDER, INSTALLER = "receiver", "sender", "installer"
ROLES = (RECEIVER, SENDER, INSTALLER)


def script(
    dialect: Dialect,
    user: str,
    role: str,
    queues: Sequence[Table],
    *,
    outbox: Table | None = None,
    stage: Table | None = None,
) -> str:
    """The rights of a role on these tables, for a database administrator to grant; granting again is harmless.

    :param outbox: where a sender remembers what it has sent.
    :param stage: where an atomic pipeline puts what it sends.
    """
    wanted = [(role, queue) for queue in queues]
    wanted += [(name, table) for name, table in (("outbox", outbox), ("stage", stage)) if table is not None]
    databases = dict.fromkeys(table.catalog for _, table in wanted)
    lines: list[str] = []
    for database in sorted(databases, key=lambda each: each or ""):  # that of the connection first
        there = [(name, table) for name, table in wanted if table.catalog == database]
        granted = (line for name, table in there for line in grants(dialect, user, name, table))
        lines += [*_entered(dialect, database), *dict.fromkeys(granted)]
    return "".join(f"{line}\n" for line in lines)


def grants(
    dialect: Dialect, user: str, role: str, table: Table, *, sequence: Table | None = None
) -> Iterator[str]:
    """The rights of a role on one table, a statement each.

    :param role: one of :data:`ROLES`, or ``outbox`` or ``stage``.
    :param sequence: what numbers the rows; by default the one that a serial column makes.
    """
    if dialect.statement("grants_database"):
        table = replace(table, catalog=None)
    numbered_by = sequence or replace(table, table=f"{table.table}_seq_seq")
    names = {
        **dict.fromkeys(("queue", "outbox", "stage"), dialect.table(table)),
        "schema": dialect.quote(table.schema),
        "sequence": dialect.table(numbered_by),
        "user": dialect.quote(user),
    }
    # Line by line before names are filled in: a name may hold a line's end.
    for line in dialect.statement(f"grants_{role}").splitlines():
        yield line.format(**names)


def _entered(dialect: Dialect, database: str | None) -> Iterator[str]:
    """What leads to a database that is not the connection's."""
    if database is not None and dialect.statement("grants_database"):
        yield dialect.render("grants_database", catalog=dialect.quote(database))
