"""What is wrong with a table is found, with the statement that puts it right; what is only old is not."""

import psycopg
import pytest

from sqlqueue_spark.administration import queue_peek, queue_tables
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.inspection.queue_findings import Finding
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.rights import Rights
from tests.conftest import GUARDED_PASSWORD
from tests.support.waiting import eventually


def inspect(engine, address="orders"):
    return queue_tables.inspect(ConnectionOptions.parse({"url": engine.url}), address)


def findings(engine, address="orders"):
    return inspect(engine, address).findings


def name_of(engine):
    return inspect(engine).queue


def follow(engine, finding):
    """Do what the finding says, as a person would: statement by statement."""
    for statement in finding.remedy_sql.split(";"):
        if statement.strip():
            engine.execute(statement)


@pytest.mark.needs("tells_used_pages")
def test_a_classic_table_has_nothing_wrong(engine, queue):
    queue.insert(1000)
    assert findings(engine) == []


def test_a_queue_that_is_not_there_is_said_to_be_missing(engine):
    with pytest.raises(QueueError) as caught:
        inspect(engine)
    assert str(caught.value) == (
        f"There is no queue table orders@[{engine.default_schema}] in this database; create it with: "
        "sqlqueue create 'orders', or correct the queue name or its schema."
    )


def test_a_queue_of_another_case_or_schema_is_named(postgresql):
    postgresql.create_queue("Orders")
    postgresql.create_queue("orders", schema="sales")
    with pytest.raises(QueueError) as caught:
        inspect(postgresql)
    assert str(caught.value) == (
        "There is no queue table orders@[public] in this database, but there is Orders@[public] and "
        "orders@[sales]; create it with: sqlqueue create 'orders', or correct the queue name or its schema."
    )


OTHERS = {
    "a view": "CREATE VIEW orders AS SELECT 1",
    "a materialized view": "CREATE MATERIALIZED VIEW orders AS SELECT 1",
    "a partitioned table": "CREATE TABLE orders (seq bigint) PARTITION BY RANGE (seq)",
    "a table from which others inherit": (
        "CREATE TABLE orders (seq bigint); CREATE TABLE more () INHERITS (orders)"
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_has_the_name_of_a_queue_and_is_none_is_said_to_be_that(postgresql, other):
    postgresql.execute(OTHERS[other])
    with pytest.raises(QueueError) as caught:
        inspect(postgresql)
    assert str(caught.value) == (
        f"orders@[public] is {other}, not a queue table; correct the queue name or its schema."
    )


@pytest.mark.parametrize(
    "look, between",
    [("columns", "DROP TABLE orders"), ("namesakes", "CREATE TABLE orders (seq bigint)")],
    ids=["goes", "comes"],
)
def test_a_table_that_comes_or_goes_between_two_looks_is_missing(postgresql, monkeypatch, look, between):
    """It is no table of another kind, and lacks no column."""
    if look == "columns":
        postgresql.create_queue()
    execute = PostgresConnection.execute

    def execute_behind(self, statement, *given, **named):
        if statement.name == look:
            postgresql.execute(between)
        return execute(self, statement, *given, **named)

    monkeypatch.setattr(PostgresConnection, "execute", execute_behind)
    with pytest.raises(QueueError) as caught:
        inspect(postgresql)
    assert str(caught.value) == (
        "There is no queue table orders@[public] in this database; create it with: sqlqueue create 'orders', "
        "or correct the queue name or its schema."
    )


VARIANTS = {
    "a serial that has room": "ALTER TABLE {table} ALTER COLUMN seq TYPE integer",
    "a further column": "ALTER TABLE {table} ADD COLUMN note text",
    "a computed column": (
        "ALTER TABLE {table} ADD COLUMN n integer GENERATED ALWAYS AS (length(headers)) STORED"
    ),
    "headers with a length": "ALTER TABLE {table} ALTER COLUMN headers TYPE varchar(100000)",
    "columns of the other engine": "ALTER TABLE {table} ADD COLUMN recoverable boolean NOT NULL DEFAULT true",
    "an index more": "CREATE INDEX ON {table} (expires, lower(headers)) WHERE expires IS NOT NULL",
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_variant_from_the_field_is_right_on_postgresql(postgresql, variant):
    queue = postgresql.create_queue()
    queue.execute(variant)
    queue.insert(3)
    assert findings(postgresql) == []


SQLSERVER_VARIANTS = {
    "a heap": (
        "DROP INDEX Index_RowVersion ON {table}; DROP INDEX Index_Expires ON {table}; "
        "CREATE NONCLUSTERED INDEX Index_RowVersion ON {table} (RowVersion); "
        "CREATE NONCLUSTERED INDEX Index_Expires ON {table} (Expires) INCLUDE (Id, RowVersion) "
        "WHERE Expires IS NOT NULL"
    ),
    "without Recoverable": "ALTER TABLE {table} DROP COLUMN Recoverable",
    "without the old columns": (
        "ALTER TABLE {table} DROP COLUMN CorrelationId; ALTER TABLE {table} DROP COLUMN ReplyToAddress"
    ),
    "varchar headers": (
        "ALTER TABLE {table} DROP COLUMN Headers; ALTER TABLE {table} ADD Headers varchar(max) NOT NULL"
    ),
    "a computed column": "ALTER TABLE {table} ADD BodyString AS CAST(Body AS varchar(max))",
}


@pytest.mark.needs("reads_json_as_documented", "tells_used_pages")
@pytest.mark.parametrize("variant", SQLSERVER_VARIANTS.values(), ids=SQLSERVER_VARIANTS.keys())
def test_a_variant_from_the_field_is_right_on_sql_server(sqlserver, variant):
    """It can be sent to."""
    queue = sqlserver.create_queue()
    queue.execute(variant)
    said = ConnectionOptions.parse({"url": sqlserver.url})
    queue_tables.send(
        said, "orders", queue_tables.Draft(body=b"\xff\x00", message_type="T", headers={"größe": "ü"})
    )
    (sent,) = [*queue_peek.look(said, "orders", count=10)]
    assert (findings(sqlserver), sent.body) == ([], b"\xff\x00")


def test_a_missing_index_on_seq_is_found_and_cured(postgresql):
    postgresql.create_queue().execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    expected = Finding(
        message=f"{name_of(postgresql)} has no index that begins with seq: every look at the queue reads the "
        "whole table, and receiving is refused or slow.",
        remedy_sql='CREATE UNIQUE INDEX CONCURRENTLY "orders_seq_key" ON "public"."orders" (seq);',
    )
    assert findings(postgresql) == [expected]
    follow(postgresql, expected)
    assert findings(postgresql) == []


def test_a_partial_index_does_not_count(postgresql):
    """Its name is not taken again."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX orders_seq_key ON {table} (seq) WHERE seq > 10")
    queue.execute("CREATE INDEX ON {table} (expires, seq)")
    (found,) = findings(postgresql)
    assert (
        found.remedy_sql == 'CREATE UNIQUE INDEX CONCURRENTLY "orders_seq_key_2" ON "public"."orders" (seq);'
    )
    follow(postgresql, found)
    assert findings(postgresql) == []


def test_a_name_of_55_bytes_leaves_room_for_the_index(postgresql):
    name = "ü" * 27 + "x"
    postgresql.create_queue(name).execute(f'ALTER TABLE {{table}} DROP CONSTRAINT "{name}_seq_key"')
    (found,) = findings(postgresql, name)
    follow(postgresql, found)
    assert findings(postgresql, name) == []


@pytest.mark.needs("tells_used_pages")
@pytest.mark.parametrize("index,column", [("Index_RowVersion", "RowVersion"), ("Index_Expires", "Expires")])
def test_a_missing_index_is_found_on_sql_server(sqlserver, index, column):
    """Its statement cures it."""
    sqlserver.create_queue().execute(f"DROP INDEX {index} ON {{table}}")
    (found,) = findings(sqlserver)
    assert found.message.startswith(f"{name_of(sqlserver)} has no index that begins with {column}: ")
    follow(sqlserver, found)
    assert findings(sqlserver) == []


def test_missing_and_mistyped_columns_are_named(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP COLUMN body, ALTER COLUMN expires TYPE timestamptz")
    queue.execute("ALTER TABLE {table} ALTER COLUMN headers TYPE jsonb USING headers::jsonb")
    anew = "create a table of another name with sqlqueue create and move the rows, or correct the queue name"
    name = name_of(postgresql)
    assert findings(postgresql) == [
        Finding(
            message=f"The column expires of {name} is timestamp with time zone, "
            f"not timestamp without time zone; {anew}."
        ),
        Finding(message=f"The column headers of {name} is jsonb, not text or character varying; {anew}."),
        Finding(message=f"{name} has no column body (bytea); {anew}."),
    ]


def test_a_serial_near_its_end_is_found_and_cured(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq TYPE integer")
    queue.execute("ALTER SEQUENCE orders_seq_seq AS integer")
    queue.execute("SELECT setval('orders_seq_seq', 1073741823)")
    assert findings(postgresql) == []
    queue.insert(1)
    expected = Finding(
        message=f"{name_of(postgresql)} has used 1073741824 of the 2147483647 numbers that seq can have; no "
        "message can be sent after the last one.",
        remedy_sql='ALTER SEQUENCE "public"."orders_seq_seq" AS bigint;\n'
        'ALTER TABLE "public"."orders" ALTER COLUMN seq TYPE bigint;',
    )
    assert findings(postgresql) == [expected]
    follow(postgresql, expected)
    assert findings(postgresql) == []


def test_an_integer_column_ends_before_its_sequence(postgresql):
    """The sequence is a bigint."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq TYPE integer")
    queue.execute("SELECT setval('orders_seq_seq', 2000000000)")
    (found,) = findings(postgresql)
    assert "has used 2000000000 of the 2147483647 numbers" in found.message


def test_rows_that_nothing_numbers_are_found(postgresql):
    postgresql.create_queue().execute("ALTER TABLE {table} ALTER COLUMN seq DROP DEFAULT")
    postgresql.execute("ALTER SEQUENCE orders_seq_seq OWNED BY NONE")
    (found,) = findings(postgresql)
    assert found.message.startswith(f"Nothing numbers the rows of {name_of(postgresql)}: seq is neither ")


def test_an_identity_column_numbers_the_rows_too(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq DROP DEFAULT")
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY")
    assert findings(postgresql) == []


@pytest.mark.tier("all")
def test_dead_rows_are_found_and_cured(postgresql):
    """Those that no vacuum takes."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} SET (autovacuum_enabled = off)")
    queue.execute(
        "INSERT INTO {table} (id, headers, body) SELECT gen_random_uuid(), '', "
        "'' FROM generate_series(1, 100010)"
    )
    queue.execute("DELETE FROM {table} WHERE seq > 9")
    (found,) = eventually(lambda: findings(postgresql))
    assert found == Finding(
        message=f"{name_of(postgresql)} holds about 100001 dead rows beside 9 live ones: autovacuum does not "
        "keep up, or an open transaction holds it back.",
        remedy_sql='VACUUM "public"."orders";',
    )
    follow(postgresql, found)
    eventually(lambda: findings(postgresql) == [])


@pytest.mark.needs("tells_used_pages")
def test_a_heap_of_dead_pages_is_found_and_cured(sqlserver):
    queue = sqlserver.create_queue()
    queue.execute(SQLSERVER_VARIANTS["a heap"])
    queue.insert(3000, size=5000)
    queue.execute("DELETE FROM {table} WHERE RowVersion > 9")
    (found,) = findings(sqlserver)
    assert found.remedy_sql == "ALTER TABLE [dbo].[orders] REBUILD;"
    follow(sqlserver, found)
    assert findings(sqlserver) == []


@pytest.mark.needs("alters_databases")
def test_an_old_compatibility_level_is_found(sqlserver):
    sqlserver.create_queue()
    ((usual,),) = sqlserver.fetch("SELECT compatibility_level FROM sys.databases WHERE database_id = DB_ID()")
    sqlserver.execute("ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 120")
    try:
        (found,) = findings(sqlserver)
        assert found.remedy_sql == "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130;"
        follow(sqlserver, found)
        assert findings(sqlserver) == []
    finally:
        sqlserver.execute(f"ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = {usual}")


def test_looking_needs_no_right_to_any_row(postgresql, guarded_url):
    """It finds that there is none."""
    postgresql.create_queue()
    found = queue_tables.inspect(ConnectionOptions.parse({"url": guarded_url}), "orders")
    queue = name_of(postgresql)
    assert found.rights == Rights(
        user="guarded",
        receiver_lacks=("SELECT", "UPDATE", "DELETE"),
        sender_lacks=("INSERT", "USAGE on the sequence"),
    )
    assert found.findings == [
        Finding(
            message=f"The user 'guarded' may not receive from {queue}, for it lacks SELECT, UPDATE, "
            "DELETE; have a receiver's rights granted.",
            remedy_sql='GRANT USAGE ON SCHEMA "public" TO "guarded";\n'
            'GRANT SELECT ON "public"."orders" TO "guarded";\n'
            'GRANT UPDATE (id) ON "public"."orders" TO "guarded";\n'
            'GRANT DELETE ON "public"."orders" TO "guarded";',
        ),
        Finding(
            message=f"The user 'guarded' may not send to {queue}, for it lacks INSERT, USAGE on the "
            "sequence; have a sender's rights granted.",
            remedy_sql='GRANT USAGE ON SCHEMA "public" TO "guarded";\n'
            'GRANT INSERT ON "public"."orders" TO "guarded";\n'
            'GRANT USAGE ON SEQUENCE "public"."orders_seq_seq" TO "guarded";',
        ),
    ]


@pytest.mark.parametrize("role,other", [("receiver", "sender"), ("sender", "receiver")])
def test_missing_rights_are_found_and_cured(postgresql, guarded_url, role, other):
    """By the statements of what was found."""
    postgresql.create_queue()
    postgresql.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    postgresql.execute("ALTER SEQUENCE orders_seq_seq RENAME TO numbers")
    said = ConnectionOptions.parse({"url": guarded_url})
    (found,) = queue_tables.inspect(said, "orders", role=role).findings
    follow(postgresql, found)
    assert queue_tables.inspect(said, "orders", role=role).findings == []
    assert queue_tables.inspect(said, "orders").findings == []
    (found,) = queue_tables.inspect(said, "orders", role=other).findings
    assert found.message.startswith("The user 'guarded' may not ")


def test_a_right_counts_however_it_was_given(postgresql, guarded_url):
    """To all, to columns, or by an identity."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq DROP DEFAULT")
    postgresql.execute("DROP SEQUENCE orders_seq_seq")
    queue.execute("ALTER TABLE {table} ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY")
    queue.execute("GRANT SELECT ON {table} TO PUBLIC")
    queue.execute("GRANT UPDATE (expires), DELETE, INSERT (id, expires, headers, body) ON {table} TO guarded")
    found = queue_tables.inspect(ConnectionOptions.parse({"url": guarded_url}), "orders")
    assert found.rights == Rights(user="guarded", receiver_lacks=(), sender_lacks=())


def settings(engine):
    return {each.name: (each.value, each.remedy_sql) for each in inspect(engine).settings}


def test_settings_are_told_and_are_no_findings(postgresql):
    queue = postgresql.create_queue()
    assert settings(postgresql)["last number"] == ("? of 9,223,372,036,854,775,807", "")
    queue.insert(12)
    assert settings(postgresql) == {
        "postgres may receive": ("yes", ""),
        "postgres may send": ("yes", ""),
        "last number": ("12 of 9,223,372,036,854,775,807", ""),
        "write-ahead log": ("on", ""),
        "fsync": (
            "off",
            "ALTER SYSTEM SET fsync = on; SELECT pg_catalog.pg_reload_conf();",
        ),  # as conftest.py starts the server
        "autovacuum": ("on", ""),
        "row security": ("off", ""),
    }
    queue.execute("ALTER TABLE {table} SET UNLOGGED")
    queue.execute("ALTER TABLE {table} SET (autovacuum_enabled = off)")
    changed = settings(postgresql)
    assert changed["write-ahead log"] == ("off", 'ALTER TABLE "public"."orders" SET LOGGED;')
    assert changed["autovacuum"] == ("off", 'ALTER TABLE "public"."orders" RESET (autovacuum_enabled);')
    assert findings(postgresql) == []
    for name in ("write-ahead log", "autovacuum"):
        postgresql.execute(changed[name][1])
    assert (settings(postgresql)["write-ahead log"][0], settings(postgresql)["autovacuum"][0]) == ("on", "on")


def test_row_security_is_told_to_those_whom_it_concerns(postgresql, guarded_url):
    postgresql.create_queue().execute("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    concerned = queue_tables.inspect(ConnectionOptions.parse({"url": guarded_url}), "orders").settings
    assert [each.value for each in concerned if each.name == "row security"] == ["on"]
    assert settings(postgresql)["row security"] == ("off", "")


@pytest.mark.needs("describes_indexes")
def test_settings_on_sql_server_are_no_findings(sqlserver):
    """They are told all the same."""
    queue = sqlserver.create_queue()
    classic = settings(sqlserver)
    assert (classic["variant"], classic["lock escalation"]) == (
        ("clustered by RowVersion", ""),
        ("TABLE", ""),
    )
    assert classic["Headers"] == ("nvarchar", "")
    assert {classic["read committed snapshot"][0], classic["snapshot isolation"][0]} <= {"on", "off"}
    queue.execute(SQLSERVER_VARIANTS["a heap"])
    queue.execute(SQLSERVER_VARIANTS["varchar headers"])
    queue.execute("ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)")
    changed = settings(sqlserver)
    assert changed["variant"] == ("heap", "")
    assert changed["lock escalation"] == (
        "DISABLE",
        "ALTER TABLE [dbo].[orders] SET (LOCK_ESCALATION = TABLE);",
    )
    assert changed["Headers"][0].startswith("varchar, code page ")
    assert findings(sqlserver) == []
    for name in ("Headers", "lock escalation"):
        sqlserver.execute(changed[name][1])
    again = settings(sqlserver)
    assert (again["Headers"], again["lock escalation"]) == (("nvarchar", ""), ("TABLE", ""))


def test_looking_waits_for_no_lock(postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    with queue.locked(*range(1, 11)), psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE orders IN SHARE UPDATE EXCLUSIVE MODE")
        said = ConnectionOptions.parse({"url": postgresql.url, "lockTimeout": "1ms"})
        assert queue_tables.inspect(said, "orders").findings == []
        assert queue_tables.length(said, "orders").rows == 10
        assert len([*queue_peek.look(said, "orders", count=10)]) == 10


def test_a_refusal_holds_no_password(postgresql, guarded_url):
    with pytest.raises(QueueError) as caught:
        queue_tables.inspect(ConnectionOptions.parse({"url": guarded_url}), "no such")
    assert GUARDED_PASSWORD not in str(caught.value)
