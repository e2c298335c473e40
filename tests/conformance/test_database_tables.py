"""``sqlqueue list``: which tables of a database belong to queues, how much is in them, and since when."""

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import database_overview, queue_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.messages.message import format_time
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import table_kinds
from sqlqueue_spark.tables.table_kinds import kind_of
from tests.support import dotnet
from tests.support.messages import row_id
from tests.support.waiting import eventually


def options(engine):
    return ConnectionOptions.parse({"url": engine.url, "lockTimeout": "1s"})


def overview(engine, **more):
    return [*database_overview.overview(options(engine), **more)]


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, ["list", *arguments])


def sent(age):
    return json.dumps({"NServiceBus.TimeSent": format_time(datetime.now(UTC) - age)})


def test_all_tables_of_queues_are_found_and_no_others(postgresql):
    """Those of .NET installers too."""
    queue_tables.create(options(postgresql), ["orders"], stream="billing")
    CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(main, ["outbox", "create", "Sales"])
    dotnet.create_queue(postgresql, "Interop.Subscriber", dotnet.rows("queue"))
    for name in (dotnet.OUTBOX, dotnet.DELAYED, dotnet.SUBSCRIPTIONS):
        dotnet.create_table(postgresql, name)
    postgresql.execute("CREATE TABLE customers (id int, headers text)")
    postgresql.execute("CREATE VIEW seen AS SELECT * FROM orders")
    dotnet.insert(postgresql, dotnet.DELAYED, dotnet.lines("delayed"))
    assert [
        (each.kind, each.table.partition("@")[0], each.rows, each.exact) for each in overview(postgresql)
    ] == [
        ("delayed", "Interop.Recorder.Delayed", 3, True),
        ("queue", "Interop.Subscriber", 62, True),
        ("outbox", "Interop_Recorder_OutboxData", 0, True),
        ("outbox", "Sales_OutboxData", 0, True),
        ("stage", "billing.Outgoing", 0, True),
        ("queue", "orders", 0, True),
    ]


def test_a_queue_says_how_old_its_oldest_message_is(engine):
    queue = engine.create_queue()
    queue.insert_row(id=row_id(1), headers=sent(timedelta(hours=3)), body=b"")
    queue.insert_row(id=row_id(2), headers=sent(timedelta(hours=9)), body=b"")
    (found,) = overview(engine)
    assert (found.kind, found.rows, found.overdue, found.problem) == ("queue", 2, None, None)
    assert timedelta(hours=3) <= found.oldest_age < timedelta(hours=3, minutes=1)


def test_a_message_that_does_not_tell_has_no_age(engine):
    engine.create_queue().insert_row(id=row_id(1), headers="no JSON", body=b"")
    (found,) = overview(engine)
    assert (found.rows, found.oldest_sent, found.oldest_age) == (1, None, None)


def test_a_delayed_table_says_what_is_overdue(postgresql):
    """The time zone of the test server is not UTC."""
    dotnet.create_table(postgresql, dotnet.DELAYED)
    with psycopg.connect(postgresql.url) as connection:
        for hours, name in ((-2, timedelta(hours=4)), (5, timedelta(hours=1))):
            connection.execute(
                f'INSERT INTO "{dotnet.DELAYED}" (headers, body, due) '
                "VALUES (%s, '', (now() AT TIME ZONE 'UTC' + make_interval(hours => %s))::timestamptz)",
                [sent(name), hours],
            )
    (found,) = overview(postgresql)
    assert timedelta(hours=2) <= found.overdue < timedelta(hours=2, minutes=1)
    line = run(postgresql).stdout.splitlines()[1]
    assert re.search(r"^delayed  Interop\.Recorder\.Delayed@\S+  2 +due 2 h ago$", line)
    postgresql.execute(
        f'DELETE FROM "{dotnet.DELAYED}" WHERE due = (SELECT min(due) FROM "{dotnet.DELAYED}")'
    )
    (found,) = overview(postgresql)
    assert timedelta(hours=-5) < found.overdue < timedelta(hours=-4)
    assert (
        run(postgresql)
        .stdout.splitlines()[1]
        .endswith(".Delayed@[public]@[" + found.table.rpartition("@[")[2] + "  1")
    )


@pytest.mark.parametrize("due", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_does_not_know_ends_no_list(postgresql, due):
    dotnet.create_table(postgresql, dotnet.DELAYED)
    postgresql.execute(f"INSERT INTO \"{dotnet.DELAYED}\" (headers, body, due) VALUES ('{{}}', '', '{due}')")
    (found,) = overview(postgresql)
    assert (found.rows, found.overdue, found.problem) == (1, None, None)


def test_only_one_schema_is_listed_if_asked(engine):
    engine.create_queue()
    engine.create_queue(schema="sales")
    assert len(overview(engine)) == 2
    (found,) = overview(engine, schema="sales")
    assert found.table.startswith("orders@[sales]@")


def test_a_large_table_is_counted_only_if_asked(postgresql, monkeypatch):
    postgresql.create_queue().insert(300)
    # A session tells the statistics up to a second later what it has inserted.
    live = "SELECT n_live_tup FROM pg_stat_all_tables WHERE relname = 'orders'"
    eventually(lambda: postgresql.fetch(live) == [(300,)])
    (found,) = overview(postgresql)
    assert (found.rows, found.exact) == (300, True)
    monkeypatch.setattr(table_kinds, "TOO_LARGE", 8_192)
    postgresql.execute(
        "INSERT INTO orders SELECT gen_random_uuid(), NULL, '{}', '' FROM generate_series(1, 9)"
    )
    (about,) = overview(postgresql)
    assert (about.rows >= 300, about.exact) == (True, False)
    assert re.search(r"^queue  orders@\S+ +~30\d", run(postgresql).stdout.splitlines()[1])
    (exact,) = overview(postgresql, exact=True)
    assert (exact.rows, exact.exact) == (309, True)
    assert re.search(r"^queue  orders@\S+ +309", run(postgresql, "--exact").stdout.splitlines()[1])


def test_a_table_without_the_right_is_told_and_the_others_are_looked_at(postgresql, guarded_url):
    postgresql.create_queue().insert(1)
    postgresql.create_queue("secret").insert(1)
    postgresql.execute("GRANT SELECT ON orders TO guarded")
    found = [*database_overview.overview(ConnectionOptions.parse({"url": guarded_url}))]
    assert [(each.table.partition("@")[0], each.exact) for each in found] == [
        ("orders", True),
        ("secret", False),
    ]
    assert [(each.problem or "").partition(" at ")[0] for each in found] == [
        "",
        "User 'guarded' lacks a right",
    ]


def test_no_session_is_waited_for_long(postgresql):
    queue = postgresql.create_queue()
    postgresql.create_queue("zeta").insert(2)
    with queue.session() as session:
        session.connection.execute("LOCK TABLE orders")
        locked, free = overview(postgresql)
    assert ("stayed locked" in (locked.problem or ""), free.rows) == (True, 2)


def test_the_list_as_json(postgresql):
    postgresql.create_queue().insert(1)
    found = json.loads(run(postgresql, "--json").stdout)
    seconds = found.pop("oldestSeconds")
    assert seconds > 0
    assert found == {
        "kind": "queue",
        "table": f"orders@[public]@[{urlsplit(postgresql.url).path[1:]}]",
        "rows": 1,
        "exact": True,
        "oldestSent": "2025-11-20T08:15:30.123456Z",
        "overdueSeconds": None,
        "problem": None,
    }


def test_a_database_without_queues_says_so(postgresql):
    result = run(postgresql)
    assert (result.exit_code, result.stdout) == (0, "no table of a queue\n")
    assert run(postgresql, "--json").stdout == ""


@pytest.mark.parametrize(
    "columns, kind",
    [
        ("Id CorrelationId ReplyToAddress Recoverable Expires Headers Body RowVersion", "queue"),
        ("Id Expires Headers Body RowVersion BodyString", "queue"),
        ("Task Destination Id Expires Headers Body RowVersion", "stage"),
        ("Headers Body Due RowVersion", "delayed"),
        ("MessageId Dispatched DispatchedAt PersistenceVersion Operations", "outbox"),
        ("Id Headers Body", None),
        ("QueueAddress Endpoint Topic", None),
    ],
)
def test_columns_tell_the_kind_on_sql_server(columns, kind):
    assert kind_of(SQLSERVER, columns.split()) == kind


def test_columns_tell_the_kind_on_postgresql():
    assert kind_of(POSTGRESQL, ["id", "expires", "headers", "body", "seq"]) == "queue"
    assert (
        kind_of(POSTGRESQL, ["task", "destination", "ids", "expires", "headers", "bodies", "mark", "seq"])
        == "stage"
    )
    assert kind_of(POSTGRESQL, ["id", "headers", "body", "due"]) == "delayed"
    assert kind_of(POSTGRESQL, ["id", "headers", "body"]) is None
