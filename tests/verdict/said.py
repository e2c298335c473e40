"""Makes the package say its statements to a real database,
through its own classes and with parameters of a busy day.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest import mock

import pyarrow as pa

from sqlqueue_spark.engines.connection import Connection, Row
from sqlqueue_spark.engines.dialect import Dialect, Load
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Sql, Statement
from sqlqueue_spark.errors import QueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import NO_OUTBOX, SinkOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables import queue_table, queues, table_kinds
from sqlqueue_spark.tables.delayed import DelayedTable, Due, Forwarded
from sqlqueue_spark.tables.insert import insert
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.stages.stage import Stage
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of
from sqlqueue_spark.tables.table_kinds import FoundTable
from tests.support.sending import Outgoing, outgoing_rows

ENDPOINT = "Verdict"
STAGE = "Verdict.Outgoing"
DELAYED = "Verdict.Delayed"
QUEUE, DESTINATION = "orders", "billing"
#: These go by no rows of a queue, an outbox or a stage: what the catalogue says, how a session is set up,
#: and what makes or alters tables.
CATALOGUE = frozenset({
    *("columns", "database", "database_identity", "holders", "identity", "index_names", "indexes"),
    *("namesakes", "numbers", "open_transactions", "outbox_exists", "rights", "schema", "server", "settings"),
    *("row_security", "space", "stage_held"),
    *("delayed_stored", "delayed_zone", "foreign_code", "foreign_table", "power", "present_tables", "storage",
      "subscription_tables", "tables", "unidentified"),
})  # fmt: skip
SESSION = frozenset({"announce", "clean_indexes", "first_reader",
    *("attempt_begin", "attempt_check", "attempt_state", "attempt_undo", "backend", "clock"),
    *("create_lock", "isolation", "code_lock", "lock_timeout", "look_lock", "session", "stage_hold"),
    "statement_timeout",
})  # fmt: skip
#: They make or empty tables, or stand in scripts for people.
DDL_PREFIXES = (
    "create",
    "grants_",
    "remedy_",
    "script_",
    "outbox_create",
    "outbox_index_",
    "stage_create",
    "delayed_create",
    "delayed_index",
    "subscriptions_create",
)
DDL = frozenset({"stage_storage", "stage_index", "stage_clear"})

Hear = Callable[[str, Statement, Parameters], None]


@dataclass(frozen=True)
class Tables:
    """The tables of a database in which the package may say its statements."""

    queue: queue_table.QueueTable
    destination: queue_table.QueueTable
    stage: Table
    delayed: Table


class Heard(Connection):
    """A connection that tells of each statement before it runs."""

    def __init__(self, inner: Connection, hear: Hear) -> None:
        super().__init__(inner.target)
        self._inner = self._raw = inner
        self._hear = hear

    def execute(self, statement: Sql, parameters: Parameters = NOTHING, *, doing: str = "") -> list[Row]:
        self._tell(statement, parameters)
        return self._inner.execute(statement, parameters, doing=doing)

    def modify(self, statement: Statement, parameters: Parameters = NOTHING, *, doing: str = "") -> int:
        self._tell(statement, parameters)
        return self._inner.modify(statement, parameters, doing=doing)

    def load(self, statement: Statement, rows: Load, *, doing: str = "") -> int:
        self._tell(statement, rows if isinstance(rows, dict) else NOTHING)
        return self._inner.load(statement, rows, doing=doing)

    def running(
        self, statement: Sql, parameters: Parameters, doing: str
    ) -> contextlib.AbstractContextManager[object]:
        raise NotImplementedError

    def translated(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return self._inner.translated(doing)

    def _tell(self, statement: Sql, parameters: Parameters) -> None:
        if isinstance(statement, Statement):
            self._hear(statement.name, statement, parameters)


def planned(dialect: Dialect) -> set[str]:
    """The statements of an engine that go by rows of a queue, an outbox or a stage,
    and so have a plan to look at.

    Not those for a table that lacks its index: no table here does.
    """
    return {
        name
        for name, statement in dialect.statements().items()
        if statement
        and name not in CATALOGUE | SESSION | DDL
        and not name.startswith(DDL_PREFIXES)
        and not name.endswith("_by_scan")
    }


def create(connection: Connection) -> Tables:
    """Create the outbox, the stage and the delayed messages beside the two queues, which are there."""
    schema = connection.dialect.default_schema
    with connection.transaction():
        OutboxTable(connection, ENDPOINT).create()
        stage = Table(table=STAGE, schema=schema)
        Stage(connection, stage).create()
        delayed = Table(table=DELAYED, schema=schema)
        DelayedTable(connection, delayed).create()
        SubscriptionTable(connection, table_of(schema)).create()
    with connection.transaction():
        found = [
            queue_table.find(connection, Table(table=name, schema=schema)) for name in (QUEUE, DESTINATION)
        ]
    queue, destination = (each for each in found if each is not None)
    return Tables(queue, destination, stage, delayed)


def say_everything(connection: Connection, tables: Tables) -> None:
    """Say each statement that has a plan at least once; nothing of it is committed.

    A statement whose plan is so bad that it runs into the command timeout has been said all the same.
    """
    for action in (
        *_receiving(connection, tables),
        *_sending(connection, tables),
        *_staging(connection, tables),
        *_delaying(connection, tables),
        *_subscribing(connection),
    ):
        with contextlib.suppress(TryAgain):
            action()
        connection.rollback()


def _receiving(connection: Connection, tables: Tables) -> Iterator[Callable[[], object]]:
    queue, admin = Queue(connection, tables.queue), QueueAdmin(connection, tables.queue)
    chunk = connection.dialect.chunk
    every_second = RowSet((number, number) for number in range(1, 2 * chunk, 2))
    yield lambda: queue.claim(LOWEST, HIGHEST, chunk)
    yield lambda: queue.look(LOWEST, HIGHEST, chunk)
    yield lambda: list(queue.lock(every_second))
    yield lambda: list(queue.lock(RowSet([(1, chunk)])))
    if connection.dialect.statement("claim_runs"):
        yield lambda: list(queue.claim_runs(every_second))
        yield lambda: queue.count(LOWEST, HIGHEST)
    yield lambda: queue.delete(every_second)
    yield lambda: queue.delete(RowSet([(1, chunk)]))
    yield lambda: queue.ids(range(1, 64, 2))
    yield lambda: queue.headers_of(range(1, 64, 2))
    yield lambda: queue.headers_of(every_second.rows())
    yield lambda: queue.lock_in_transit(range(1, 64, 2))
    yield lambda: queue.oldest(LOWEST, 4_000, 5_000, 8_000)
    yield queue.highest
    yield lambda: queue.waiting(5)
    reading = ("read", "read_unexpired", "read_versions", "take")
    for name in filter(connection.dialect.statement, reading):
        statement = queues.read_statement(connection.dialect, tables.queue, name)
        yield partial(connection.execute, statement, {"first": 1, "last": 2_000, "count": 2_000})
    yield admin.length
    yield lambda: admin.count_up_to(1_001)
    yield admin.stopping_row
    yield lambda: admin.messages(LOWEST, 10)
    yield lambda: admin.envelopes(LOWEST, HIGHEST, 500)
    its = tables.queue
    found = FoundTable(kind="queue", table=its.table, name=its.name, object_id=its.object_id, estimate=0)
    yield lambda: table_kinds.rows(connection, found, exact=True)
    yield lambda: admin.purge(LOWEST, HIGHEST, expired=False)
    yield lambda: admin.purge(LOWEST, HIGHEST, expired=True)


def _sending(connection: Connection, tables: Tables) -> Iterator[Callable[[], object]]:
    outbox = OutboxTable(connection, ENDPOINT)
    ids = [f"{number:036}" for number in range(2_000)]

    def insert_by_policy() -> None:
        with mock.patch.object(connection, "execute", return_value=[(True,)]):  # row security is active
            insert(connection, tables.queue, _messages())

    yield lambda: insert(connection, tables.queue, _messages())
    if connection.dialect.statement("insert_by_policy"):
        yield insert_by_policy
    yield lambda: outbox.seen(ids)
    yield lambda: outbox.seen_of(ids, "sqlqueue 0.3.0")
    yield lambda: outbox.add(f"new {number}" for number in range(2_000))
    yield lambda: outbox.add_new(ids)
    yield lambda: outbox.may_hold("sqlqueue 0.3.0")
    yield outbox.has_outcomes
    yield lambda: outbox.clean(timedelta(days=7))
    yield outbox.report


def _staging(connection: Connection, tables: Tables) -> Iterator[Callable[[], object]]:
    stage, destination = Stage(connection, tables.stage), tables.destination.name

    def seal() -> None:
        run = stage.open("claim")
        stage.add("task", {destination: _messages()})
        stage.seal({"task": 1}, [destination], run=run)

    def rehearse() -> None:
        seal()
        stage.rehearse({"task": 1}, destination, whole=False)

    def move() -> None:
        seal()
        stage.move("claim")

    def fail() -> None:
        seal()
        url = connection.target.url
        given = SinkOptions(url=url, queue="orders", outbox=NO_OUTBOX, error_queue=destination)
        Stage(connection, tables.stage, given).fail_rows(destination, ["task"], 0, QueueError("It is gone."))

    yield rehearse
    yield move
    yield fail


def _delaying(connection: Connection, tables: Tables) -> Iterator[Callable[[], object]]:
    table = DelayedTable(connection, tables.delayed)
    due = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def store() -> None:
        found = queue_table.find(connection, tables.delayed)
        assert found is not None
        waiting = outgoing_rows([Outgoing(id=bytes(range(16)), headers="{}", body=b"{}", due=due)])
        insert(connection, found, waiting)

    def move() -> None:
        store()
        rows = table.lock_due(2_000)
        table.headers(rows)
        sent = [Forwarded(each, each.before, each.rest) for each in rows]
        table.send(tables.destination, sent)

    yield table.first_due_in
    yield table.waiting
    yield lambda: table.lock_waiting(None, None, 2_000)
    yield lambda: table.lock_due(2_000, Due("", 0, "", "2026-01-02T03:04:05"))
    yield move


def _subscribing(connection: Connection) -> Iterator[Callable[[], object]]:
    table = SubscriptionTable(connection, table_of(connection.dialect.default_schema))
    topics = [f"Shop.Event{number}" for number in range(50)]
    yield lambda: table.subscribers(topics)
    yield table.all
    yield lambda: table.add("Billing", "billing", topics)
    yield lambda: table.remove("Billing", topics)


def _messages() -> pa.RecordBatch:
    return outgoing_rows([Outgoing(id=bytes(range(16)), headers="{}", body=b"{}")])
