"""What people do to queues from outside: create, inspect, measure, look into, send to and purge them.

The functions take and return plain values; each opens a connection of its own and closes it. Nothing here blocks the
senders and receivers of a live queue.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlqueue_spark.administration import sample_messages
from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.findings import Finding, of_rights, of_table
from sqlqueue_spark.inspection.neighbour_findings import of_database, of_rows
from sqlqueue_spark.inspection.server_facts import ServerFact, facts
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.failed import FAILED_QUEUE
from sqlqueue_spark.messages.message import (
    CONTROL_MESSAGE,
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    format_headers,
    time_sent,
)
from sqlqueue_spark.messages.outgoing import REPLY_TO_ADDRESS, milliseconds, replaced
from sqlqueue_spark.options import NO_OUTBOX, ConnectionOptions, SinkOptions
from sqlqueue_spark.row_set import LOWEST
from sqlqueue_spark.tables import ddl, queues, rights
from sqlqueue_spark.tables.insert import CHUNK, Column
from sqlqueue_spark.tables.queue_admin import CLASSIC, Index, Message, QueueAdmin
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.rights import Rights
from sqlqueue_spark.tables.stage import table_named
from sqlqueue_spark.tables.subscriptions import table_of

if TYPE_CHECKING:
    from sqlqueue_spark.send import Composed

#: How large the messages of a load are where nobody gives a size; measured in the field.
MESSAGE_BYTES = 700

#: Bytes of one insert: enough to be fast, few enough for memory to hold them twice.
_CHUNK_BYTES = 8 << 20
#: The headers whose values are addresses.
_ADDRESSES = (REPLY_TO_ADDRESS, FORWARD_DESTINATION, FAILED_QUEUE)
#: A load with a steady rate goes out in so many portions a second.
_PORTIONS = 10


@dataclass(frozen=True, kw_only=True)
class Created:
    """A queue that is there now; ``new`` says that it was not there before."""

    queue: str
    new: bool


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a table looks like, how it is set up, what this login may do with it, and what is wrong."""

    queue: str
    columns: list[Column]
    indexes: list[Index]
    rights: Rights
    settings: list[ServerFact]
    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class Length:
    """How much stands in a queue. What is said of the oldest row is None if there is no row or its headers do not tell."""

    queue: str
    rows: int
    expired: int
    bytes: int
    oldest_sent: datetime | None
    oldest_age: timedelta | None


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A message that a person wants to send. Headers that it has are never overwritten."""

    body: bytes | None = None
    message_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ttl: timedelta | None = None


def create(
    options: ConnectionOptions,
    wanted: Sequence[str],
    *,
    instances: Sequence[str] = (),
    companions: Sequence[str] = (),
    stream: str | None = None,
    subscriptions: bool = False,
    shape: str = CLASSIC,
) -> list[Created]:
    """Create queue tables that are not there yet; safe when others do the same at the same time.

    :param instances: also the callback queue of each instance: ``Sales.X`` for the queue ``Sales``.
    :param companions: also these queues, such as ``error`` and ``audit``.
    :param stream: also the stage of this atomic pipeline. Else the pipeline's source creates it.
    :param subscriptions: also the table of subscriptions of the default schema.
    :param shape: ``classic`` or, on SQL Server, ``heap``, as the .NET installer makes them since 2020.
    """
    target = Target.of(options)
    naming = options.naming(target.dialect)
    with connect(target) as connection:
        tables = naming.tables(wanted, instances, companions)
        made = {table: ddl.create_queue(connection, table, shape) for table in tables}
        if stream is not None:
            table = table_named(stream, naming.default_schema)
            made[table] = ddl.create_stage(connection, table)
        if subscriptions:
            table = table_of(naming.default_schema)
            made[table] = ddl.create_subscriptions(connection, table)
        return [Created(queue=_name(connection, table), new=new) for table, new in made.items()]


def inspect(options: ConnectionOptions, queue: str, *, role: str | None = None) -> Inspection:
    """Columns, indexes, settings, rights and findings of a queue table, and what is wrong with its database for every queue.

    :param role: what the login is for, receiver or sender; it is a finding if it lacks a right of this role. Without a role
        it is a finding only if it can do neither.
    """
    with opened(options, queue) as admin, admin.connection.transaction():
        held = rights.held(admin.connection, admin.table)
        return Inspection(
            queue=admin.table.name,
            columns=admin.columns,
            indexes=admin.indexes,
            rights=held,
            settings=facts(admin, held),
            findings=[
                *of_table(admin),
                *of_rows(admin, held),
                *of_rights(admin, held, role),
                *of_database(admin.connection),
            ],
        )


def length(options: ConnectionOptions, queue: str) -> Length:
    """How many rows stand in a queue, how many of them are expired, their bytes, and how old the oldest is."""
    with opened(options, queue) as admin, admin.connection.transaction():
        found = admin.length()
    sent = time_sent(found.oldest_headers) if found.rows else None
    return Length(
        queue=admin.table.name,
        rows=found.rows,
        expired=found.expired,
        bytes=found.bytes,
        oldest_sent=sent,
        oldest_age=max(timedelta(0), found.now - sent) if sent else None,
    )


def peek(options: ConnectionOptions, queue: str, count: int = 10) -> list[Message]:
    """The first messages of a queue; this locks none of them and changes nothing."""
    with opened(options, queue) as admin, admin.connection.transaction():
        return admin.peek(count)


def send(options: ConnectionOptions, queue: str, draft: Draft) -> str:
    """Fill in the standard headers of a message and send it; returns its message id.

    A header that is an address, such as ReplyToAddress, may have any form; it is sent in the transport's own.

    :raises ConfigurationError: nobody says what type the message has, or such a header is no address.
    """
    _check_type(draft)
    with _inserter(options, queue) as (admin, insert):
        full = {
            name: _full_address(options, admin, value)
            for name, value in draft.headers.items()
            if name in _ADDRESSES and value
        }
        draft = replace(draft, headers={**draft.headers, **full})
        message = completed(options, queue, draft)
        insert(replaced(message.rows([0]), ttl_ms=pa.array([milliseconds(draft.ttl)], pa.int64())))
    return message.ids[0]


def completed(options: ConnectionOptions, queue: str, draft: Draft) -> Composed:
    """A message with the headers that every receiver expects, as a sink completes them.

    :raises ConfigurationError: neither the draft's type nor a header says what type the message has.
    """
    from sqlqueue_spark.send import FrameColumns, MessageBuilder

    _check_type(draft)
    sink = SinkOptions(url=options.url, queue=queue, outbox=NO_OUTBOX, message_type=draft.message_type)
    given = {"Headers": [format_headers(draft.headers)], "Body": pa.array([draft.body], pa.binary())}
    builder = MessageBuilder(columns=FrameColumns(names={name: name for name in given}), options=sink)
    return next(builder.compose([pa.RecordBatch.from_pydict(given)]))


def _check_type(draft: Draft) -> None:
    if (
        not (draft.message_type or draft.headers.get(ENCLOSED_MESSAGE_TYPES))
        and CONTROL_MESSAGE not in draft.headers
    ):
        raise ConfigurationError(
            "A message needs a type, or no receiver knows what to do with it; give --type "
            f"'Namespace.Name, Assembly', or the header {ENCLOSED_MESSAGE_TYPES}."
        )


def _full_address(options: ConnectionOptions, admin: QueueAdmin, address: str) -> str:
    """An address in the queue's database, as the transport writes it."""
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
    progress: Callable[[int], object] = lambda _: None,
) -> timedelta:
    """Send ``count`` realistic messages of about ``size`` bytes of headers and body each; returns how long it took.

    :param rate: messages a second, steadily; None is as fast as it goes.
    :param progress: is told how many more messages are sent and committed.
    """
    ttl_ms = milliseconds(ttl)
    portion = max(1, min(CHUNK, _CHUNK_BYTES // size, (rate or CHUNK * _PORTIONS) // _PORTIONS))
    with _inserter(options, queue) as (admin, insert):
        reply_to = _full_address(options, admin, sample_messages.REPLY_TO)
        began = time.monotonic()
        for first in range(0, count, portion):
            if rate is not None:
                time.sleep(max(0.0, began + first / rate - time.monotonic()))
            some = min(portion, count - first)
            now = datetime.now(UTC)
            insert(sample_messages.batch(first, some, size, now=now, reply_to=reply_to, ttl_ms=ttl_ms))
            progress(some)
        return timedelta(seconds=time.monotonic() - began)


def purge(
    options: ConnectionOptions,
    queue: str,
    *,
    expired: bool = False,
    progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Delete the rows that stand in a queue now, or only the expired ones; returns how many rows that were.

    Rows that others hold stay. Nobody waits, because each portion is a transaction of its own.

    :param progress: is told how many more rows are deleted.
    """
    deleted = 0
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            up_to = Queue(admin.connection, admin.table).highest()
        after = LOWEST
        while up_to is not None:
            with admin.connection.transaction():
                rows = admin.purge(after, up_to, expired=expired)
            deleted += len(rows)
            progress(len(rows))
            if len(rows) < admin.connection.dialect.written:
                break
            after = rows[-1]
    return deleted


@contextlib.contextmanager
def opened(options: ConnectionOptions, queue: str) -> Iterator[QueueAdmin]:
    """A queue table on a connection of its own."""
    target = Target.of(options)
    with connect(target) as connection:
        with connection.transaction():
            found = queues.get(connection, queue, options.naming(target.dialect))
        yield QueueAdmin(connection, found.table)


@contextlib.contextmanager
def _inserter(
    options: ConnectionOptions, queue: str
) -> Iterator[tuple[QueueAdmin, Callable[[pa.RecordBatch], None]]]:
    """A queue, and what sends messages to it, each call in a transaction of its own."""
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            inserter = admin.inserter()

        def insert(messages: pa.RecordBatch) -> None:
            with admin.connection.transaction():
                inserter.insert(messages)

        yield admin, insert


def _name(connection: Connection, table: Table) -> str:
    """The name of a table as the database spells it."""
    with connection.transaction():
        found = queues.find(connection, table)
    return found.name if found else str(table)
