"""Finds where messages go: the table that an address means, in one of the databases that the options name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from sqlqueue_spark.engines.connect import Connection, Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Address, Table, of_endpoint
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.composed import FailedMessage
from sqlqueue_spark.send.subscribers import Subscribers
from sqlqueue_spark.tables import delayed, queues
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.insert import Column, columns_of
from sqlqueue_spark.tables.queues import QueueTable


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A queue table that was found, its columns, and the database that it is in."""

    target: Target
    table: QueueTable
    columns: tuple[Column, ...]
    #: The table in another database for which the messages are only stored here, and its full address; None where they have arrived.
    stored_for: str | None = None
    stored_as: str | None = None

    @property
    def known_as(self) -> str:
        """What the outbox knows a send to it by, beside its id: the final address, and that it was only stored for it."""
        return self.table.address if self.stored_for is None else f"{self.stored_for}\0stored"


class Placed(NamedTuple):
    """One destination of a chunk, and the positions of its messages in the chunk, in ascending order."""

    destination: Destination
    positions: Sequence[int]


#: A table with the rows (:data:`OUTGOING`) that go there.
Rows = tuple[Destination, pa.RecordBatch]


def place(addressed: Iterable[tuple[str, Sequence[int]]], find: Callable[[str], Destination]) -> list[Placed]:
    """Group the messages of a chunk by table; several addresses may mean one table.

    :param addressed: each address with the positions of its messages.
    :param find: gives the destination that an address means.
    """
    tables: dict[tuple[Target, str, str], Placed] = {}
    for address, positions in addressed:
        found = find(address)
        key = (found.target, found.table.address, found.known_as)
        if key in tables:
            tables[key] = Placed(found, sorted([*tables[key].positions, *positions]))
        else:
            tables[key] = Placed(found, positions)
    return list(tables.values())


def _elsewhere(target: Target, url: str) -> Target:
    """Another database. It has logins of its own, so its url holds the login."""
    return replace(target, url=url, user=None, password=None, access_token=None, access_token_provider=None)


#: After so long the driver looks for the destinations again. To look in each batch would cost a connection, and some
#: statements for each destination.
_FRESH_SECONDS = 60.0


@dataclass
class Destinations:
    """Finds each destination once. The driver hands what it found to the workers, so that they need not look.

    Meanwhile somebody may drop, rename or create a table. An insert names its table, so messages go to the table that has
    the name then. Where no table has it, the insert fails, and the rest of its transaction with it. Of a table that was
    created anew only the known columns can be wrong. If it lacks one of them, the insert fails. If it has further columns,
    they stay empty until the driver looks again.
    """

    options: SinkOptions
    clock: Callable[[], float] = time.monotonic
    _found: dict[str, Destination] = field(default_factory=dict)
    _found_since: float = 0.0
    _delayed: dict[tuple[Target, Table], Destination] = field(default_factory=dict)
    _earlier: dict[Target, bool] = field(default_factory=dict)
    _has_sent: dict[Target, bool] = field(default_factory=dict)
    #: How addresses are written in failed messages, and whose queues they are.
    _written: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    #: The name of each database that was reached.
    _databases: dict[Target, str] = field(default_factory=dict)
    #: Who has subscribed to events.
    subscribers: Subscribers = field(init=False)

    def __post_init__(self) -> None:
        self.subscribers = Subscribers(self.options, self.clock)

    def where(self, address: str) -> tuple[Target, Table]:
        """The database and the table that an address means.

        :raises ConfigurationError: the text is no address.
        """
        target = Target.of(self.options)
        quoted = target.dialect.quoted_addresses
        named = Address.parse(address, legacy=self.options.legacy_addresses, quoted=quoted)
        url = of_endpoint(self.options.endpoint_urls, named.table)
        if url is not None:
            target = _elsewhere(target, url)
        return target, self.options.naming(target.dialect).table(address)

    def everywhere(self) -> list[Target]:
        """All databases that the options name."""
        own = Target.of(self.options)
        return list(
            dict.fromkeys([own, *(_elsewhere(own, url) for url in self.options.endpoint_urls.values())])
        )

    def stored_for(self, address: str) -> str | None:
        """The table in another database that an address means, where messages for it are stored in this one; else None.

        :raises ConfigurationError: the text is no address.
        """
        if self.options.store_and_forward is None:
            return None
        target, table = self.where(address)
        return None if target == Target.of(self.options) else str(table)

    def option_of(self, target: Target) -> str:
        """The name of the option that leads to a database."""
        for name, url in self.options.endpoint_urls.items():
            if url == target.url:
                return f"endpoint.{name}.url"
        return "sink.url"

    def find(self, address: str, connected: Callable[[Target], Connection]) -> Destination:
        """Find the table at an address; this needs no right to read the table.

        :param connected: gives a connection with no open transaction.
        :raises QueueError: there is no such table.
        """
        found = self._found.get(address)
        if found is None and (stored := self.stored_for(address)) is not None:
            found = replace(
                self.find(self.options.store_and_forward or "", connected),
                stored_for=stored,
                stored_as=self.full_address(address),
            )
            self._found[address] = found
        if found is None:
            target, table = self.where(address)
            with connected(target).transaction() as connection:
                queue = queues.find(connection, table)
                if queue is None:
                    elsewhere = target != Target.of(self.options)
                    place = f" in the database of endpoint.{table.table}.url" if elsewhere else ""
                    raise queues.missing(connection, table, address, f"to send to{place}", "the destination")
                found = Destination(target=target, table=queue, columns=tuple(columns_of(connection, queue)))
                if target not in self._databases:
                    own = queue.database if queue.foreign is None else database(connection)
                    self._databases[target] = own
            if not self._found:
                self._found_since = self.clock()
            self._found[address] = found
        return found

    def find_delayed(
        self, target: Target, owner: Table, connected: Callable[[Target], Connection]
    ) -> Destination:
        """Find the table in which the delayed messages of a queue or an endpoint wait; ``connected`` as for :meth:`find`.

        :raises QueueError: there is no such table.
        """
        found = self._delayed.get((target, owner))
        if found is None:
            with connected(target).transaction() as connection:
                table = delayed.get(connection, owner)
                found = Destination(target=target, table=table, columns=tuple(columns_of(connection, table)))
            self._delayed[target, owner] = found
        return found

    def owner_of_delayed(self, target: Target) -> Table:
        """Whose table of delayed messages those use in a database that are sent with a time of delivery."""
        name = self.options.delayed_endpoint or self.options.sender or "sqlqueue"
        return Table(table=name, schema=self.options.default_schema or target.dialect.default_schema)

    def full_address(self, address: str) -> str:
        """An address as the transport writes it, whatever form the user gave: complete, under these options' naming.

        On SQL Server the database belongs to it. Where none of the destinations that were found lies in the address's database,
        its name is not known and left out.

        :raises ConfigurationError: the text is no address.
        """
        target, table = self.where(address)
        quoted = target.dialect.quoted_addresses
        if table.catalog is None and not quoted:
            table = replace(table, catalog=self._databases.get(target))
        return table.full_address(quoted=quoted)

    def failed(
        self, failure: Failure, *, queue: str, message_id: str, to: str | None = None
    ) -> FailedMessage:
        """A message that has failed.

        :param queue: the address of the queue that it failed for.
        :param to: the address that it could not reach; None where it cannot be sent anywhere.
        """
        full, endpoint = self.written(queue)
        return FailedMessage(failure=failure, to=to, queue=full, endpoint=endpoint, id=message_id)

    def written(self, queue: str) -> tuple[str, str]:
        """The full address of a queue, and the endpoint whose queue it is."""
        # Of an address in a database that is found later, more will be known then.
        told = (queue, len(self._databases))
        if told not in self._written:
            try:
                self._written[told] = self.full_address(queue), self.where(queue)[1].table
            except ConfigurationError:  # nobody can read it: who retries the message has to name another one
                self._written[told] = queue, queue
        return self._written[told]

    def holds_earlier_keys(self, target: Target, look: Callable[[], bool]) -> bool:
        """Whether a database's outbox may hold keys of an earlier version.

        :param look: finds it out; it is called once for each database, and again after :meth:`forget`.
        """
        if target not in self._earlier:
            self._earlier[target] = look()
        return self._earlier[target]

    def has_sent(self, target: Target, look: Callable[[], bool]) -> bool:
        """Whether a database's outbox has ids at all; ``look`` as for :meth:`holds_earlier_keys`."""
        if target not in self._has_sent:
            self._has_sent[target] = look()
        return self._has_sent[target]

    def having_outboxes(self) -> list[Target]:
        """The databases whose outboxes this sink asks."""
        if self.options.uses_outbox:
            own = (
                [Target.of(self.options)] if self.subscribers.asked else []
            )  # where the tasks find who has subscribed
            return list(dict.fromkeys([*self.databases(), *own]))
        return [target for target, sent in self._has_sent.items() if sent]

    def databases(self) -> list[Target]:
        """The databases of the destinations that were found."""
        return list(dict.fromkeys(found.target for found in self._found.values()))

    def forget_if_old(self) -> None:
        """Forget after a minute what was found. Only the driver calls it, because a worker's clock is another one."""
        if self.clock() - self._found_since >= _FRESH_SECONDS:
            self.forget()

    def forget(self) -> None:
        """Forget what was found, so that it is looked for again: somebody may have created or altered a table."""
        self._found.clear()
        self._delayed.clear()
        self._earlier.clear()
        self._has_sent.clear()
        self.subscribers.forget()


def check_one_database(options: SinkOptions, destinations: Destinations, addresses: Iterable[str]) -> None:
    """Refuse a destination in another database, because one transaction cannot reach it.

    :raises ConfigurationError: a destination lies in another database; the text names it.
    """
    own = Target.of(options)
    for address in addresses:
        target, _ = destinations.where(address)
        if target != own and destinations.stored_for(address) is None:
            raise ConfigurationError(
                f"The destination {address!r} lies in another database, which transactionMode sendsAtomicWithReceive cannot "
                "reach in one transaction; send to it with receiveOnly and an outbox, or name a queue of this database as storeAndForward."
            )
