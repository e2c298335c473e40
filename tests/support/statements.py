"""Makes the package say each of SQL Server's statements,
with the database's answers to it and the expected result.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Connection, open_reader
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.tables import database_facts, ddl, queue_table, queues, rights, table_kinds
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations, NotAllowed
from sqlqueue_spark.tables.database_facts import OpenTransaction
from sqlqueue_spark.tables.delayed import DelayedPart, DelayedTable, Due, Forwarded
from sqlqueue_spark.tables.insert import insert
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.queue_admin import Envelope, Numbers, QueueAdmin, Space
from sqlqueue_spark.tables.queue_table import Column, QueueTable
from sqlqueue_spark.tables.queues import InTransit, Oldest, Queue
from sqlqueue_spark.tables.rights import Rights
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_mark import NO_BATCH, Batch, Mark
from sqlqueue_spark.tables.subscriptions import (
    Subscription,
    SubscriptionTable,
    present,
    readable_tables,
    table_of,
)
from tests.support.recording import Answer
from tests.support.sending import Outgoing, outgoing_rows

Action = Callable[[Any], object]


class Call(NamedTuple):
    """Something to do on a connection, so that the package says a statement."""

    action: Action
    answers: list[Answer]
    expected: object


NAMES = sorted(SQLSERVER.statements())

#: Statements that are printed for people, who run them as they are.
FOR_PEOPLE = {name for name in NAMES if name.startswith(("grants_", "remedy_", "script_"))} | {
    "create_schema"
}
#: Statements that are empty here, because only another engine has to say something.
EMPTY = {name for name in NAMES if not SQLSERVER.statement(name)}

TABLE = Table(table="orders", schema="dbo")
COLUMNS = [
    Column(name, type_, True, False)
    for name, type_ in [
        ("Id", "uniqueidentifier"),
        ("CorrelationId", "varchar"),
        ("ReplyToAddress", "varchar"),
        ("Recoverable", "bit"),
        ("Expires", "datetime"),
        ("Headers", "nvarchar(max)"),
        ("Body", "varbinary(max)"),
        ("RowVersion", "bigint"),
    ]
]
QUEUE = QueueTable(
    table=TABLE,
    name="orders@[dbo]@[shop]",
    object_id=77,
    identity="77/2026-01-02T03:04:05",
    columns=tuple(COLUMNS),
    database="shop",
)
DELAYED = table_kinds.FoundTable(
    kind=table_kinds.DELAYED, table=TABLE, name=QUEUE.name, object_id=77, estimate=3
)
MESSAGE = Outgoing(
    id=bytes(range(16)), headers='{"a":"주문"}', body=b"{}", correlation_id="c", reply_to="Sales"
)
NOW, LATER = "2026-01-02T03:04:05", "2026-01-02T04:04:05"
ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
MARK = '{"claim":"c","run":"r","sealed":true,"tasks":{"t":2},"destinations":["orders@[dbo]@[shop]"]}'

DELAYED_COLUMNS = [
    Column(name, type_, True, False)
    for name, type_ in [("Headers", "nvarchar(max)"), ("Body", "varbinary(max)"), ("Due", "datetime")]
]
#: A message for a queue, and one for a table of delayed messages.
SENT = (
    (QUEUE, MESSAGE),
    (
        replace(QUEUE, columns=tuple(DELAYED_COLUMNS), due="Due"),
        MESSAGE._replace(due=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ),
)
#: The row of a delayed message on SQL Server: its RowVersion and its Due.
DUE_ROW = f"7 {NOW}.000"
DUE = Due(DUE_ROW, 0, "{}", NOW)

DATABASE = Answer("SELECT DB_NAME()", "wbw", [["shop", 0, None]])
CLOCK = Answer("SELECT SYSUTCDATETIME()", "t", [[NOW]])
STORAGE = Answer("is_read_committed_snapshot_on", "bb", [[0, 0]])
VERSIONS_IN_A_HEAP = Answer("is_read_committed_snapshot_on", "bb", [[1, 1]])
IDENTITY = Answer("t.create_date", "wwiw", [["dbo", "orders", 77, NOW]])
TABLE_COLUMNS = Answer("c.is_computed", "wwbbb", [[each.name, each.type, 1, 0, 1] for each in COLUMNS])
FOUND = Answer("AS bytes", "ibib", [[5, 0, 700, 1], [6, 1, 700, 0]])
FOUND_IN_ANY_ORDER = Answer("AS bytes", "ibib", [[6, 1, 700, 0], [5, 0, 700, 0]])
#: A heap whose index on RowVersion is there, or serves only part of its rows.
INDEXED = Answer(
    "i.is_unique",
    "wwbww",
    [["Index_RowVersion", "RowVersion", 0, "nonclustered", None], [None, None, None, "heap", None]],
)
UNINDEXED = Answer(
    "i.is_unique",
    "wwbww",
    [
        ["Index_RowVersion", "RowVersion", 0, "nonclustered", "([Expires] IS NULL)"],
        [None, None, None, "heap", None],
    ],
)
MESSAGES = "wwwbtwxi"
MESSAGE_NAMES = (
    "Id",
    "CorrelationId",
    "ReplyToAddress",
    "Recoverable",
    "Expires",
    "Headers",
    "Body",
    "RowVersion",
)
MESSAGE_ROW = [ID, None, None, 1, None, "{}", "body", 5]
READ = dict(zip(SCHEMA.names, [ID, None, None, True, None, "{}", b"body", 5], strict=True))
MARKED = Answer("SELECT Headers", "w", [[MARK]])
OPENED = Answer("(Task, Destination, Headers)", changed=1)


def queue(connection: Connection) -> Queue:
    return Queue(connection, QUEUE)


def admin(connection: Connection) -> QueueAdmin:
    return QueueAdmin(connection, QUEUE)


def outbox(connection: Connection) -> OutboxTable:
    return OutboxTable(connection, "Sales")


def stage(connection: Connection) -> Stage:
    return Stage(connection, Table(table="billing.Outgoing", schema="dbo"))


def _failing_stage(connection: Connection) -> Stage:
    options = SinkOptions(url="mssql://host/shop", queue="orders", outbox="none", error_queue="error")
    return Stage(connection, Table(table="billing.Outgoing", schema="dbo"), options)


def delayed(connection: Connection) -> DelayedTable:
    return DelayedTable(connection, Table(table="orders.Delayed", schema="dbo"))


def subscriptions(connection: Connection) -> SubscriptionTable:
    return SubscriptionTable(connection, table_of("dbo"))


def read(name: str, first: int, last: int) -> Action:
    def action(connection: Connection) -> object:
        reader = open_reader(connection.target)
        statement = queues.read_statement(SQLSERVER, QUEUE, name)
        batches = list(reader.batches(statement, RowSet([(first, last)]), SCHEMA))
        reader.close()
        return [row for batch in batches for row in batch.to_pylist()]

    return action


def take(rows: RowSet) -> Action:
    def action(connection: Connection) -> object:
        reader = open_reader(connection.target)
        statement = queues.read_statement(SQLSERVER, QUEUE, "take")
        batches = reader.take(statement, rows, SCHEMA.append(pa.field("expired", pa.bool_())))
        reader.close()
        return [row for batch in batches for row in batch.to_pylist()]

    return action


def tried(connection: Connection) -> None:
    """Make an attempt that goes well."""
    with connection.attempt():
        connection.execute("SELECT 7")


def tried_in_vain(connection: Connection) -> str:
    """Make an attempt that fails, so that only the attempt is undone."""
    try:
        with connection.attempt():
            raise QueueError("refused")
    except QueueError as error:
        return str(error)


def isolated(level: str) -> Action:
    def action(connection: Connection) -> object:
        given = {"url": connection.target.url, "endpoint": "Sales", "isolationLevel": level}
        options = SinkOptions.parse(given)
        with Sender(Destinations(options)) as sender:
            return sender._connected(connection.target) is connection

    return action


def _storage(connection: Connection) -> object:
    table = queues.get(connection, "orders", Naming(default_schema="dbo")).table
    return table.row_versions, table.keeps_skipped


def _barred(connection: Connection) -> str:
    options = SinkOptions(url="mssql://host/shop", queue="orders", outbox="none")
    with AllowedDestinations(options).entered(connection, [QUEUE]) as barred:
        return str(barred[QUEUE.address])


def _hasty(connection: Connection) -> None:
    with connection.hasty(100):
        pass


_CALLS: dict[str, tuple[Action, list[Answer], object]] = {
    "claim": (
        lambda c: queue(c).claim(LOWEST, HIGHEST, 256),
        [FOUND],
        ((5, 6), (False, True), (700, 700), [5]),
    ),
    "claim_runs": (
        lambda c: list(queue(c).claim_runs(RowSet([(5, 6), (9, 9)]))),
        [FOUND_IN_ANY_ORDER],
        [((5, 6), (False, True), (700, 700), [])],
    ),
    "count_range": (lambda c: queue(c).count(5, 9), [Answer("COUNT_BIG", "i", [[4]])], 4),
    "look": (lambda c: queue(c).look(4, 9_000_000_000, 2), [FOUND], ((5, 6), (False, True), (700, 700), [5])),
    "lock": (
        lambda c: list(queue(c).lock(RowSet([(5, 6), (9, 9)]))),
        [Answer("q.Expires", "iit", [[9, 800, NOW], [5, 700, None]])],
        [(5, 700), (9, 800)],
    ),
    "delete": (lambda c: queue(c).delete(RowSet([(5, 6), (9, 9)])), [Answer("DELETE q", changed=3)], 3),
    "delete_range": (lambda c: queue(c).delete(RowSet([(5, 8)])), [Answer("DELETE q", changed=4)], 4),
    "ids": (
        lambda c: queue(c).ids([5, 9]),
        [Answer("q.Id", "iw", [[5, ID], [9, ID.upper()]])],
        {5: ID, 9: ID},
    ),
    "headers_of": (
        lambda c: queue(c).headers_of([5, 9]),
        [Answer("q.Headers", "iww", [[9, ID, "{}"], [5, ID, None]])],
        {9: (ID, "{}"), 5: (ID, None)},
    ),
    "lock_in_transit": (
        lambda c: queue(c).lock_in_transit([5, 9]),
        [
            Answer(
                "UPDLOCK, READPAST",
                "iwwwtwx",
                [[9, ID, None, None, NOW, "{}", "x"], [5, ID, "c", "r", None, None, None]],
            )
        ],
        [
            InTransit(5, ID, "c", "r", None, None, None),
            InTransit(
                9, ID, None, None, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).replace(tzinfo=None), "{}", b"x"
            ),
        ],
    ),
    "first_reader": (
        lambda c: queue(c).first_reader("driver/1"),
        [Answer("@LockTimeout = 0", "b", [[1]])],
        True,
    ),
    "oldest": (
        lambda c: queue(c).oldest(LOWEST, 5, 9, 16),
        [Answer("ROW_NUMBER", "iiiiiiii", [[2, 0, 4, 12, 3, 1, 0, 0]])],
        Oldest(2, 0, 3, 12, 3, False, 0, 0),
    ),
    "storage": (_storage, [DATABASE, IDENTITY, TABLE_COLUMNS, VERSIONS_IN_A_HEAP], (True, True)),
    "identity": (lambda c: queue(c).identity(), [IDENTITY], f"77/{NOW}"),
    "highest": (lambda c: queue(c).highest(), [Answer("MAX(RowVersion)", "i", [[9]])], 9),
    "waiting": (
        lambda c: queue(c).waiting(5),
        [Answer("MAX(RowVersion)", "iiwt", [[6, 9, "{}", NOW]])],
        queues.Waiting(6, 9, "{}", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ),
    "holders": (
        lambda c: [str(each) for each in queue(c).holders(RowSet([(5, 9)]))],
        [Answer("dm_tran_locks", "iwww", [[51, "sa", "box", None]])],
        ["session 51 (unnamed program, sa@box)"],
    ),
    "server": (
        lambda c: tuple(database_facts.server(c)),
        [
            Answer(
                "SERVERPROPERTY",
                "wwwwii",
                [["shop", "shop", "SQL Server 16.0.4135.4, Developer Edition (64-bit)", "level", 150, 130]],
            )
        ],
        ("shop", "shop", "SQL Server 16.0.4135.4, Developer Edition (64-bit)", "level", 150, 130),
    ),
    "database_identity": (
        database_facts.identity,
        [Answer("service_broker_guid", "w", [["0f8fad5b-d9cb-469f-a165-70867728950e"]])],
        "0f8fad5b-d9cb-469f-a165-70867728950e",
    ),
    "database": (
        lambda c: [
            database_facts.database(c),
            getattr(queue_table.find(c, replace(TABLE, catalog="BILL]ing")), "address", None),
        ],
        [
            DATABASE,
            Answer("SELECT DB_NAME()", "wbw", [["shop", 0, "Bill]ing"]]),
            IDENTITY,
            TABLE_COLUMNS,
        ],
        ["shop", "orders@[dbo]@[Bill]]ing]"],
    ),
    "namesakes": (
        lambda c: str(queue_table.missing(c, TABLE, "here", "the name")),
        [DATABASE, Answer("LOWER(o.name)", "www", [["dbo", "orders", "view"]])],
        "orders@[dbo] is a view, not a queue table; correct the name or its schema.",
    ),
    "columns": (
        lambda c: getattr(queue_table.find(c, TABLE), "spelled", {}).get("id"),
        [DATABASE, IDENTITY, TABLE_COLUMNS],
        "Id",
    ),
    "indexes": (
        lambda c: [each.name for each in admin(c).indexes],
        [INDEXED],
        ["Index_RowVersion"],
    ),
    "index_names": (
        lambda c: admin(c).new_index_name("I"),
        [Answer("SELECT i.name", "w", [["i"]])],
        "I_2",
    ),
    "space": (
        lambda c: admin(c).space(),
        [Answer("used_pages", "iiii", [[1, 2, 0, 0]])],
        Space(1, 2, 0, 0),
    ),
    "numbers": (
        lambda c: admin(c).numbers,
        [Answer("last_value", "wwii", [["dbo", "orders", 9, HIGHEST]])],
        Numbers(TABLE, 9, HIGHEST),
    ),
    "rights": (
        lambda c: rights.held(c, QUEUE),
        [
            Answer(
                "HAS_PERMS_BY_NAME",
                "wwwb",
                [["shop", "receiver", "SELECT", 1], ["shop", "sender", "INSERT", 0]],
            )
        ],
        Rights(user="shop", receiver_lacks=(), sender_lacks=("INSERT",)),
    ),
    "power": (
        lambda c: rights.power(c, QUEUE),
        [Answer("IS_SRVROLEMEMBER", "w", [["is a sysadmin"]])],
        "is a sysadmin",
    ),
    "settings": (
        lambda c: admin(c).settings,
        [Answer("lock_escalation_desc", "ww", [["lock escalation", "TABLE"]])],
        [("lock escalation", "TABLE")],
    ),
    "open_transactions": (
        lambda c: database_facts.open_transactions(c, 120),
        [Answer("sys.dm_exec_sessions", "wiwwwtt", [["its locks stay", 51, "sa", "box", None, NOW, LATER]])],
        [
            OpenTransaction(
                *("its locks stay", 51, "sa", "box", None),
                datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC),
            )
        ],
    ),
    "length": (
        lambda c: admin(c).length()[1:],
        [
            *(Answer("COUNT_BIG", "iiit", [[3, 0, 2100, NOW]]), INDEXED),
            Answer(
                "AS body_bytes",
                "iwbwi",
                [[5, ID, 0, '{"NServiceBus.TimeSent":"2026-01-02 03:04:00:000000 Z"}', 4]],
            ),
        ],
        (3, 0, 2100, datetime(2026, 1, 2, 3, 4, tzinfo=UTC), timedelta(seconds=5)),
    ),
    "count_up_to": (
        lambda c: admin(c).count_up_to(1_001),
        [Answer("COUNT_BIG", "i", [[1_001]])],
        1_001,
    ),
    "peek": (
        lambda c: [each.row_version for each in admin(c).messages(LOWEST, 10)],
        [INDEXED, Answer("FETCH NEXT", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]])],
        [5],
    ),
    "peek_by_scan": (
        lambda c: [each.row_version for each in admin(c).messages(LOWEST, 10)],
        [UNINDEXED, Answer("FETCH NEXT", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]])],
        [5],
    ),
    "peek_headers": (
        lambda c: admin(c).envelopes(LOWEST, HIGHEST, 500),
        [Answer("AS body_bytes", "iwbwi", [[5, ID.upper(), 0, "{}", 4], [6, ID, 1, None, None]])],
        [Envelope(5, ID, False, "{}", 4), Envelope(6, ID, True, None, None)],
    ),
    "tables": (
        lambda c: [
            (each.kind, each.name, each.estimate, each.stranger) for each in table_kinds.find(c, "dbo")
        ],
        [
            DATABASE,
            Answer(  # beside senders each column may tell another number of rows
                "r.rows",
                "wwiwiw",
                [["dbo", "orders", 77, each.name, 12 + at, "Sales"] for at, each in enumerate(COLUMNS)],
            ),
        ],
        [("queue", "orders@[dbo]@[shop]", 12, "Sales")],
    ),
    "purge": (
        lambda c: admin(c).purge(LOWEST, 9, expired=False),
        [Answer("deleted.RowVersion", "i", [[7], [5]])],
        [5, 7],
    ),
    "purge_expired": (
        lambda c: admin(c).purge(LOWEST, 9, expired=True),
        [Answer("deleted.RowVersion", "i", [[7], [5]])],
        [5, 7],
    ),
    "insert": (
        lambda c: [insert(c, table, outgoing_rows([each])) for table, each in SENT],
        [Answer("INSERT INTO", changed=1)],
        [1, 1],
    ),
    "clock": (
        lambda c: insert(c, QUEUE, outgoing_rows([MESSAGE._replace(ttl_ms=1_500)])),
        [CLOCK, Answer("INSERT INTO", changed=1)],
        1,
    ),
    "schema": (
        lambda c: database_facts.schema_exists(c, TABLE, "shop"),
        [Answer("sys.schemas", "w", [["dbo"]])],
        True,
    ),
    "create_lock": (lambda c: ddl.lock_creation(c, TABLE), [], None),
    "create": (lambda c: ddl.SHAPES["classic"](c, TABLE).create(), [], None),
    "create_heap": (lambda c: ddl.SHAPES["heap"](c, TABLE).create(), [], None),
    "outbox_exists": (
        lambda c: outbox(c).exists(),
        [Answer("sys.tables", "wb", [["Sales_OutboxData", True]])],
        True,
    ),
    "outbox_create": (lambda c: outbox(c).create(), [], None),
    "outbox_index_dispatched_at": (lambda c: outbox(c).create(), [], None),
    "outbox_seen": (lambda c: outbox(c).seen(["b", "a"]), [Answer("j.MessageId", "w", [["b"]])], {"b"}),
    "outbox_seen_of": (
        lambda c: outbox(c).seen_of(["b", "a"], "sqlqueue 0.1.0"),
        [Answer("o.PersistenceVersion", "w", [["b"]])],
        {"b"},
    ),
    "outbox_oldest": (
        lambda c: outbox(c).may_hold("sqlqueue 0.1.0"),
        [Answer("TOP (1000)", "wi", [["sqlqueue 0.1.0", 3]])],
        True,
    ),
    "outbox_has_outcomes": (
        lambda c: outbox(c).has_outcomes(),
        [Answer("N'outcomes'", "w", [["outcomes>1f"]])],
        True,
    ),
    "outbox_add": (lambda c: outbox(c).add(["b", "a"]), [Answer("INSERT INTO", changed=2)], None),
    "outbox_add_new": (lambda c: outbox(c).add_new(["b", "a"]), [Answer("@added", "w", [["a"]])], {"a"}),
    "outbox_clean": (lambda c: outbox(c).clean(timedelta(days=7)), [Answer("DELETE", changed=12)], 12),
    "outbox_report": (
        lambda c: outbox(c).report().rows,
        [Answer("COUNT_BIG", "iitt", [[3, 0, NOW, NOW]])],
        3,
    ),
    "delayed_create": (lambda c: delayed(c).create(), [], None),
    "delayed_index": (lambda c: delayed(c).create(), [], None),
    "delayed_next": (
        lambda c: delayed(c).first_due_in(),
        [Answer("MIN(Due)", "i", [[-3]])],
        -3.0,
    ),
    "delayed_due": (
        lambda c: delayed(c).lock_due(2_000),
        [Answer("UPDLOCK, READPAST", "wiwww", [[DUE_ROW, 0, "{}", NOW, None]])],
        [DUE],
    ),
    "delayed_due_behind": (
        lambda c: delayed(c).lock_due(2_000, DUE),
        [Answer("UPDLOCK, READPAST", "wiwww", [[DUE_ROW, 0, "{}", NOW, None]])],
        [DUE],
    ),
    "delayed_waiting": (
        lambda c: delayed(c).lock_waiting("sink.url", None, 2_000),
        [Answer("UPDLOCK, READPAST", "wiww", [[DUE_ROW, 0, NOW, ID]])],
        [Due(DUE_ROW, 0, "}", NOW, ID)],
    ),
    "delayed_send": (
        lambda c: delayed(c).send(
            replace(QUEUE, columns=tuple(each for each in COLUMNS if each.name in {"Id", "Headers"})),
            [Forwarded(DUE._replace(id=ID), 0, "{}")],
        ),
        [Answer("DELETE d", "ii", [[1, 1]])],
        None,
    ),
    "delayed_headers": (
        lambda c: delayed(c).headers([DUE]),
        [Answer("NULL, d.Headers", "www", [[DUE_ROW, None, "{}"]])],
        {DUE_ROW: (None, "{}")},
    ),
    "delayed_length": (
        lambda c: delayed(c).waiting(),
        [
            Answer(
                "COUNT_BIG",
                "wiii",
                [[',"sqlqueue.WaitsFor":"sink.url"}', 3, 1, -3], [None, 2, 0, 3]],
            )
        ],
        [
            DelayedPart("sink.url", 3, 1, timedelta(seconds=-3)),
            DelayedPart(None, 2, 0, timedelta(seconds=3)),
        ],
    ),
    "subscriptions_create": (lambda c: subscriptions(c).create(), [], None),
    "subscribers": (
        lambda c: subscriptions(c).subscribers(["Shop.B", "Shop.A"]),
        [
            Answer(
                "j.Topic, LEFT(s.QueueAddress, 1001)",
                "ww",
                [["Shop.A", "x@[dbo]@[shop]"], ["Shop.A", "y@[dbo]@[shop]"]],
            )
        ],
        {"Shop.A": ["x@[dbo]@[shop]", "y@[dbo]@[shop]"]},
    ),
    "subscriptions": (
        lambda c: subscriptions(c).all(),
        [Answer("LEFT(s.Endpoint, 1001)", "www", [["Billing", "Shop.A", "x@[dbo]@[shop]"]])],
        [Subscription("Billing", "Shop.A", "x@[dbo]@[shop]")],
    ),
    "subscribe": (
        lambda c: subscriptions(c).add("Billing", "x@[dbo]@[shop]", ["Shop.B", "Shop.A"]),
        [Answer("MERGE", changed=2)],
        None,
    ),
    "unsubscribe": (
        lambda c: subscriptions(c).remove("Billing", ["Shop.B", "Shop.A"]),
        [Answer("DELETE s", changed=2)],
        None,
    ),
    "subscription_tables": (
        readable_tables,
        [Answer("HAS_PERMS_BY_NAME", "ww", [["dbo", "SubscriptionRouting"]])],
        [Table(table="SubscriptionRouting", schema="dbo")],
    ),
    "present_tables": (
        lambda c: present(c, [TABLE, Table(table="gone", schema="dbo")]),
        [Answer("a.value, b.value", "ww", [["dbo", "orders"]])],
        {TABLE},
    ),
    "stage_create": (lambda c: stage(c).create(), [], None),
    "stage_storage": (lambda c: stage(c).create(), [], None),
    "stage_index": (lambda c: stage(c).create(), [], None),
    "stage_clear": (lambda c: stage(c).clear(), [MARKED, OPENED], None),
    "stage_open": (
        lambda c: len(stage(c).open("claim")),
        [Answer("SELECT MAX(RowVersion)", "i", [[8]]), Answer("UPDATE", changed=0), OPENED],
        36,
    ),
    "stage_last": (
        lambda c: len(stage(c).open("claim")),
        [Answer("SELECT MAX(RowVersion)", "i", [[None]]), Answer("UPDATE", changed=1)],
        36,
    ),
    "stage_hold": (lambda c: stage(c).hold(), [DATABASE, IDENTITY, TABLE_COLUMNS], None),
    "stage_held": (
        lambda c: stage(c).enter(Batch(query="q", number=7), None),
        [MARKED, DATABASE, IDENTITY, TABLE_COLUMNS, Answer("APPLOCK_TEST", "i", [[None]])],
        StageRun(name="r", claimed=True, batch=Batch(query="q", number=7), source_seen=True),
    ),
    "stage_try": (
        lambda c: stage(c).rehearse({"t": 2}, "orders@[dbo]@[shop]", whole=False),
        [DATABASE, IDENTITY, TABLE_COLUMNS, Answer("INSERT INTO", changed=1)],
        None,
    ),
    "stage_rows": (
        lambda c: _failing_stage(c).fail_rows("orders@[dbo]@[shop]", ["t"], 0, NotAllowed("its trigger")),
        [
            DATABASE,
            IDENTITY,
            TABLE_COLUMNS,
            STORAGE,
            TABLE_COLUMNS,
            Answer("SELECT MAX(RowVersion)", "i", [[9]]),
            Answer("SELECT CAST(Id", "wwx", [[ID, "{}", "body"]]),
            Answer("INSERT INTO", changed=1),
            Answer("SELECT MAX(RowVersion)", "i", [[None]]),
        ],
        1,
    ),
    "foreign_code": (
        _barred,
        [Answer("sp_executesql", "www", [["trigger", "audit", "eve"]])],
        (
            "Nothing is changed in the table orders@[dbo]@[shop] (of eve): its trigger 'audit' would run "
            "as this login; mend the table, or name it in the option allowedDestinations."
        ),
    ),
    "lock_timeout": (_hasty, [], None),
    "stage_mark": (
        lambda c: stage(c).mark(),
        [MARKED],
        Mark(
            claim="c",
            run="r",
            batch=NO_BATCH,
            sealed=True,
            tasks={"t": 2},
            destinations=("orders@[dbo]@[shop]",),
        ),
    ),
    "stage_insert": (
        lambda c: stage(c).add("task", {"orders@[dbo]@[shop]": outgoing_rows([MESSAGE])}),
        [Answer("INSERT INTO", changed=1)],
        None,
    ),
    "stage_seal": (
        lambda c: stage(c).seal({"u": 1}, ["orders@[dbo]@[shop]"], run="r"),
        [MARKED, Answer("UPDATE", changed=1)],
        None,
    ),
    **{
        name: (
            lambda c: stage(c).move("c"),
            [
                *(
                    MARKED,
                    Answer("COUNT_BIG", "wwi", [["t", "orders@[dbo]@[shop]", 2]]),
                    DATABASE,
                    IDENTITY,
                    TABLE_COLUMNS,
                ),
                *(Answer("INSERT INTO", changed=2), Answer("UPDATE", changed=1)),
                *(
                    Answer("SELECT MAX(RowVersion)", "i", [[8]]),
                    Answer("SELECT MAX(RowVersion)", "i", [[None]]),
                ),
            ],
            2,
        )
        for name in ("stage_count", "stage_next", "stage_move")
    },
    "read": (
        read("read", 5, 9_000_000_000),
        [Answer("SELECT TOP (2400)", MESSAGES, [MESSAGE_ROW], names=MESSAGE_NAMES)],
        [READ],
    ),
    "read_versions": (
        read("read_versions", 5, 9),
        [Answer("SELECT TOP (10000)", MESSAGES, [MESSAGE_ROW], names=MESSAGE_NAMES)],
        [READ],
    ),
    "read_unexpired": (
        read("read_unexpired", 5, 9),
        [Answer("SELECT TOP (2400)", MESSAGES, [MESSAGE_ROW], names=MESSAGE_NAMES)],
        [READ],
    ),
    "take": (
        take(RowSet([(5, 6), (9, 9)])),
        [Answer("DELETE FROM batch", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]], names=(*MESSAGE_NAMES, "expired"))],
        [{**READ, "expired": False}],
    ),
    "attempt_begin": (tried, [], None),
    "attempt_check": (tried, [], None),
    "attempt_state": (tried_in_vain, [Answer("XACT_STATE", "i", [[1]])], "refused"),
    "attempt_undo": (tried_in_vain, [Answer("XACT_STATE", "i", [[1]])], "refused"),
    "session": (lambda c: c.commit(), [], None),
    "isolation": (
        lambda c: [
            isolated(each)(c) for each in ("ReadCommitted", "RepeatableRead", "Serializable", "Snapshot")
        ],
        [],
        [False] * 4,
    ),
}

CALLS = {name: Call(*call) for name, call in _CALLS.items()}
