"""Who may do what: which rights of a role a login has, and the statements that give it all of them and no others.

Which rights those are follows from the statements of that role, and stands in ``rights.sql`` of each engine, a right a
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlqueue_spark.engines.connections import Connection
from sqlqueue_spark.engines.dialects import Dialect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables.queues import QueueTable

#: Receives from queues; sends to queues; creates queues and all that belongs to them.
RECEIVER, SENDER, INSTALLER = "receiver", "sender", "installer"
ROLES = (RECEIVER, SENDER, INSTALLER)


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What the connected user lacks to receive from a queue, and to send to it; nothing where he may."""

    user: str
    receiver_lacks: tuple[str, ...]
    sender_lacks: tuple[str, ...]

    def lacks(self, role: str) -> tuple[str, ...]:
        return self.receiver_lacks if role == RECEIVER else self.sender_lacks


def held(connection: Connection, table: QueueTable) -> Rights:
    """What the connected user may do with a queue; works inside the open transaction and waits for nobody.

    A right of which the server says nothing counts as held.
    """
    dialect = connection.dialect
    statement = dialect.render("rights", catalog=dialect.quote(table.database))
    rows = connection.execute(
        statement, (table.database, table.object_id), doing=f"asking for the rights to {table.name}"
    )
    lacking = [(role, name) for _, role, name, has in rows if has is not None and not has]
    return Rights(
        user=rows[0][0],
        receiver_lacks=tuple(name for role, name in lacking if role == RECEIVER),
        sender_lacks=tuple(name for role, name in lacking if role == SENDER),
    )


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
        granted = (line for name, table in there for line in _grants(dialect, user, name, table))
        lines += [*_entered(dialect, database), *dict.fromkeys(granted)]
    return "".join(f"{line}\n" for line in lines)


def remedy(dialect: Dialect, user: str, role: str, table: Table, sequence: Table | None) -> str:
    """The rights of a role on one table that is there.

    :param sequence: what numbers its rows.
    """
    lines = (*_entered(dialect, table.catalog), *_grants(dialect, user, role, table, sequence))
    return "\n".join(lines)


def _grants(
    dialect: Dialect, user: str, role: str, table: Table, sequence: Table | None = None
) -> Iterator[str]:
    """The rights of a role, or those on its outbox or stage, a statement each.

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
