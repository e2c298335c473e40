"""Where messages go: an address becomes a table in one of the databases that the options name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlqueue_spark.engines.connections import Connection, Target
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Address, Table, for_shell, of_endpoint
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.insert import Column, columns_of
from sqlqueue_spark.tables.queues import QueueTable


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A queue table that was found, and the database it is in."""

    target: Target
    table: QueueTable
    columns: tuple[Column, ...]


class Placed(NamedTuple):
    """Where messages of a chunk go, and their positions in it, which ascend."""

    destination: Destination
    positions: Sequence[int]


def place(addressed: Iterable[tuple[str, Sequence[int]]], find: Callable[[str], Destination]) -> list[Placed]:
    """The positions of each table's messages, given those of each address; many addresses may mean one table."""
    tables: dict[tuple[Target, str], Placed] = {}
    for address, positions in addressed:
        found = find(address)
        key = (found.target, found.table.address)
        if key in tables:
            tables[key] = Placed(found, sorted([*tables[key].positions, *positions]))
        else:
            tables[key] = Placed(found, positions)
    return list(tables.values())


#: What was found so long ago is looked for again: to look in each batch costs a connection, and statements a destination.
_FRESH_SECONDS = 60.0


@dataclass
class Destinations:
    """Finds each destination once. What was found travels to the workers, so that they need not look.

    A table may be dropped, renamed or made anew meanwhile. Its name alone is what messages are inserted under, so they go to
    the table that bears it, and where none does the insert fails with the rest of its transaction. What can be wrong of a
    table that was made anew is only which columns it has: too few, and the insert fails; more, and they are left empty until
    the driver looks again.
    """

    options: SinkOptions
    clock: Callable[[], float] = time.monotonic
    _found: dict[str, Destination] = field(default_factory=dict)
    _found_since: float = 0.0
    _earlier: dict[Target, bool] = field(default_factory=dict)

    def where(self, address: str) -> tuple[Target, Table]:
        """The database and the table that an address means.

        :raises ConfigurationError: the text is no address.
        """
        own = Target.of(self.options)
        named = Address.parse(
            address, legacy=self.options.legacy_addresses, quoted=own.dialect.quoted_addresses
        )
        url = of_endpoint(self.options.endpoint_urls, named.table)
        # Another database has its own logins, so its url holds them.
        target = own
        if url is not None:
            target = replace(
                own, url=url, user=None, password=None, access_token=None, access_token_provider=None
            )
        return target, self.options.naming(target.dialect).table(address)

    def find(self, address: str, connected: Callable[[Target], Connection]) -> Destination:
        """The table at an address; needs no right to read it.

        :param connected: gives a connection with no open transaction.
        :raises QueueError: there is no such table.
        """
        found = self._found.get(address)
        if found is None:
            target, table = self.where(address)
            with connected(target).transaction() as connection:
                queue = queues.find(connection, table)
                if queue is None:
                    raise QueueError(
                        f"There is no queue table {table} to send to; create it with: sqlqueue create {for_shell(address)}, "
                        "or correct the destination or its schema."
                    )
                found = Destination(target=target, table=queue, columns=tuple(columns_of(connection, queue)))
            if not self._found:
                self._found_since = self.clock()
            self._found[address] = found
        return found

    def holds_earlier_keys(self, target: Target, look: Callable[[], bool]) -> bool:
        """Whether a database's outbox may hold keys of an earlier version; looked for once."""
        if target not in self._earlier:
            self._earlier[target] = look()
        return self._earlier[target]

    def databases(self) -> list[Target]:
        """The databases of what was found."""
        return list(dict.fromkeys(found.target for found in self._found.values()))

    def forget_if_old(self) -> None:
        """Look again once a minute. For the driver: its clock says nothing to a worker."""
        if self.clock() - self._found_since >= _FRESH_SECONDS:
            self.forget()

    def forget(self) -> None:
        """Look again: a table may have been created, or altered."""
        self._found.clear()
        self._earlier.clear()
