"""Administers queue tables: creates, inspects, measures, sends to and purges them.

No function blocks the senders and receivers of a live queue.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Unpack

from sqlqueue_spark.administration import Progress, sample_messages, untold
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.database_findings import of_database
from sqlqueue_spark.inspection.queue_findings import Finding, of_rights, of_rows, of_table
from sqlqueue_spark.inspection.server_facts import ServerFact, facts
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.header_json import format_headers
from sqlqueue_spark.messages.message import (
    CONTROL_MESSAGE,
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    MESSAGE_ID,
    ONE_HOP,
)
from sqlqueue_spark.messages.outgoing import REPLY_TO_ADDRESS, milliseconds, replaced
from sqlqueue_spark.messages.servicecontrol import FAILED_QUEUE
from sqlqueue_spark.options import NO_OUTBOX, ConnectionOptions, SinkOptions
from sqlqueue_spark.row_set import LOWEST
from sqlqueue_spark.tables import ddl, queues, rights
from sqlqueue_spark.tables.ddl import CLASSIC, Beside, Created
from sqlqueue_spark.tables.insert import CHUNK, insert
from sqlqueue_spark.tables.queue_admin import Index, Length, QueueAdmin
from sqlqueue_spark.tables.queue_table import Column
from sqlqueue_spark.tables.rights import Rights

#: Default size of the messages of a load, as measured in the field.
MESSAGE_BYTES = 700

#: Bytes of one insert: enough to be fast; memory holds them twice.
_CHUNK_BYTES = 8 << 20
_ADDRESSES = (REPLY_TO_ADDRESS, FORWARD_DESTINATION, FAILED_QUEUE)
_INSERTS_A_SECOND = 10


@dataclass(frozen=True, kw_only=True)
class Inspection:
    queue: str
    columns: list[Column]
    indexes: list[Index]
    rights: Rights
    settings: list[ServerFact]
    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A message to be sent. Its headers are never overwritten."""

    body: bytes | None = None
    message_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ttl: timedelta | None = None


def create(
    options: ConnectionOptions, wanted: Sequence[str], *, shape: str = CLASSIC, **beside: Unpack[Beside]
) -> list[Created]:
    """Create queue tables, unless they exist. Concurrent calls are safe.

    :param shape: ``classic`` or, on SQL Server, ``heap``, as the .NET installer makes them since 2020.
    """
    with connect(Target.of(options)) as connection:
        dialect = connection.dialect
        tables = ddl.wanted(dialect, options.naming(dialect), wanted, beside, shape)
        return [ddl.create(kind(connection, table)) for kind, table in tables]


def inspect(options: ConnectionOptions, queue: str, *, role: str | None = None) -> Inspection:
    """Inspect a queue table and its database; ``role`` as for :func:`queue_findings.findings`."""
    with opened(options, queue, shaped=False) as admin, admin.connection.transaction():
        held = rights.held(admin.connection, admin.table)
        return Inspection(
            queue=admin.table.name,
            columns=list(admin.table.columns),
            indexes=admin.indexes,
            rights=held,
            settings=[*facts(admin, held)],
            findings=[
                *of_table(admin),
                *of_rows(admin, held),
                *of_rights(admin, held, role),
                *of_database(admin.connection),
            ],
        )


def length(options: ConnectionOptions, queue: str) -> Length:
    """Return how many rows a queue has and how many are expired, their bytes, and the oldest one's age."""
    with opened(options, queue) as admin, admin.connection.transaction():
        return admin.length()


def send(options: ConnectionOptions, queue: str, draft: Draft) -> str:
    """Send a message; return its message id."""
    return send_bodies(options, queue, draft, [draft.body])[0]


def send_bodies(
    options: ConnectionOptions, queue: str, draft: Draft, bodies: Sequence[bytes | None]
) -> list[str]:
    """Send a message for each body, all in one transaction; return the message ids.

    The standard headers are filled in. An address in a header may have any form; the transport's is sent.

    :raises ConfigurationError: they have no type, or one id, or the value of an address header is no address.
    """
    check(draft, several=len(bodies) > 1)
    with opened(options, queue) as admin:
        messages = filled(options, admin, queue, draft, bodies)
        with admin.changing():
            for rows, _ in messages:
                insert(admin.connection, admin.table, rows)
    return [each for _, ids in messages for each in ids]


def check(draft: Draft, *, several: bool) -> None:
    """Raise ConfigurationError if a message cannot be sent, or not several times."""
    headers = draft.headers
    if not (draft.message_type or headers.get(ENCLOSED_MESSAGE_TYPES) or CONTROL_MESSAGE in headers):
        raise ConfigurationError(
            "A message needs a type, or no receiver knows what to do with it; give a type like "
            f"'Namespace.Name, Assembly', or the header {ENCLOSED_MESSAGE_TYPES}."
        )
    if several and MESSAGE_ID in headers:
        raise ConfigurationError(
            f"Several messages cannot have one id; leave out the header {MESSAGE_ID}, and each gets its own."
        )


def filled(
    options: ConnectionOptions, admin: QueueAdmin, queue: str, draft: Draft, bodies: Sequence[bytes | None]
) -> "list[tuple[pa.RecordBatch, Sequence[str]]]":
    """Return the rows (:data:`OUTGOING`) of messages, in parts, with their ids."""
    headers = draft.headers
    full = {name: _full_address(options, admin, headers[name]) for name in _ADDRESSES if headers.get(name)}
    text = format_headers({**headers, **full})
    return [*completed(options, queue, draft, [text] * len(bodies), bodies)]


def completed(
    options: ConnectionOptions,
    queue: str,
    draft: Draft,
    headers: Sequence[str],
    bodies: Sequence[bytes | None],
) -> "Iterator[tuple[pa.RecordBatch, Sequence[str]]]":
    """Yield messages as :func:`filled`, with the standard headers that they lack, as a sink fills them in."""
    from sqlqueue_spark.send.compose.database_of_address import Places
    from sqlqueue_spark.send.compose.frame_columns import FrameColumns
    from sqlqueue_spark.send.compose.message_builder import MessageBuilder

    sink = SinkOptions(url=options.url, queue=queue, outbox=NO_OUTBOX, message_type=draft.message_type)
    given = {"Headers": headers, "Body": pa.array(bodies, pa.binary())}
    columns = FrameColumns(names={name: name for name in given})
    builder = MessageBuilder(columns=columns, options=sink, places=Places(sink, sink), kept=ONE_HOP)
    ttl_ms = milliseconds(draft.ttl)
    for chunk in builder.compose([pa.RecordBatch.from_pydict(given)]):
        made = chunk.sends
        lasts = pa.array([ttl_ms] * len(made), pa.int64())
        yield replaced(made.rows(range(len(made))), ttl_ms=lasts), made.ids


def _full_address(options: ConnectionOptions, admin: QueueAdmin, address: str) -> str:
    """Return an address in the transport's full form; without a catalog it lies in the queue's database."""
    dialect = admin.connection.dialect
    table = options.naming(dialect).table(address)
    if table.catalog is None:
        table = replace(table, catalog=admin.table.database)
    return table.full_address(quoted=dialect.quoted_addresses)


def send_load(
    options: ConnectionOptions,
    queue: str,
    *,
    count: int,
    size: int = MESSAGE_BYTES,
    rate: int | None = None,
    ttl: timedelta | None = None,
    progress: Progress = untold,
) -> timedelta:
    """Send ``count`` sample messages; return how long it took.

    :param size: bytes of headers and body of each message, about.
    :param rate: messages a second, steadily; None is as fast as possible.
    """
    rows = max(1, min(CHUNK, _CHUNK_BYTES // size, (rate or CHUNK * _INSERTS_A_SECOND) // _INSERTS_A_SECOND))
    with opened(options, queue) as admin:
        reply_to = _full_address(options, admin, sample_messages.REPLY_TO)
        began = time.monotonic()
        for first in range(0, count, rows):
            if rate is not None:
                time.sleep(max(0.0, began + first / rate - time.monotonic()))
            numbers = range(first, min(first + rows, count))
            load = [*samples(options, queue, numbers, size, reply_to=reply_to, ttl=ttl)]
            with admin.changing():
                for part in load:
                    insert(admin.connection, admin.table, part)
            progress(len(numbers))
        return timedelta(seconds=time.monotonic() - began)


def samples(
    options: ConnectionOptions, queue: str, numbers: range, size: int, *, reply_to: str, ttl: timedelta | None
) -> "Iterator[pa.RecordBatch]":
    """Yield the sample messages of these numbers as rows, in parts; parameters as of :func:`send_load`."""
    headers = [format_headers(sample_messages.headers(each, reply_to)) for each in numbers]
    number = iter(numbers)
    for rows, _ in completed(options, queue, Draft(ttl=ttl), headers, [b""] * len(numbers)):
        left = (size - len(each) for each in rows["headers"].to_pylist())
        yield replaced(rows, body=pa.array(map(sample_messages.body, left, number), pa.binary()))


def purge(
    options: ConnectionOptions, queue: str, *, expired: bool = False, progress: Progress = untold
) -> int:
    """Delete the rows that are in a queue now, or only the expired ones; return how many were deleted.

    Rows that others have locked stay. The transactions are short, so other sessions do not wait.
    """
    deleted = 0
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            up_to = admin.highest()
        after = LOWEST
        while after < up_to:
            with admin.changing(deleting=True):
                rows = admin.purge(after, up_to, expired=expired)
            deleted += len(rows)
            progress(len(rows))
            after = rows[-1] if len(rows) == admin.connection.dialect.written else up_to
    return deleted


@contextlib.contextmanager
def opened(
    options: ConnectionOptions, queue: str, *, shaped: bool = True, again: bool = False
) -> Iterator[QueueAdmin]:
    """A queue on its own connection; ``shaped`` as for :func:`queues.at`, ``again`` for :func:`connect`."""
    target = Target.of(options)
    with connect(target, again=again) as connection:
        with connection.transaction():
            found = queues.get(connection, queue, options.naming(target.dialect), shaped=shaped)
        yield QueueAdmin(connection, found.table, options)
