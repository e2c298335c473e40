"""An address out of a message leads only to tables where an insert runs no code of strangers.

Who may insert a message writes addresses that we follow, and a trigger runs as the login that inserts. So a
table that no option names is looked at in each transaction that inserts into it, under a lock that keeps new
code out until the commit. The option ``allowedDestinations`` widens or narrows what may be reached.
"""

import contextlib
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.errors import NoRight, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import table_code
from sqlqueue_spark.tables.database_facts import same_database
from sqlqueue_spark.tables.queue_table import QueueTable, left_alone

_CATALOGUE = "a login that sends where a message says reads the catalogue, to see whose code would run"
#: The tables that may not be reached, by address, and why.
Barred = Mapping[str, SqlQueueError]


class NotAllowed(QueueError):
    """A table is not to be written to that an address out of a message may name, and no option does."""


class LeftAlone(QueueError):
    """To use the table would run code of a stranger as this login, and no option names it."""


@dataclass(frozen=True)
class AllowedDestinations:
    """Which tables an address out of a message may lead to, by the options of a connection.

    :param trusted: tables in the connection's database whose owners are trusted: the queues in which messages
        are received, and the error queue.
    """

    options: ConnectionOptions
    trusted: tuple[QueueTable, ...] = ()

    def widened(self) -> Self:
        """As if each pattern had a plus: a table that is used may be named by no option, but by a person."""
        patterns = ",".join(f"+{each.removeprefix('+').strip()}" for each in self._given)
        return replace(self, options=replace(self.options, allowed_destinations=patterns or None))

    def named(self, connection: Connection, tables: Iterable[QueueTable]) -> set[str]:
        """The addresses of those of these tables that the option names, so that their code may run."""
        naming = self.options.naming(connection.dialect)
        patterns = [naming.table(each.removeprefix("+").strip()) for each in self._given]
        return {each.address for each in tables for pattern in patterns if _fits(connection, pattern, each)}

    def check(self, connection: Connection, table: QueueTable, event: int = table_code.LOOK) -> None:
        """Refuse, and keep out for a transaction, code of strangers in a table that the option does not name.

        :param event: what happens to rows, as for :func:`table_code.found`.
        :raises LeftAlone: a stranger's code would run.
        """
        look = partial(table_code.found, connection, [table.table], event, shaped=False)
        if event == table_code.LOOK and look()[0].owner is None:
            return  # nothing of a trusted owner is kept out, so no lock holds up who alters his table
        if not self.named(connection, [table]) and (why := left_alone(connection, table.table, event)):
            raise LeftAlone(
                f"{table.name} is left alone: {why}; use it as its owner, or name it in the option "
                "allowedDestinations."
            )

    @property
    def _given(self) -> list[str]:
        return [each.strip() for each in (self.options.allowed_destinations or "").split(",") if each]

    @contextlib.contextmanager
    def entered(
        self,
        connection: Connection,
        tables: Iterable[QueueTable],
        *,
        shaped: bool = True,
        deleting: bool = False,
        locking: bool = True,
    ) -> Iterator[Barred]:
        """Gives which of these tables may not be reached, by address, and why; insert within the block.

        Begin the transaction with it: a look sees what was committed before its lock, but under a stricter
        isolation only if no earlier statement has taken a snapshot.

        :param locking: whether the block inserts; else nothing keeps code out, and nothing waits.
        :raises TryAgain: the database gave way; or where no lock keeps it out, code came during the block.
        """
        by_lock = bool(connection.dialect.statement("code_lock"))
        event = table_code.DELETE if deleting else table_code.INSERT
        trusted = [each.object_id for each in self.trusted]
        look = partial(table_code.found, connection, event=event, shaped=shaped, trusted=trusted)
        barred: dict[str, SqlQueueError] = {}
        given = {each.address: each for each in tables}
        named = self.named(connection, given.values())
        unnamed = {address: table for address, table in given.items() if address not in named}
        if any(not each.startswith("+") for each in self._given):
            others = "the option allowedDestinations names others"
            barred |= {address: _refused(table, others) for address, table in unnamed.items()}
        elif locking and by_lock:
            barred |= _locked(connection, unnamed)
        looked = {address: table for address, table in unnamed.items() if address not in barred}
        found, unseen = _found(connection, looked, look)
        barred |= unseen
        barred |= {address: _refused(looked[address], *each) for address, each in found.items() if each.why}
        strangers = any(each.owner and not each.why for each in found.values())
        with connection.hurried() if strangers and locking else contextlib.nullcontext():
            yield barred
        if locking and not by_lock:
            for address, table in looked.items():
                if address not in barred and (each := look([table.table])[0]).why:
                    raise TryAgain(str(_refused(table, *each)))

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


def _locked(connection: Connection, tables: Mapping[str, QueueTable]) -> Barred:
    """Keep new code out of these tables, in the order of their addresses; gives those where that fails."""
    if not tables:
        return {}
    try:
        with connection.attempt(hurried=True):
            table_code.keep_out(connection, [tables[each].table for each in sorted(tables)])
            return {}
    except TryAgain:
        raise
    except SqlQueueError as error:
        if len(tables) == 1:
            return dict.fromkeys(tables, error)
    return {
        at: why for each in sorted(tables) for at, why in _locked(connection, {each: tables[each]}).items()
    }


def _found(
    connection: Connection,
    tables: Mapping[str, QueueTable],
    look: Callable[[Sequence[Table]], Sequence[table_code.Found]],
) -> tuple[dict[str, table_code.Found], dict[str, SqlQueueError]]:
    """What would run in each of these tables; and those of which this login cannot find it out."""
    try:
        with connection.attempt(hurried=True) if tables else contextlib.nullcontext():
            found = look([table.table for table in tables.values()])
            return dict(zip(tables, found, strict=True)), {}
    except NoRight as error:
        if len(tables) == 1:
            return {}, dict.fromkeys(tables, error.needing(_CATALOGUE))
    each = [_found(connection, {address: table}, look) for address, table in tables.items()]
    return dict(ChainMap(*(found for found, _ in each))), dict(ChainMap(*(unseen for _, unseen in each)))


def _fits(connection: Connection, pattern: Table, table: QueueTable) -> bool:
    """Whether a pattern, in which ``*`` stands for any letters, means a table.

    It is compared part by part: a name may hold what separates the parts.
    """
    if pattern.catalog is None:
        there = table.foreign is None
    else:
        there = same_database(connection, pattern.catalog, table.database)
    names = ((pattern.schema, table.table.schema), (pattern.table, table.table.table))
    forms = ((re.escape(form).replace(r"\*", ".*"), name) for form, name in names)
    return there and all(re.fullmatch(form, name, re.DOTALL) for form, name in forms)


def _refused(table: QueueTable, why: str | None, owner: str | None = None) -> NotAllowed:
    whose = f" (of {owner})" if owner else ""
    return NotAllowed(
        f"Nothing is changed in the table {table.name}{whose}: {why}; mend the table, or name it in the "
        "option allowedDestinations."
    )
