"""An address means one table in one database: which one, and how it is written for others to read.

A text like ``orders`` means different things in different databases, so nothing is sent to a text. A
*place* is a database, a schema and a table. An address that a message, a subscription or the option ``queue``
names is a destination: it lies in the database of ``sink.url``, unless ``endpoint.<name>.url`` names another
one. What belongs to a received row (its queue, errorQueue, auditQueue, the queue of an acknowledgement) lies
in the database in which the row was received, its *home*. Only ``endpoint.<name>.url`` leads elsewhere from
there.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Naming, Table, of_endpoint
from sqlqueue_spark.options import ATOMIC, ConnectionOptions, SinkOptions

_LOGIN = ("user", "password", "access_token", "access_token_provider")


class Place(NamedTuple):
    """One table of one database."""

    target: Target
    table: Table


@dataclass
class Places:
    """Reads addresses.

    :param home: options of the database in which messages were received; for a sink alone, of its own one.
    :param away: options of the database in which destinations lie; the same as ``home`` but for ``sink.url``.
    """

    home: SinkOptions
    away: SinkOptions
    #: The name of each database that was reached. On SQL Server it belongs to an address.
    databases: dict[Target, str] = field(default_factory=dict)

    @property
    def at_home(self) -> Target:
        return Target.of(self.home)

    def destination(self, address: str) -> Place:
        """Where a message goes.

        :raises ConfigurationError: the text is no address.
        """
        return self._place(address, self.away)

    def beside(self, address: str) -> Place:
        """Where the error queue, the audit queue or that of an acknowledgement is. Errors as above."""
        return self._place(address, self.home)

    @cached_property
    def named(self) -> Sequence[tuple[str, Place]]:
        """The addresses that options name, and what they mean. Errors as above."""
        meant = (
            (self.destination, self.away.queue),
            (self.beside, self.home.error_queue),
            (self.beside, self.home.audit_queue),
            (self.received, self.home.store_and_forward),
        )
        return [(address, place(address)) for place, address in meant if address is not None]

    @cached_property
    def chosen(self) -> Collection[Place]:
        """The places that an option names, and so no message alone."""
        return {place for _, place in self.named}

    def received(self, queue: str) -> Place:
        """The queue in which messages were received. Errors as above."""
        return Place(self.at_home, self.naming.table(queue))

    @cached_property
    def naming(self) -> Naming:
        """How addresses are read in the database in which messages were received."""
        return replace(self.home, endpoint_urls=self.away.endpoint_urls).naming(self.at_home.dialect)

    def _place(self, address: str, options: ConnectionOptions) -> Place:
        target = Target.of(options)
        named = options.naming(target.dialect).table(address)
        if (url := of_endpoint(self.away.endpoint_urls, named.table)) is not None:
            target, options = _elsewhere(target, url), self.away
        return Place(target, options.naming(target.dialect).table(address))

    def known_as(self, place: Place) -> str:
        """The final address of a place: a catalog counts where it is not the database's own."""
        target, table = place
        own = table.catalog is not None and table.catalog == self.databases.get(target)
        return str(replace(table, catalog=None) if own else table)

    def are_one(self, one: Place | None, other: Place) -> bool:
        """Whether two places are one table."""
        return one is not None and one.target == other.target and self.known_as(one) == self.known_as(other)

    def everywhere(self) -> list[Target]:
        """All databases that the options name, home first."""
        urls = self.away.endpoint_urls.values()
        there = Target.of(self.away)
        return list(dict.fromkeys([self.at_home, there, *(_elsewhere(there, url) for url in urls)]))

    def option_of(self, target: Target) -> str:
        """The name of the option that leads to a database."""
        urls = self.away.endpoint_urls.items()
        return next((f"endpoint.{name}.url" for name, url in urls if url == target.url), "sink.url")

    def at(self, target: Target) -> SinkOptions:
        """The sink's options as they hold in one of these databases."""
        options = self.home if target == self.at_home else self.away
        return replace(options, url=target.url, **{name: getattr(target, name) for name in _LOGIN})

    def sends_later(self, target: Target) -> Place:
        """The endpoint in whose table messages with a time of delivery wait in a database."""
        options = self.at(target)
        name = options.delayed_endpoint or options.sender or "sqlqueue"
        schema = options.default_schema or target.dialect.default_schema
        return Place(target, Table(table=name, schema=schema))

    def is_stored(self, place: Place) -> bool:
        """Whether plain messages to a place are stored at home first, because ``storeAndForward`` says so."""
        return self.home.store_and_forward is not None and place.target != self.at_home

    def check_one_database(self, address: str) -> None:
        """Refuse a destination in another database, because one transaction cannot reach it.

        :raises ConfigurationError: it lies there; or the text is no address.
        """
        place = self.destination(address)
        if place.target != self.at_home and not self.is_stored(place):
            raise ConfigurationError(
                f"The destination {address!r} lies in another database, which transactionMode "
                "sendsAtomicWithReceive cannot reach in one transaction; send to it with receiveOnly and an "
                "outbox, or name a queue of this database as storeAndForward."
            )

    def check_reach(self) -> None:
        """Refuse a queue of the options that the transaction of an atomic pipeline cannot reach."""
        if self.home.transaction_mode == ATOMIC and self.away.queue is not None:
            self.check_one_database(self.away.queue)

    def full_address(self, place: Place) -> str:
        """The address of a place as the transport writes it: complete.

        On SQL Server the database belongs to it. The name of a database that was not reached yet is not
        known, and left out.
        """
        target, table = place
        quoted = target.dialect.quoted_addresses
        if table.catalog is None and not quoted:
            table = replace(table, catalog=self.databases.get(target))
        return table.full_address(quoted=quoted)

    def written(self, address: str, *, received: bool, beside: str | None = None) -> tuple[str, str]:
        """An address in full, and the endpoint whose queue it is; as it is where it cannot be read.

        :param received: whether messages were received there; else it is a destination.
        :param beside: the error queue in which it stands. On PostgreSQL no full address names a database, and
            a retry would take the queue of that name beside the error queue: one elsewhere has a catalog.
        """
        try:
            place = self.received(address) if received else self.destination(address)
        except ConfigurationError:  # a person who retries the message names another one
            return address, address
        target, table = place
        if beside is not None and (end := self.beside(beside).target) != target:
            name = self.databases.get(target)
            known = name if name != self.databases.get(end) else self.option_of(target)
            return str(replace(table, catalog=table.catalog or known)), table.table
        return self.full_address(place), table.table


def _elsewhere(target: Target, url: str) -> Target:
    """Another database. It has logins of its own, so its url holds the login."""
    no_login: dict[str, Any] = dict.fromkeys(_LOGIN)
    return replace(target, url=url, **no_login)
