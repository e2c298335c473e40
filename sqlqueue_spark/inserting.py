"""Sending to one queue table: messages become rows, in the columns that the table has, a chunk a statement.

Nothing here needs the right to read the table: what it looks like stands in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlqueue_spark.connections import Connection
from sqlqueue_spark.outgoing import Outgoing, ascii_json, expiring
from sqlqueue_spark.queues import OPTIONAL_COLUMNS, QueueTable

#: Most rows that one statement inserts or purges: about 5,000 locks may be escalated to a table lock.
CHUNK = 4_000

_INSERTED = ("Id", *OPTIONAL_COLUMNS, "Expires", "Headers", "Body")


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool
    computed: bool


class Inserter:
    """Inserts messages into one table, inside the connection's open transaction; never commits."""

    def __init__(self, connection: Connection, table: QueueTable, columns: Iterable[Column]) -> None:
        types = {column.name.lower(): column.type for column in columns}
        dialect = connection.dialect
        present = [dialect.quote(name) for name in _INSERTED if name.lower() in types]
        self._connection = connection
        self._doing = f"sending to {table.name}"
        self._statement = dialect.render(
            "insert", queue=dialect.table(table.table), columns=", ".join(present)
        )
        #: varchar keeps only the letters of one code page.
        self._ascii = types.get("headers", "").startswith("varchar")

    def insert(self, messages: Sequence[Outgoing]) -> int:
        """Insert messages in their order; how many rows that made."""
        if self._ascii:
            messages = [message._replace(headers=ascii_json(message.headers)) for message in messages]
        if any(message.ttl_ms is not None for message in messages):
            messages = expiring(messages, self._now())
        bind = self._connection.dialect.bind_messages
        return sum(
            self._connection.modify(self._statement, bind(chunk), doing=self._doing)
            for chunk in _chunks(messages)
        )

    def _now(self) -> datetime:
        """The database's clock."""
        now: datetime = self._connection.execute(self._connection.dialect.statement("clock"))[0][0]
        return now.replace(tzinfo=UTC)


def columns_of(connection: Connection, table: QueueTable) -> list[Column]:
    """The columns of a table, in their order."""
    dialect = connection.dialect
    statement = dialect.render("columns", catalog=dialect.quote(table.database))
    names = (table.table.schema, table.table.table)
    return [Column(*row) for row in connection.execute(statement, names, doing=f"looking at {table.name}")]


def _chunks(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    for start in range(0, len(messages), CHUNK):
        yield messages[start : start + CHUNK]
