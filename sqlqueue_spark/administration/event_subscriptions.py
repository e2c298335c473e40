"""What people do to subscriptions from outside: subscribe a queue to events, end that, and look who has subscribed.

The functions take and return plain values; each opens a connection of its own and closes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.message import type_names
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.tables import ddl, queues
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.subscriptions import Subscription, SubscriptionTable, table_of


class Changed(NamedTuple):
    """What became of a subscription. ``before`` is the address that it had; None where there was none."""

    subscription: Subscription
    before: str | None
    changed: bool


def subscribe(
    options: ConnectionOptions,
    queue: str,
    events: Iterable[str],
    endpoint: str | None = None,
    *,
    create: bool = False,
) -> list[Changed]:
    """Let a queue have the events of some types, and of no others; to repeat it does no harm.

    The queue's address is written in the transport's full form, by which .NET publishers find it. An endpoint that has subscribed with
    another queue has this one from now on, as with the transport.

    :param events: names of types; what stands behind a comma, the assembly, is left out.
    :param endpoint: who subscribes; else the queue's name, as the .NET endpoints do.
    :param create: whether to create the table of subscriptions if it is not there.
    :raises QueueError: there is no such queue, or no table of subscriptions.
    :raises ConfigurationError: a name is no type's, or too long.
    """
    topics = _topics(events)
    with _opened(options, create=create) as (connection, table), connection.transaction():
        address, name = _full_address(options, connection, queue)
        table.check()
        before = _of_endpoint(table, endpoint or name)
        table.add(endpoint or name, address, topics)
    return [
        Changed(
            Subscription(endpoint or name, topic, address), before.get(topic), before.get(topic) != address
        )
        for topic in topics
    ]


def unsubscribe(
    options: ConnectionOptions, queue: str, events: Iterable[str], endpoint: str | None = None
) -> list[Changed]:
    """End subscriptions of a queue, which need not be there any more; arguments and errors as :func:`subscribe`.

    A subscription of the endpoint that has another queue stays.
    """
    topics = _topics(events)
    naming = options.naming(Target.of(options).dialect)
    own = naming.table(queue)
    with _opened(options) as (connection, table), connection.transaction():
        table.check()
        name = endpoint or own.table
        before = _of_endpoint(table, name)
        here = database(connection)

        def is_its(address: str) -> bool:
            try:
                return _located(naming.table(address), here) == _located(own, here)
            except ConfigurationError:
                return address == queue

        ended = [topic for topic in topics if topic in before and is_its(before[topic])]
        table.remove(name, ended)
    return [
        Changed(Subscription(name, topic, before.get(topic, "")), before.get(topic), topic in ended)
        for topic in topics
    ]


def subscriptions(
    options: ConnectionOptions, event: str | None = None, *, create: bool = False
) -> list[Subscription]:
    """Who has subscribed to a type of events, or to any, by type and endpoint; errors as :func:`subscribe`."""
    wanted = None if event is None else set(_topics([event]))
    with _opened(options, create=create) as (connection, table), connection.transaction():
        table.check()
        return [each for each in table.all() if wanted is None or each.topic in wanted]


def create(options: ConnectionOptions) -> tuple[str, bool]:
    """Create the table of subscriptions of the default schema if it is not there; returns its name, and whether it was not there."""
    with connect(Target.of(options)) as connection:
        table = _table(options, connection).table
        new = ddl.create_subscriptions(connection, table)
        with connection.transaction():
            return str(replace(table, catalog=database(connection))), new


@contextmanager
def _opened(
    options: ConnectionOptions, *, create: bool = False
) -> Iterator[tuple[Connection, SubscriptionTable]]:
    with connect(Target.of(options)) as connection:
        table = _table(options, connection)
        if create:
            ddl.create_subscriptions(connection, table.table)
        yield connection, table


def _table(options: ConnectionOptions, connection: Connection) -> SubscriptionTable:
    return SubscriptionTable(connection, table_of(options.naming(connection.dialect).default_schema))


def _of_endpoint(table: SubscriptionTable, endpoint: str) -> dict[str, str]:
    """The addresses of an endpoint's subscriptions by type."""
    return {each.topic: each.address for each in table.all() if each.endpoint == endpoint}


def _full_address(options: ConnectionOptions, connection: Connection, queue: str) -> tuple[str, str]:
    """The address of a queue that is there as the transport writes it, and its table's name.

    :raises QueueError: it is not there.
    """
    dialect = connection.dialect
    found = queues.get(connection, queue, options.naming(dialect)).table
    whole = replace(found.table, catalog=None if dialect.quoted_addresses else found.database)
    return whole.full_address(quoted=dialect.quoted_addresses), found.table.table


def _located(table: Table, here: str) -> Table:
    return replace(table, catalog=table.catalog or here)


def _topics(events: Iterable[str]) -> Sequence[str]:
    topics: dict[str, None] = {}
    for each in events:
        names = type_names(each)
        if len(names) != 1:
            raise ConfigurationError(
                f"{plain(each)!r} is no name of one type; write it in full, such as Shop.OrderPlaced, one word for each event."
            )
        topics.update(dict.fromkeys(names))
    return list(topics)
