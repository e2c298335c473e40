"""Inserts messages into one table, of a queue or of delayed messages.

Nothing here needs the right to read the table: the catalogue tells which columns it has.
"""

from collections.abc import Sequence
from datetime import UTC

from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.body import empty_for_null
from sqlqueue_spark.messages.header_json import ascii_json, parse_headers
from sqlqueue_spark.messages.outgoing import expiring, new_row_ids, replaced
from sqlqueue_spark.tables.database_facts import now
from sqlqueue_spark.tables.delayed import stored_dues
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.queues import InTransit
from sqlqueue_spark.tables.table_code import check_went_in

#: Most messages that go out in one transaction.
CHUNK = 4_000


def insert(connection: Connection, table: QueueTable, messages: "pa.RecordBatch") -> int:
    """Insert messages (:data:`OUTGOING`) in their order, and return how many rows that made."""
    return _load(connection, table, fitted(connection, table, messages))


def insert_stored(connection: Connection, table: QueueTable, messages: "pa.RecordBatch") -> int:
    """Insert messages (:data:`STORED`) in their order as a table once had them; gives the number of rows.

    Nothing is mended: a body that is NULL stays NULL, and unreadable headers stay as they are. Where the
    column does not take every letter, headers that are JSON name letters beyond ASCII by escapes.
    """
    if _takes_few_letters(connection, table):
        headers = [
            text if text is None or parse_headers(text) is None else ascii_json(text)
            for text in messages["headers"].to_pylist()
        ]
        messages = replaced(messages, headers=pa.array(headers, pa.string()))
    return _load(connection, table, messages)


def _load(connection: Connection, table: QueueTable, messages: "pa.RecordBatch") -> int:
    dialect, doing = connection.dialect, Doing("sending to", table.name)
    asked = dialect.statement("row_security")  # each time: it may be switched on since the table was found
    by_policy = connection.execute(asked, {"name": dialect.table(table.table)}, doing=doing) == [(True,)]
    name = "insert_by_policy" if by_policy else "insert"
    statement = dialect.render(name, time=dialect.quote(table.due or "expires"), **filled(dialect, table))
    took = 0
    for start in range(0, messages.num_rows, dialect.written):
        part = messages.slice(start, dialect.written)
        if by_policy:
            rows = connection.modify(statement, dialect.bind_columns(part), doing=doing)
        else:
            rows = connection.load(statement, dialect.bind_messages(part), doing=doing)
        took += check_went_in(rows, part.num_rows, table.name)
    return took


def fitted(connection: Connection, table: QueueTable, messages: "pa.RecordBatch") -> "pa.RecordBatch":
    """The messages as a table can take them; delays and times to live count by the database's clock.

    All that goes into a queue or onto a stage passes here, and a body that is NULL becomes an empty one.
    """
    messages = replaced(messages, body=empty_for_null(messages["body"]))
    if _takes_few_letters(connection, table):
        headers = [ascii_json(text) for text in messages["headers"].to_pylist()]
        messages = replaced(messages, headers=pa.array(headers, pa.string()))
    if table.due:
        return stored_dues(connection, messages)
    if messages["ttl_ms"].null_count < messages.num_rows:
        messages = expiring(messages, now(connection))
    return messages


def _takes_few_letters(connection: Connection, table: QueueTable) -> bool:
    """Whether the headers' column takes only some letters: those of a code page, or of the database."""
    return not connection.holds_every_letter or in_code_page(table)


def in_code_page(table: QueueTable) -> bool:
    """Whether the headers' column takes only the letters of one code page."""
    return any(name.lower() == "headers" and type_.startswith("varchar") for name, type_, *_ in table.columns)


def insert_moved(connection: Connection, table: QueueTable, rows: Sequence[InTransit]) -> None:
    """Insert rows of another queue in their order, with new row ids; NULL headers become empty."""
    from sqlqueue_spark.messages.outgoing_schema import OUTGOING

    messages = [
        {
            **row._asdict(),
            "id": None,
            "headers": row.headers or "",
            "expires": row.expires and row.expires.replace(tzinfo=UTC),
        }
        for row in rows
    ]
    made = pa.RecordBatch.from_pylist(messages, OUTGOING)
    insert(connection, table, replaced(made, id=new_row_ids(len(rows))))


def filled(dialect: Dialect, table: QueueTable) -> dict[str, str]:
    """A table's quoted name, the columns that a message fills there, and what they get of its columns.

    A table of delayed messages has no time of expiry, and on SQL Server no Ids.
    """
    names = [dialect.quote(each) for each in table.filled(dialect)]
    values = names
    if table.due:
        names, values = [*names, dialect.quote(table.due)], [*values, dialect.staged_due]
    return {"queue": dialect.table(table.table), "columns": ", ".join(names), "values": ", ".join(values)}
