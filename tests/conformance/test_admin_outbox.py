"""Outbox tables from outside: created once, cleaned in batches, reported, and all that by command."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, Duplicate, QueueError, SqlQueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.ddl import Created
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.support.outboxes import OutboxRows

WEEK = timedelta(days=7)
COLUMNS = {
    "postgresql": [
        ("MessageId", "character varying", "NO", 200),
        ("Dispatched", "boolean", "NO", None),
        ("DispatchedAt", "timestamp without time zone", "YES", None),
        ("PersistenceVersion", "character varying", "YES", 23),
        ("Operations", "jsonb", "NO", None),
    ],
    "sqlserver": [
        ("MessageId", "nvarchar", "NO", 200),
        ("Dispatched", "bit", "NO", None),
        ("DispatchedAt", "datetime", "YES", None),
        ("PersistenceVersion", "varchar", "NO", 23),
        ("Operations", "nvarchar", "NO", -1),
    ],
}
INDEXES = {
    "postgresql": (
        "SELECT indexdef FROM pg_indexes ORDER BY indexname",
        [
            (
                'CREATE INDEX "Sales_OutboxData_Dispatched" ON public."Sales_OutboxData" USING '
                'btree ("Dispatched")'
            ),
            (
                'CREATE INDEX "Sales_OutboxData_DispatchedAt" ON public."Sales_OutboxData" USING btree '
                '("DispatchedAt")'
            ),
            (
                'CREATE UNIQUE INDEX "Sales_OutboxData_pkey" ON public."Sales_OutboxData" '
                'USING btree ("MessageId")'
            ),
        ],
    ),
    "sqlserver": (
        (
            "SELECT COALESCE(i.filter_definition, ''), i.type_desc, i.is_primary_key FROM sys.indexes AS i "
            "JOIN sys.tables AS t ON t.object_id = i.object_id ORDER BY i.index_id"
        ),
        [("", "HEAP", False), ("", "NONCLUSTERED", True), ("([Dispatched]=(1))", "NONCLUSTERED", False)],
    ),
}


def options(engine, **more):
    return ConnectionOptions.parse({"url": engine.url, **more})


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, ["outbox", *arguments])


def shape(engine):
    columns = engine.fetch(
        "SELECT column_name, data_type, is_nullable, character_maximum_length FROM "
        "information_schema.columns WHERE table_name = 'Sales_OutboxData' ORDER BY ordinal_position"
    )
    statement, _ = INDEXES[engine.name]
    where = {"postgresql": statement.replace("ORDER", "WHERE tablename = 'Sales_OutboxData' ORDER")}
    found = engine.fetch(where.get(engine.name, statement))
    return [tuple(each) for each in columns], [each[0] if len(each) == 1 else tuple(each) for each in found]


@pytest.mark.needs("describes_indexes")
def test_a_created_table_is_that_of_the_net_persistence(engine):
    made = outbox_tables.create(options(engine), "Sales")
    assert made == Created(OutboxRows(engine).table, new=True)
    assert shape(engine) == (COLUMNS[engine.name], INDEXES[engine.name][1])


def test_creating_again_changes_nothing(engine):
    outbox_tables.create(options(engine), "Sales")
    rows = OutboxRows(engine)
    rows.insert("a")
    assert outbox_tables.create(options(engine), "Sales") == Created(rows.table, new=False)
    assert rows.ids() == {"a"}


def test_eight_who_create_tables_at_once_all_succeed(engine):
    """They create the same ones, and each is made once."""
    endpoints = [f"Sales.{number}" for number in range(10)]

    def create(_):
        return [outbox_tables.create(options(engine), endpoint).new for endpoint in endpoints]

    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(create, range(8))]
    assert [each.count(True) for each in zip(*made, strict=True)] == [1] * 10


@pytest.mark.parametrize("error", [SqlQueueError, Duplicate])
def test_a_creation_that_is_overtaken_is_no_error(postgresql, monkeypatch, error):
    """By a session without our lock."""
    create = OutboxTable.create

    def overtaken(self):
        with connect(Target.of(options(postgresql))) as other, other.transaction():
            create(OutboxTable(other, "Sales"))
        raise error("It is there already.")

    monkeypatch.setattr(OutboxTable, "create", overtaken)
    assert not outbox_tables.create(options(postgresql), "Sales").new
    assert shape(postgresql) == (COLUMNS["postgresql"], INDEXES["postgresql"][1])


def test_a_missing_schema_is_named_with_its_remedy(engine):
    with pytest.raises(ConfigurationError) as caught:
        outbox_tables.create(options(engine, defaultSchema="no]ne"), "Sales")
    name, remedy = {
        "postgresql": ('"no]ne"."Sales_OutboxData"', 'CREATE SCHEMA "no]ne"'),
        "sqlserver": ("[no]]ne].[Sales_OutboxData]", "CREATE SCHEMA [no]]ne]"),
    }[engine.name]
    assert str(caught.value) == (
        f"There is no schema 'no]ne' for the outbox table {name}; create it with: {remedy}, "
        "or correct the schema."
    )


def test_a_view_of_the_same_name_is_no_outbox(postgresql):
    """The refusal says so."""
    postgresql.execute('CREATE VIEW "Sales_OutboxData" AS SELECT 1 AS one')
    with pytest.raises(QueueError) as caught:
        outbox_tables.create(options(postgresql), "Sales")
    assert str(caught.value) == (
        'Something else than a table is called "public"."Sales_OutboxData" (a view, say), '
        "so the outbox table was not "
        "created; choose another endpoint."
    )


@pytest.mark.needs("describes_indexes")
def test_the_script_creates_the_same_table_each_time(engine):
    """The one for administrators, which may be run any number of times."""
    for batch in 2 * outbox_tables.script(engine.name, "Sales").split("\nGO\n"):
        if batch.strip():
            engine.execute(batch)
    assert shape(engine) == (COLUMNS[engine.name], INDEXES[engine.name][1])


def test_a_cleanup_forgets_everything_old_in_batches(engine):
    outbox_tables.create(options(engine), "Sales")
    rows = OutboxRows(engine)
    with connect(Target.of(options(engine))) as connection, connection.transaction():
        OutboxTable(connection, "Sales").add(f"order {number}" for number in range(9_000))
    rows.age(2 * WEEK)
    rows.insert("orphan", dispatched=False)
    rows.insert("new")
    batches = list[int]()
    assert outbox_tables.cleanup(options(engine), "Sales", WEEK, progress=batches.append) == 9_000
    expected = {"postgresql": [4_000, 4_000, 1_000], "sqlserver": [2_400, 2_400, 2_400, 1_800]}
    assert (batches, rows.ids()) == (expected[engine.name], {"orphan", "new"})


def test_a_report_counts_rows_and_tells_the_oldest(engine):
    """It counts orphans, too."""
    outbox_tables.create(options(engine), "Sales")
    rows = OutboxRows(engine)
    assert outbox_tables.report(options(engine), "Sales").found[:3] == (0, 0, None)
    rows.insert("old", age=timedelta(days=3))
    rows.insert("new")
    rows.insert("orphan", dispatched=False)
    report = outbox_tables.report(options(engine), "Sales")
    found = report.found
    assert (report.outbox, found.rows, found.undispatched) == (rows.table, 3, 1)
    assert found.oldest_dispatched_at is not None
    assert found.oldest_age is not None
    assert abs(found.oldest_age - timedelta(days=3)) < timedelta(minutes=1)


def test_a_row_of_a_clock_that_is_ahead_has_no_age_below_zero(engine):
    outbox_tables.create(options(engine), "Sales")
    OutboxRows(engine).insert("ahead", age=-timedelta(hours=1))
    assert outbox_tables.report(options(engine), "Sales").found.oldest_age == timedelta(0)
    assert json.loads(run(engine, "report", "Sales", "--json").stdout)["oldestSeconds"] == 0


def test_an_outbox_lives_its_whole_life_by_command(engine):
    rows = OutboxRows(engine)
    assert run(engine, "create", "Sales").stdout == f"created {rows.table}\n"
    assert run(engine, "create", "Sales").stdout == f"{rows.table} was there already\n"
    for name, days in (("a", 3), ("b", 8), ("c", 9)):
        rows.insert(name, age=timedelta(days=days))
    shown = run(engine, "report", "Sales")
    assert shown.exit_code == 0
    assert re.fullmatch(
        rf"{re.escape(rows.table)}\n  rows          3\n  undispatched  0\n"
        r"  oldest        dispatched \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, 9 d ago\n",
        shown.stdout,
    )
    assert run(engine, "cleanup", "Sales").stdout == "forgot 2 message ids of Sales\n"
    assert (
        run(engine, "cleanup", "Sales", "--keep", "2d", "--yes").stdout == "forgot 1 message ids of Sales\n"
    )
    report = json.loads(run(engine, "report", "Sales", "--json").stdout)
    assert report == {
        "outbox": rows.table,
        "rows": 0,
        "undispatched": 0,
        "oldestDispatchedAt": None,
        "oldestSeconds": None,
    }


def test_an_undispatched_row_is_a_finding(engine):
    """The exit code is 1."""
    run(engine, "create", "Sales")
    OutboxRows(engine).insert("orphan", dispatched=False)
    shown = run(engine, "report", "Sales")
    assert (shown.exit_code, shown.stderr) == (1, "")
    assert "  undispatched  1\nfinding: rows that are not dispatched" in shown.stdout
    as_json = run(engine, "report", "Sales", "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["undispatched"]) == (1, 1)


@pytest.mark.needs("numbers_missing_tables")
@pytest.mark.parametrize("command", ["cleanup", "report"])
def test_a_missing_table_is_named_with_its_remedy(engine, command):
    """In one sentence."""
    result = run(engine, command, "Sales")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: The outbox table {OutboxRows(engine).table} cannot be used (")
    assert result.stderr.endswith("create it with: sqlqueue outbox create 'Sales'.\n")


def test_a_table_may_lie_in_another_schema(postgresql):
    postgresql.execute("CREATE SCHEMA sales")
    assert (
        run(postgresql, "create", "Sales", "--schema", "sales").stdout
        == 'created "sales"."Sales_OutboxData"\n'
    )
    assert run(postgresql, "report", "Sales", "--schema", "sales").exit_code == 0
    assert run(postgresql, "report", "Sales").exit_code == 1


def test_forgetting_early_asks_for_the_endpoints_name(postgresql):
    """It says which table of which database that is, and how many ids are at stake.

    What senders do by themselves is not asked.
    """
    outbox_tables.create(ConnectionOptions(url=postgresql.url), "Sales")
    postgresql.execute(
        """INSERT INTO "Sales_OutboxData" ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion",
          "Operations")
           SELECT 'm' || n, true, now() AT TIME ZONE 'UTC' - interval '1 day', '1.0.0', '[]'
             FROM generate_series(1, 3) n"""
    )
    place = urlsplit(postgresql.url)
    early = ("outbox", "cleanup", "Sales", "--keep", "1ms")
    cli = CliRunner(env={"SQLQUEUE_URL": postgresql.url})
    refused = cli.invoke(main, early, input="sales\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f'Of the 3 message ids in "public"."Sales_OutboxData" of the database {place.path[1:]} at '
        f"127.0.0.1:{place.port} those "
        "older than 0.001 seconds will be forgotten, and their messages can go out twice; to go on, type the "
        "endpoint's name: sales\n"
        "Error: That is not 'Sales', so nothing was forgotten.\n"
    )
    assert cli.invoke(main, early, input="").exit_code == 1
    assert cli.invoke(main, early[:-2]).stdout == "forgot 0 message ids of Sales\n"
    assert cli.invoke(main, (*early[:-1], "6d"), input="Sales\n").stdout == "forgot 0 message ids of Sales\n"
    assert cli.invoke(main, early, input="Sales\n").stdout == "forgot 3 message ids of Sales\n"
