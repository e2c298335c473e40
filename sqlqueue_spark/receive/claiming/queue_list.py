"""Which queues a stream over several reads: those of a list, or all whose names a pattern matches."""

from __future__ import annotations

import re

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.tables import database_tables, queues
from sqlqueue_spark.tables.queues import Queue


def tables_of(connection: Connection, options: SourceOptions) -> list[Table]:
    """The tables that the options name now. A pattern finds only queue tables of the default schema."""
    naming = options.naming(connection.dialect)
    if options.queue_pattern is None:
        return [naming.table(address) for address in _listed(options)]
    matches = re.compile(options.queue_pattern).fullmatch
    found = database_tables.find(connection, naming.default_schema)
    return [
        each.table.table
        for each in found
        if each.kind == database_tables.QUEUE and matches(each.table.table.table)
    ]


def opened(connection: Connection, options: SourceOptions) -> list[Queue]:
    """The queues that the options name now.

    :raises QueueError: a queue of a list is not there.
    :raises ConfigurationError: a list names one queue twice.
    """
    if options.queue_pattern is not None:
        found = [queues.at(connection, table) for table in tables_of(connection, options)]
        return [queue for queue in found if queue is not None]  # one may have gone between two statements
    naming = options.naming(connection.dialect)
    listed: dict[str, Queue] = {}
    for address in _listed(options):
        queue = queues.get(connection, address, naming)
        if queue.table.address in listed:
            raise ConfigurationError(
                f"The option queues names the queue {queue.name} twice, in two forms; name it once."
            )
        listed[queue.table.address] = queue
    return list(listed.values())


def _listed(options: SourceOptions) -> tuple[str, ...]:
    return options.queues if options.queue is None else (options.queue,)


def shown(connection: Connection, table: Table) -> str:
    """A table's address as people write it, and as it stands in the column ``Queue``."""
    return table.to_address(quoted=connection.dialect.quoted_addresses)
