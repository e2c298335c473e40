"""Who may do what: which rights of a role a login has, and the statements that grant these and no others.

The rights of a role follow from the statements that the role runs. ``rights.sql`` of each engine lists them,
one a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.plain_text import for_shell, shell_word
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.queue_table import QueueTable

#: A receiver receives from queues, a sender sends to queues, an installer creates their tables.
RECEIVER, SENDER, INSTALLER = "receiver", "sender", "installer"
ROLES = (RECEIVER, SENDER, INSTALLER)
#: What a role does with a table of subscriptions.
SUBSCRIBING = {RECEIVER: "subscriber", SENDER: "publisher"}
_DOING = {RECEIVER: "receive from", SENDER: "send to"}


@dataclass(frozen=True, kw_only=True)
class Rights:
    """Which rights the connected user lacks to receive from a queue, and to send to it."""

    user: str
    receiver_lacks: tuple[str, ...]
    sender_lacks: tuple[str, ...]

    def lacks(self, role: str) -> tuple[str, ...]:
        return self.receiver_lacks if role == RECEIVER else self.sender_lacks


def held(connection: Connection, table: QueueTable) -> Rights:
    """What the connected user may do with a queue; waits for no lock.

    A right counts as held if the server says nothing of it.

    :raises QueueError: the table is gone.
    """
    dialect = connection.dialect
    statement = dialect.render("rights", catalog=dialect.quote(table.database))
    doing = f"asking for the rights to {table.name}"
    if not (rows := connection.execute(statement, table.identified, doing=doing)):
        raise QueueError(
            f"{table.name} was just dropped; create it with: sqlqueue create {for_shell(table.name)}"
        )
    lacking = [(role, name) for _, role, name, has in rows if has is not None and not has]
    return Rights(
        user=rows[0][0],
        receiver_lacks=tuple(name for role, name in lacking if role == RECEIVER),
        sender_lacks=tuple(name for role, name in lacking if role == SENDER),
    )


def wanted(admin: QueueAdmin, held: Rights, role: str | None) -> Iterator[tuple[str, str]]:
    """What a login lacks for a role: a sentence, and the script that grants it.

    :param role: receiver or sender; None for a login that need not be both.
    """
    asked = (RECEIVER, SENDER) if role is None else (role,)
    if not all(held.lacks(each) for each in asked):
        return
    numbers = admin.numbers
    for each in asked:
        sentence = (
            f"The user {held.user!r} may not {_DOING[each]} {admin.table.name}, for it lacks "
            f"{', '.join(held.lacks(each))}; have a {each}'s rights granted."
        )
        grants = [(each, admin.table.table)]
        remedy = script(admin.connection.dialect, held.user, grants, numbers and numbers.source)
        yield sentence, remedy.rstrip("\n")


def check(connection: Connection, table: QueueTable, role: str) -> None:
    """:raises QueueError: the login lacks a right of a role; the text says which, and how it is granted."""
    for sentence, remedy in wanted(QueueAdmin(connection, table), held(connection, table), role):
        raise QueueError(f"{sentence} {' '.join(remedy.split())}")


def power(connection: Connection, table: QueueTable) -> str:
    """What makes the connected user mightier than a job should be, like "is a superuser"; else empty."""
    statement = connection.dialect.render("power", catalog=connection.dialect.quote(table.database))
    rows = connection.execute(statement, table.identified, doing=f"asking for the rights to {table.name}")
    return "".join(power for (power,) in rows)


def script(
    dialect: Dialect, user: str, wanted: Sequence[tuple[str, Table]], sequence: Table | None = None
) -> str:
    """A script that grants rights on tables, one statement for each right.

    :param wanted: names of grants in ``rights.sql``, like ``sender`` and ``outbox``, each with a table.
    :param sequence: what gives the rows their numbers; by default the sequence that a serial column makes.
    """
    databases = dict.fromkeys(table.catalog for _, table in wanted)
    lines: list[str] = []
    for database in sorted(databases, key=lambda each: each or ""):  # the connection's own database first
        if database is not None and dialect.statement("grants_database"):  # which leads there
            lines.append(str(dialect.render("grants_database", catalog=dialect.quote(database))))
        there = [(name, table) for name, table in wanted if table.catalog == database]
        granted = (line for name, table in there for line in _grants(dialect, user, name, table, sequence))
        lines += dict.fromkeys(granted)
    return "".join(f"{line}\n" for line in lines)


def remedy_command(dialect: Database, role: str, flag: str, name: str) -> str:
    """What to type for the script that grants a role's rights, also those on its outbox or stage."""
    return (
        f"sqlqueue script QUEUE --engine {dialect.name} --grants USER --role {role} {flag} {shell_word(name)}"
    )


def _grants(dialect: Dialect, user: str, role: str, table: Table, sequence: Table | None) -> Iterator[str]:
    if dialect.statement("grants_database"):
        table = replace(table, catalog=None)
    numbered_by = sequence or replace(table, table=f"{table.table}_seq_seq")
    names = {
        **dict.fromkeys(("queue", "outbox", "stage", "subscriptions"), dialect.table(table)),
        "schema": dialect.quote(table.schema),
        "sequence": dialect.table(numbered_by),
        "user": dialect.quote(user),
    }
    # The text is split into lines before names are filled in: a name may hold a line's end.
    for line in str(dialect.statement(f"grants_{role}")).splitlines():
        yield line.format(**names)
