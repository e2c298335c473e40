"""Tables of subscriptions: which queue gets the events of which type. The .NET endpoints of a database write and read them.

Every function runs inside the connection's open transaction and never commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlqueue_spark.engines.connections import Connection
from sqlqueue_spark.messages.addresses import Table


class Subscription(NamedTuple):
    """An endpoint's wish to get the events of a type, and the address of its queue."""

    endpoint: str
    topic: str
    address: str


def readable_tables(connection: Connection) -> list[Table]:
    """The tables of subscriptions that this login may read; none where no address in them can be misread."""
    statement = connection.dialect.statement("subscription_tables")
    if not statement:
        return []
    rows = connection.execute(statement, doing="looking for tables of subscriptions")
    return [Table(table=name, schema=schema) for schema, name in rows]


def unquoted(connection: Connection, table: Table) -> Iterator[Subscription]:
    """The subscriptions whose address a .NET endpoint takes for that of another table."""
    dialect = connection.dialect
    statement = dialect.render("unquoted_subscriptions", subscriptions=dialect.table(table))
    for row in connection.execute(statement, doing=f"looking at {table}"):
        yield Subscription(*row)
