"""Administers subscriptions: subscribes a queue to events, unsubscribes it, and lists subscriptions."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.message import type_names
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.tables import ddl, queues
from sqlqueue_spark.tables.database_facts import database, same_database
from sqlqueue_spark.tables.subscriptions import Subscription, SubscriptionTable, table_of


class Changed(NamedTuple):
    """The result for one subscription, and the address that it had before; None if it did not exist."""

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
    """Subscribe a queue to events. Repeating the call is harmless.

    The queue's address is written in the transport's full form, because .NET publishers look for that. If the
    endpoint has subscribed with another queue, this queue replaces it, as in the transport.

    :param events: names of event types; the assembly behind a comma is dropped.
    :param endpoint: the subscribing endpoint; by default the queue's name, as for .NET endpoints.
    :raises QueueError: the queue or the table of subscriptions does not exist.
    :raises ConfigurationError: a name is too long or is not the name of one type.
    """
    topics = _topics(events)
    with _opened(options, create=create) as table, table.connection.transaction():
        dialect = table.connection.dialect
        found = queues.get(table.connection, queue, options.naming(dialect)).table
        own = replace(found.table, catalog=found.database)
        address, name = own.full_address(quoted=dialect.quoted_addresses), endpoint or own.table
        table.check()
        before = _of_endpoint(table, name)
        table.add(name, address, topics)
    return [
        Changed(Subscription(name, topic, address), before.get(topic), before.get(topic) != address)
        for topic in topics
    ]


def unsubscribe(
    options: ConnectionOptions, queue: str, events: Iterable[str], endpoint: str | None = None
) -> list[Changed]:
    """End subscriptions of a queue, which need not exist. Arguments and errors as in :func:`subscribe`.

    A subscription of the same endpoint with another queue stays.
    """
    topics = _topics(events)
    naming = options.naming(Target.of(options).dialect)
    own = naming.table(queue)
    with _opened(options) as table, table.connection.transaction():
        table.check()
        name = endpoint or own.table
        before = _of_endpoint(table, name)
        connection, here = table.connection, database(table.connection)

        def is_its(address: str) -> bool:
            try:
                named = naming.table(address)
            except ConfigurationError:
                return address == queue
            lies_there = same_database(connection, named.catalog or here, own.catalog or here)
            return lies_there and replace(named, catalog=own.catalog) == own

        ended = [topic for topic in topics if topic in before and is_its(before[topic])]
        table.remove(name, ended)
    return [
        Changed(Subscription(name, topic, before.get(topic, "")), before.get(topic), topic in ended)
        for topic in topics
    ]


def subscriptions(
    options: ConnectionOptions, event: str | None = None, *, create: bool = False
) -> list[Subscription]:
    """The subscriptions to one event type, or all, by type and endpoint. Errors as in :func:`subscribe`."""
    wanted = None if event is None else _topic(event)
    with _opened(options, create=create) as table, table.connection.transaction():
        table.check()
        return [each for each in table.all() if wanted in (None, each.topic)]


@contextmanager
def _opened(options: ConnectionOptions, *, create: bool = False) -> Iterator[SubscriptionTable]:
    with connect(Target.of(options)) as connection:
        table = SubscriptionTable(connection, table_of(options.naming(connection.dialect).default_schema))
        if create:
            ddl.create_if_missing(table)
        yield table


def _of_endpoint(table: SubscriptionTable, endpoint: str) -> dict[str, str]:
    return {each.topic: each.address for each in table.all() if each.endpoint == endpoint}


def _topics(events: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(_topic, events)))


def _topic(event: str) -> str:
    names = type_names(event)
    if len(names) != 1:
        raise ConfigurationError(
            f"{plain(event)!r} is no name of one type; write it in full, like Shop.OrderPlaced, one word "
            "for each event."
        )
    return names[0]
