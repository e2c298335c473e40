"""No code of strangers runs in a table that no option names: an address out of a message leads to none.

Who may insert a message writes addresses that we follow, and a trigger runs as the login that inserts. So a
table that no option names is looked at in each transaction that inserts into it, under a lock that keeps new
code out until the commit. The option ``allowedDestinations`` widens or narrows what may be reached. Tables
that are found by a look, or by a pattern, are looked at likewise (:func:`left_alone`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.errors import NoRight, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.queues import QueueTable

#: The reasons of the statement ``foreign_code``, in words.
_REASONS = {
    "kind": "it is no ordinary table",
    "partition": "it is a part of another table",
    "schema": "the owner of its schema ({name}) may put another table in its place",
    "column": "it has no column {name} as a queue has it",
    "type": "the type of its column {name} is not the server's own",
    "trigger": "its trigger {name} would run as this login",
    "rule": "its rule {name} would run as this login",
    "policy": "its row-security policies would run as this login",
    "default": "its column {name} has a default that may run anything as this login",
    "constraint": "its constraint {name} may run anything as this login",
    "index": "its index {name} may run anything as this login",
    "statistics": "its statistics {name} may run anything as this login",
}


#: The events of that statement.
_LOOK, _INSERT, _DELETE = 0, 4, 8


class NotAllowed(QueueError):
    """A table is not to be written to that an address out of a message may name, and no option does."""


@dataclass(frozen=True)
class AllowedDestinations:
    """Which tables an address out of a message may lead to, by the options of a connection.

    :param trusted: tables in the connection's database whose owners are trusted: the queues in which messages
        are received, and the error queue.
    """

    options: ConnectionOptions
    trusted: tuple[QueueTable, ...] = ()

    @contextlib.contextmanager
    def entered(
        self,
        connection: Connection,
        tables: Iterable[QueueTable],
        *,
        shaped: bool = True,
        deleting: bool = False,
        locking: bool = True,
    ) -> Iterator[Mapping[str, SqlQueueError]]:
        """Gives which of these tables may not be reached, by address, and why; insert within the block.

        Begin the transaction with it: a look sees what was committed before its lock, but under a stricter
        isolation only if no earlier statement has taken a snapshot.

        :param locking: whether the block inserts; else nothing keeps code out, and nothing waits.
        :raises TryAgain: the database gave way; or where no lock keeps it out, code came during the block.
        """
        given = [each.strip() for each in (self.options.allowed_destinations or "").split(",") if each]
        naming = self.options.naming(connection.dialect)
        only = any(not each.startswith("+") for each in given)
        named = [naming.table(each.removeprefix("+").strip()) for each in given]
        barred: dict[str, SqlQueueError] = {}
        looked: dict[str, QueueTable] = {}
        for address, table in sorted({each.address: each for each in tables}.items()):
            if any(_fits(pattern, table) for pattern in named):
                continue
            if only:
                barred[address] = _refused(table, "the option allowedDestinations names others")
                continue
            try:
                if locking:
                    self._lock(connection, table)
                looked[address] = table
            except TryAgain:
                raise
            except SqlQueueError as error:
                barred[address] = error
        how = {"shaped": shaped, "deleting": deleting}
        barred |= self._found(connection, looked, **how)
        with connection.hurried() if looked and locking else contextlib.nullcontext():
            yield barred
        if looked and locking and not connection.dialect.statement("code_lock"):
            left = {address: table for address, table in looked.items() if address not in barred}
            for why in self._found(connection, left, **how).values():
                raise TryAgain(str(why)) from why

    @contextlib.contextmanager
    def into(
        self, connection: Connection, table: QueueTable, *, shaped: bool = True, deleting: bool = False
    ) -> Iterator[None]:
        """As :meth:`entered`, for one table.

        :param shaped: whether it must have the columns of a queue.
        :param deleting: whether the block deletes, and does not insert.
        :raises SqlQueueError: it may not be reached.
        """
        with self.entered(connection, [table], shaped=shaped, deleting=deleting) as barred:
            for why in barred.values():
                raise why
            yield

    def _lock(self, connection: Connection, table: QueueTable) -> None:
        if connection.dialect.statement("code_lock"):
            with connection.attempt(hurried=True):
                _lock(connection, table.table)

    def _found(
        self, connection: Connection, tables: Mapping[str, QueueTable], *, shaped: bool, deleting: bool
    ) -> dict[str, NotAllowed]:
        queue = connection.dialect.queue_columns
        columns = [f"{name} {kind}" for name, kinds in queue.items() for kind in kinds] if shaped else []
        trusted = [str(each.object_id) for each in self.trusted]
        event = _DELETE if deleting else _INSERT
        refused: dict[str, NotAllowed] = {}
        for address, table in tables.items():
            if found := _foreign_code(
                connection, table.table, table.database, event, columns=columns, trusted=trusted
            ):
                refused[address] = _refused(table, *found)
        return refused


def left_alone(connection: Connection, table: Table, *, looking: bool = False) -> str | None:
    """Why a table that was found, and that no option names, is left alone; None where it need not be.

    That holds until the transaction ends: on PostgreSQL a lock keeps new code out. A login that may only look
    cannot keep out indexes.

    :param looking: rows are only looked at; else they are deleted too.
    """
    if connection.dialect.statement("code_lock"):
        for lock in ("code_lock", "look_lock"):
            with contextlib.suppress(NoRight), connection.attempt(hurried=True):
                _lock(connection, table, lock)
                break
    found = _foreign_code(connection, table, database(connection), _LOOK if looking else _DELETE)
    return found and _stranger(*found)


def guard(connection: Connection, table: QueueTable) -> None:
    """The guard of a queue that a pattern has found.

    :raises QueueError: code of a stranger would run when it is received from.
    """
    if connection.dialect.statement("code_lock"):
        _lock(connection, table.table)
    if found := _foreign_code(connection, table.table, table.database, _DELETE):
        raise QueueError(
            f"{table.name} is left alone: {_stranger(*found)}; to receive from it, name it in queues."
        )


def _stranger(why: str, owner: str) -> str:
    return f"it belongs to {owner!r}, and {why}"


def _lock(connection: Connection, table: Table, name: str = "code_lock") -> None:
    statement = connection.dialect.render(name, queue=connection.dialect.table(table))
    connection.execute(statement, doing=f"keeping new code out of {table}")


def _foreign_code(
    connection: Connection,
    table: Table,
    database: str,
    event: int,
    *,
    columns: Sequence[str] = (),
    trusted: Sequence[str] = (),
) -> tuple[str, str] | None:
    """What would run there, in words, and who owns the table; None where nothing would."""
    dialect = connection.dialect
    names = {"schema": table.schema, "name": table.table, "event": event}
    lists = {"columns": dialect.bind_texts(columns), "trusted": dialect.bind_texts(trusted)}
    statement = dialect.render("foreign_code", catalog=dialect.quote(database))
    for reason, name, owner in connection.execute(statement, {**names, **lists}, doing=f"looking at {table}"):
        why = _REASONS[reason] if name else _REASONS[reason].replace(" {name}", "")
        return why.format(name=name), owner
    return None


def _fits(pattern: Table, table: QueueTable) -> bool:
    """Whether a pattern means a table, part by part: a name may hold what separates the parts."""
    catalog = table.foreign if pattern.catalog is None else table.database
    return (
        (pattern.catalog == catalog)
        and _like(pattern.schema, table.table.schema)
        and _like(pattern.table, table.table.table)
    )


def _like(pattern: str, name: str) -> bool:
    """Whether a name is what a pattern says, in which ``*`` stands for any letters."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.DOTALL) is not None


def _refused(table: QueueTable, why: str, owner: str = "") -> NotAllowed:
    whose = f" (of {owner})" if owner else ""
    return NotAllowed(
        f"Nothing is changed in the table {table.name}{whose}: {why}; mend the table, or name it in the "
        "option allowedDestinations."
    )
