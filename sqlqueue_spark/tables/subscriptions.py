"""Tables of subscriptions: which queue gets the events of which type, shared with .NET endpoints.

Format: the table ``SubscriptionRouting`` of the NServiceBus SQL transports, one a schema, with a row for an
endpoint and type. A type is its full name, without its assembly. An address stands in the transport's full
form (:meth:`Table.full_address`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection, Row
from sqlqueue_spark.engines.database import length_in
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables import table_code
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import to_create
from sqlqueue_spark.tables.queue_table import left_alone
from sqlqueue_spark.tables.table_code import check_went_in

#: What the transport calls its table by default.
NAME = "SubscriptionRouting"
#: The most characters of each of its columns.
LONGEST = 200
#: What its statements do to rows, beside looking at them.
_EVENTS = {"subscribe": (table_code.INSERT, table_code.UPDATE), "unsubscribe": (table_code.DELETE,)}


class Subscription(NamedTuple):
    """An endpoint's wish to get the events of a type, and the address of its queue; NULL is read as empty."""

    endpoint: str
    topic: str
    address: str


def table_of(schema: str) -> Table:
    return Table(table=NAME, schema=schema)


class SubscriptionTable(BaseTable):
    word = "subscriptions"
    creating = ("subscriptions_create",)
    own_columns = frozenset({"queueaddress", "endpoint", "topic"})
    mistaken = (
        "subscriptions: it lacks one of the columns QueueAddress, Endpoint and Topic; rename it, or set "
        "defaultSchema to the schema whose table is meant."
    )

    def check(self) -> None:
        """:raises QueueError: it is not there."""
        if not self.exists():
            command = f"subscriptions --create --default-schema {for_shell(self.table.schema)}"
            raise QueueError(
                f"There is no table {self.table}, in which subscriptions stand, "
                f"{to_create(self.connection, command)}, or set defaultSchema to the schema in which it is."
            )

    def execute(self, name: str, doing: str = "", /, **parameters: object) -> list[Row]:
        """As for any table, but no code of a stranger is run: it is known by its name alone.

        :raises QueueError: it would.
        """
        self._guard(table_code.LOOK)
        return super().execute(name, doing, **parameters)

    def modify(self, name: str, doing: str = "", /, **parameters: object) -> int:
        """Likewise."""
        self._guard(*_EVENTS[name])
        rows = super().modify(name, doing, **parameters)
        if not self.connection.dialect.statement("code_lock"):
            self._guard(*_EVENTS[name])  # no lock has kept code out meanwhile
        return rows

    def _guard(self, *events: int) -> None:
        for event in events:
            if why := left_alone(self.connection, self.table, event):
                raise QueueError(f"The table {self.table} is left alone: {why}; let an administrator own it.")

    def subscribers(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """What stands as the address of each subscriber to these types; types without any are left out.

        :raises QueueError: there is no such table.
        """
        topics = filter(self.connection.holds, topics)
        rows = self.execute("subscribers", "looking for subscribers in", topics=self._bound(topics))
        found: dict[str, list[str]] = {}
        for topic, address in rows:
            found.setdefault(topic, []).append(address or "")
        return found

    def all(self) -> list[Subscription]:
        """All subscriptions, by type and endpoint. Errors as :meth:`subscribers`."""
        rows = self.execute("subscriptions", "looking at")
        return [Subscription(*(each or "" for each in row)) for row in rows]

    def add(self, endpoint: str, address: str, topics: Sequence[str]) -> None:
        """Let the queue at an address have the events of these types; an endpoint has one address for each.

        :raises ConfigurationError: a text is too long for the table.
        """
        for text in (endpoint, address, *topics):
            if (length := length_in("characters", text)) > LONGEST:
                raise ConfigurationError(
                    f"{text!r} has {length} characters, and a table of subscriptions keeps at most "
                    f"{LONGEST}; choose a shorter name."
                )
            if not self.connection.holds(text):
                raise ConfigurationError(
                    f"The database keeps texts in {self.connection.encoding}, which has no way to write "
                    f"{text!r}; choose another name, or use a database with the encoding UTF8."
                )
        self.modify(
            "subscribe", "subscribing in", address=address, endpoint=endpoint, topics=self._bound(topics)
        )
        if self.connection.dialect.drops_rows:
            wanted = {Subscription(endpoint, topic, address) for topic in topics}
            check_went_in(len(wanted.intersection(self.all())), len(wanted), self.table)

    def remove(self, endpoint: str, topics: Sequence[str]) -> None:
        """End an endpoint's subscriptions to these types."""
        self.modify("unsubscribe", "unsubscribing in", endpoint=endpoint, topics=self._bound(topics))

    def _bound(self, topics: Iterable[str]) -> object:
        return self.connection.dialect.bind_texts(sorted(set(topics)))

    def needed(self, *, writing: bool) -> str:
        who = "subscriber needs SELECT, INSERT, UPDATE and DELETE" if writing else "publisher needs SELECT"
        return f"a {who} ON {self.connection.dialect.table(self.table)}"


def readable_tables(connection: Connection) -> list[Table]:
    """The tables of subscriptions that this login may read, whatever they are called."""
    statement = connection.dialect.statement("subscription_tables")
    rows = connection.execute(statement, doing="looking for tables of subscriptions")
    return [Table(table=name, schema=schema) for schema, name in rows]


def unquoted(dialect: Dialect, address: str) -> list[Table]:
    """The tables that an address without quotation marks may mean: a dot parts a schema from a table."""
    dots = [at for at, letter in enumerate(address) if letter == "."]
    reads = dialect.quoted_addresses and '"' not in address
    return [Table(schema=address[:at], table=address[at + 1 :]) for at in dots] if reads else []


def present(connection: Connection, tables: Sequence[Table]) -> set[Table]:
    """Which of these tables the database has; on SQL Server only those to which the login has any right."""
    if not tables:
        return set()
    dialect = connection.dialect
    tables = [each for each in tables if connection.holds(each.schema) and connection.holds(each.table)]
    parameters = {
        "schemas": dialect.bind_texts([each.schema for each in tables]),
        "tables": dialect.bind_texts([each.table for each in tables]),
    }
    rows = connection.execute(dialect.statement("present_tables"), parameters, doing="looking for tables")
    return {Table(table=name, schema=schema) for schema, name in rows}
