"""Rows that real .NET endpoints wrote, and tables as their installers make them;
see ``tests/data/dotnet/README.md``.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from tests.support.messages import Row
from tests.support.postgresql import PostgresEngine, PostgresQueue

_FOLDER = Path(__file__).parents[1] / "data" / "dotnet"
#: The files with rows of queues, and the tables in which they stood.
QUEUES = {
    "queue": "Interop.Subscriber",
    "error": "error",
    "audit": "audit",
    "servicecontrol/retried": "Interop.Handler",
    "servicecontrol/acknowledgement": "error",
    "servicecontrol/failedagain": "error",
    "servicecontrol/heartbeats": "Particular.ServiceControl",
    "servicecontrol/customchecks": "Particular.ServiceControl",
}
OUTBOX, DELAYED, SUBSCRIPTIONS = (
    "Interop_Recorder_OutboxData",
    "Interop.Recorder.Delayed",
    "SubscriptionRouting",
)
#: The endpoint whose outbox it is.
ENDPOINT = "Interop.Recorder"
_MODEL_OF_QUEUES = "Interop.Subscriber"
#: How long a row lives in a test that had a time to be received, because the recorded times pass.
_ALIVE = timedelta(days=1)


def lines(file: str) -> list[dict[str, Any]]:
    """The lines of a file."""
    return [json.loads(line) for line in (_FOLDER / f"{file}.jsonl").read_text().splitlines()]


def rows(file: str) -> list[Row]:
    """The rows of a queue, byte for byte."""
    return [
        Row(
            id=UUID(each["id"]),
            headers=each["headers"],
            body=base64.b64decode(each["body"]),
            row_version=each["seq"],
            expires=each["expires"] and datetime.fromisoformat(each["expires"]),
        )
        for each in lines(file)
    ]


def renumbered(given: Iterable[Row]) -> list[Row]:
    """The rows in one table, numbered from 1; those with a time to be received live on for a day."""
    until = datetime.utcnow() + _ALIVE  # noqa: DTZ003 -- the column has no zone
    return [
        replace(row, row_version=number, expires=row.expires and until)
        for number, row in enumerate(given, start=1)
    ]


#: Headers that end with the hop for which they were written.
ONE_HOP = (
    "NServiceBus.SqlServer.ForwardDestination",
    "NServiceBus.Retries",
    "NServiceBus.Retries.Timestamp",
    "$.store-and-forward.destination",
    "$.store-and-forward.eventtype",
)
#: The headers that a message gets on its way out if it has none of its own.
#: They stand behind those that it has.
COMPLETED = (
    "NServiceBus.MessageId",
    "NServiceBus.CorrelationId",
    "NServiceBus.ConversationId",
    "NServiceBus.MessageIntent",
    "NServiceBus.OriginatingMachine",
    "NServiceBus.OriginatingEndpoint",
    "NServiceBus.ContentType",
    "NServiceBus.TimeSent",
)


def usual() -> list[Row]:
    """The rows of all queues, in one table, but for those of :func:`unusual`."""
    return renumbered(row for file in QUEUES for row in rows(file) if not _is_unusual(row.headers))


def unusual() -> dict[str, Row]:
    """The rows whose headers are no object of strings, written otherwise than most,
    or partly of one hop, by what is odd.
    """
    found = [(file, row) for file in QUEUES for row in rows(file) if _is_unusual(row.headers)]
    return {f"{file}, {row.row_version}": row for file, row in found}


def _is_unusual(headers: str) -> bool:
    try:
        read = json.loads(headers)
    except ValueError:
        return True
    return None in read.values() or any(name in read for name in ONE_HOP) or "\\uD" in headers


def create_queue(engine: PostgresEngine, name: str, given: Sequence[Row] = ()) -> PostgresQueue:
    """A queue as their installer makes it, with these rows."""
    create_table(engine, _MODEL_OF_QUEUES, name)
    queue = engine.queue(name)
    insert = sql.SQL("INSERT INTO {} (id, expires, headers, body, seq) VALUES (%s, %s, %s, %s, %s)")
    values = [(row.id, row.expires, row.headers, row.body, row.row_version) for row in given]
    with psycopg.connect(engine.url) as connection:
        connection.cursor().executemany(insert.format(queue.table), values)
        if given:
            sequence = sql.Literal(f'"{name}_seq_seq"')
            last = sql.Literal(max(row.row_version for row in given))
            connection.execute(sql.SQL("SELECT setval({}, {})").format(sequence, last))
    return queue


def create_table(engine: PostgresEngine, model: str, name: str | None = None) -> None:
    """A table as the catalogue describes theirs.

    :param model: the name of the table that was described.
    :param name: its name here.
    """
    name = name or model
    columns = [each for each in lines("columns") if each["table"] == model]
    indexes = [each for each in lines("indexes") if each["table"] == model]
    table = _quoted(name)
    written = [_column(each, model, name) for each in columns]
    statements = [
        *(f"CREATE SEQUENCE {_sequence(name, each)} AS integer" for each in columns if _is_serial(each)),
        f"CREATE TABLE {table} ({', '.join(written)})",
        *(
            f"ALTER SEQUENCE {_sequence(name, each)} OWNED BY {table}.{_quoted(each['column'])}"
            for each in columns
            if _is_serial(each)
        ),
        *(_index(each, model, name) for each in indexes),
    ]
    for statement in statements:
        engine.execute(statement)


def insert(engine: PostgresEngine, table: str, given: Iterable[dict[str, Any]]) -> None:
    """Insert lines of a file whose names are those of columns."""
    with psycopg.connect(engine.url) as connection:
        for each in given:
            values = [
                base64.b64decode(value)
                if name == "body"
                else json.dumps(value)
                if isinstance(value, list)
                else value
                for name, value in each.items()
            ]
            statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, each)),
                sql.SQL(", ").join([sql.Placeholder()] * len(each)),
            )
            connection.execute(statement, values)


def _column(described: dict[str, Any], model: str, name: str) -> str:
    length = f"({described['length']})" if described["length"] else ""
    default = f" DEFAULT {described['default'].replace(model, name)}" if described["default"] else ""
    null = "" if described["nullable"] else " NOT NULL"
    return f"{_quoted(described['column'])} {described['type']}{length}{default}{null}"


def _index(described: dict[str, Any], model: str, name: str) -> str:
    index, table = _quoted(described["index"].replace(model, name)), _quoted(name)
    columns = ", ".join(map(_quoted, described["columns"]))
    if described["primary"] or described["unique"]:
        kind = "PRIMARY KEY" if described["primary"] else "UNIQUE"
        return f"ALTER TABLE {table} ADD CONSTRAINT {index} {kind} ({columns})"
    return f"CREATE INDEX {index} ON {table} ({columns})"


def _is_serial(described: dict[str, Any]) -> bool:
    return str(described["default"]).startswith("nextval")


def _sequence(name: str, described: dict[str, Any]) -> str:
    return _quoted(f"{name}_{described['column']}_seq")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
