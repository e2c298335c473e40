"""What stops or slows .NET endpoints is found: a row, a subscription,
a transaction that stays open, numbers that end.
"""

import json
import re
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.inspection import database_findings
from sqlqueue_spark.inspection.doctor import State, examine
from sqlqueue_spark.inspection.queue_findings import Finding
from sqlqueue_spark.messages.message import format_time
from sqlqueue_spark.options import ConnectionOptions
from tests.support.messages import body, headers, row_id
from tests.support.waiting import eventually


def options(url):
    return ConnectionOptions.parse({"url": url})


def findings(url):
    return queue_tables.inspect(options(url), "orders").findings


def doctor(url, queue="orders"):
    return {check.name: (check.state, check.said) for check in examine(options(url), queue)}


def follow(engine, finding):
    for statement in finding.remedy_sql.split(";"):
        if statement.strip():
            engine.execute(statement)


@pytest.fixture
def orders(postgresql):
    return postgresql.create_queue("orders")


@pytest.fixture
def named(postgresql, orders):
    """The queue as findings name it."""
    return queue_tables.inspect(options(postgresql.url), "orders").queue


# -- rows that stop an endpoint -------------------------------------------------------------------


STOPS = "a .NET endpoint fails at it, gives it back, and handles nothing that stands behind it; "


@pytest.mark.parametrize(
    "sent, behind, since",
    [
        (timedelta(hours=3), timedelta(hours=1), r"it was sent at {sent}Z \(3 h ago\)\."),
        (None, timedelta(minutes=5), r"the row behind it was sent at {behind}Z \(5 min ago\)\."),
        (None, None, r"it does not tell when it was sent\."),
    ],
)
def test_a_row_without_a_body_is_found_and_cured(postgresql, orders, named, sent, behind, since):
    now = datetime.now(UTC)
    said = {}
    orders.insert_row(id=row_id(1), headers="{}", body=b"")
    for number, (content, ago) in enumerate(((None, sent), (b"x", behind), (None, None)), 2):
        told = {} if ago is None else {"NServiceBus.TimeSent": format_time(now - ago)}
        said[number] = f"{now - (ago or timedelta(0)):%Y-%m-%d %H:%M:%S}"
        orders.insert_row(id=row_id(number), headers=json.dumps(told), body=content)
    (found,) = findings(postgresql.url)
    begin = f"The row 2 of {named} (Id {row_id(2)}) has no body (NULL): {STOPS}"
    assert found.message.startswith(begin)
    assert re.fullmatch(since.format(sent=said[2], behind=said[3]), found.message[len(begin) :])
    state, told = doctor(postgresql.url)["queue"]
    assert (state, told.startswith(begin), told.endswith("sqlqueue inspect 'orders@[public]'")) == (
        State.WRONG,
        True,
        True,
    )
    follow(postgresql, found)
    assert findings(postgresql.url) == []
    assert [row.body for row in orders.rows()] == [b"", b"", b"x", b""]


def test_headers_that_are_the_json_null_are_found_and_cured(postgresql, orders, named):
    orders.insert_row(id=row_id(1), headers='"null"', body=b"x")
    orders.insert_row(id=row_id(2), headers="null", body=b"y")
    (found,) = findings(postgresql.url)
    assert found.message == (
        f"The row 2 of {named} (Id {row_id(2)}) has the JSON null for headers: "
        f"{STOPS}it does not tell when it was sent."
    )
    follow(postgresql, found)
    assert findings(postgresql.url) == []
    assert [(row.headers, row.body) for row in orders.rows()] == [('"null"', b"x"), ("{}", b"y")]


def test_the_look_at_the_head_waits_for_no_lock_and_reads_no_more(postgresql, orders, named):
    """Another session holds the row, as an endpoint that is just failing at it does;
    a row far behind stops no receiver yet.
    """
    postgresql.execute(
        "INSERT INTO orders (id, headers, body) SELECT gen_random_uuid(), '', "
        "'' FROM generate_series(1, 10000)"
    )
    orders.insert_row(id=row_id(1), headers="{}", body=None)
    assert findings(postgresql.url) == []
    orders.execute("DELETE FROM {table} WHERE seq = 1")
    with orders.locked(10_001):
        (found,) = findings(postgresql.url)
    assert found.message.startswith(f"The row 10001 of {named} ")


def test_a_null_body_is_an_empty_one_on_sql_server(sqlserver):
    sqlserver.create_queue("orders").insert_row(id=row_id(1), headers="{}", body=None)
    assert findings(sqlserver.url) == []


def test_who_may_not_read_rows_is_told_nothing_of_them(postgresql, orders, guarded_url):
    orders.insert_row(id=row_id(1), headers="{}", body=None)
    orders.execute("GRANT INSERT ON {table} TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    assert findings(guarded_url) == []


# -- numbers --------------------------------------------------------------------------------------


def test_a_serial_near_its_end_is_seen_without_a_right_to_its_sequence(
    postgresql, orders, named, guarded_url
):
    """By the rows that are there: a receiver has no right to the sequence."""
    orders.execute("ALTER TABLE {table} ALTER COLUMN seq TYPE integer")
    postgresql.execute("SELECT setval('orders_seq_seq', 2147483000)")
    orders.insert_row(id=row_id(1), headers=headers(1), body=body(1))
    orders.execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    expected = Finding(
        message=f"{named} has used 2147483001 of the 2147483647 numbers that seq can have; "
        "no message can be sent after the last one.",
        remedy_sql='ALTER SEQUENCE "public"."orders_seq_seq" AS bigint;\n'
        'ALTER TABLE "public"."orders" ALTER COLUMN seq TYPE bigint;',
    )
    assert findings(guarded_url) == findings(postgresql.url) == [expected]
    state, told = doctor(guarded_url)["queue"]
    assert (state, told.startswith(expected.message)) == (State.WRONG, True)


# -- subscriptions --------------------------------------------------------------------------------

ROUTING = """CREATE TABLE {table} (
    queueaddress varchar(200) NOT NULL, endpoint varchar(200) NOT NULL, topic varchar(200) NOT NULL,
      PRIMARY KEY (endpoint, topic)
)"""


@pytest.fixture
def subscribe(postgresql):
    """Make a table of subscriptions with these rows of address, endpoint and topic."""

    def made(table, *rows):
        postgresql.execute(ROUTING.format(table=table))
        with psycopg.connect(postgresql.url) as connection:
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", row)

    return made


def addresses(postgresql, table):
    return [each for (each,) in postgresql.fetch(f"SELECT queueaddress FROM {table} ORDER BY endpoint")]


def test_an_address_with_a_dot_and_no_quotation_marks_is_found_and_cured(postgresql, orders, subscribe):
    """In each schema's own table, whatever it is called."""
    for name in ("Interop.A", "simple"):
        postgresql.create_queue(name)
    subscribe(
        '"SubscriptionRouting"',
        ('"public"."Interop.A"', "A", "Shop.Placed"),
        ("Interop.B", "B", "Shop.Placed"),
        ("simple", "C", "Shop.Placed"),
        ("Interop.D", "D", "Shop.Placed"),
    )
    postgresql.execute('CREATE SCHEMA "it\'s"')
    subscribe('"it\'s"."Routes"', ("Interop.E", "E", "Shop.Placed"), ("public.orders", "F", "Shop.Placed"))
    found = findings(postgresql.url)
    misread = (
        "without quotation marks, which a .NET endpoint reads as a schema and a table that are not there: "
        "publishing the event fails"
    )
    subscription = "The subscription of {!r} to 'Shop.Placed' in {} has the address {!r} "
    assert [each.message for each in found] == [
        subscription.format("E", "Routes@[it's]", "Interop.E") + f"{misread}.",
        subscription.format("B", "SubscriptionRouting@[public]", "Interop.B") + f"{misread}; so with 1 more.",
    ]
    state, told = doctor(postgresql.url, None)["database"]
    assert (state, told.startswith(found[0].message)) == (State.WRONG, True)
    assert (
        ' Run: UPDATE "it\'s"."Routes" SET queueaddress = pg_catalog.concat(\'"it\'\'s"."\', queueaddress, '
        in told
    )
    for each in found:
        follow(postgresql, each)
    assert addresses(postgresql, '"SubscriptionRouting"') == [
        '"public"."Interop.A"', '"public"."Interop.B"', "simple", '"public"."Interop.D"',
    ]  # fmt: skip
    assert addresses(postgresql, '"it\'s"."Routes"')[0] == '"it\'s"."Interop.E"'


def test_a_subscription_that_no_event_can_reach_is_found_and_cured(postgresql, orders, subscribe):
    """Its queue is gone, or its address is none."""
    subscribe(
        '"SubscriptionRouting"',
        ('"public"."orders"', "A", "Shop.Placed"),
        ('"public"."it\'s gone"', "B", "Shop.Else"),
        ('"public"."it\'s gone"', "B", "Shop.Placed"),
        ("orders@[open", "C", "Shop.Placed"),
    )
    found = findings(postgresql.url)
    fails = "publishing the event fails, or its copy does"
    subscription = "The subscription of {!r} to {!r} in SubscriptionRouting@[public] has the address {!r}, "
    assert [each.message for each in found] == [
        f"{subscription.format('C', 'Shop.Placed', 'orders@[open')}which is none: {fails}.",
        subscription.format("B", "Shop.Else", '"public"."it\'s gone"')
        + f"and there is no such table: {fails}; so with 1 more.",
    ]
    for each in found:
        follow(postgresql, each)
    assert addresses(postgresql, '"SubscriptionRouting"') == ['"public"."orders"']


def test_a_table_of_subscriptions_that_may_not_be_read_is_left_alone(
    postgresql, orders, subscribe, guarded_url
):
    subscribe('"SubscriptionRouting"', ("Interop.B", "B", "Shop.Placed"))
    orders.execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    assert findings(guarded_url) == []
    postgresql.execute('GRANT SELECT ON "SubscriptionRouting" TO guarded')
    assert len(findings(guarded_url)) == 1


# -- transactions ---------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch):
    """A transaction counts as long from its first moment."""
    monkeypatch.setattr(database_findings, "_LONG_SECONDS", 0)


def ago(text):
    """The text without how long ago it was."""
    return re.sub(r" \(\d+ s ago\)", "", text)


def test_a_transaction_that_stays_open_is_found_with_who_has_it(postgresql, orders, at_once):
    """One that has only read and sleeps keeps nothing, and another database's is none of ours."""
    begin = (
        r"A transaction of session {pid} \(nightly report, postgres@\S+\) has been open in the "
        r"database '\w+' since "
    )
    with (
        psycopg.connect(postgresql.url, application_name="nightly report") as writer,
        psycopg.connect(postgresql.url) as reader,
        psycopg.connect(re.sub(r"/test_\w+", "/postgres", postgresql.url)) as elsewhere,
    ):
        reader.execute("SELECT count(*) FROM orders")
        elsewhere.execute("SELECT pg_current_xact_id()")
        assert findings(postgresql.url) == []
        writer.execute("SELECT pg_current_xact_id()")
        ((since,),) = writer.execute("SELECT now() AT TIME ZONE 'UTC'").fetchall()
        (found,) = findings(postgresql.url)
        text = begin.format(pid=writer.info.backend_pid) + (
            rf"{since:%Y-%m-%d %H:%M:%S}Z \(\d s ago\): until it ends, every queue of the database gets "
            r"slower: indexes keep the entries of rows that others delete\."
        )
        assert re.fullmatch(text, found.message)
        assert found.remedy_sql == f"SELECT pg_catalog.pg_terminate_backend({writer.info.backend_pid});"
        state, told = doctor(postgresql.url, None)["database"]
        assert (state, ago(told)) == (State.WRONG, f"{ago(found.message)} Run: {found.remedy_sql}")
        writer.rollback()
        assert findings(postgresql.url) == []
        writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        writer.execute("SELECT count(*) FROM orders")  # its snapshot stays
        assert len(findings(postgresql.url)) == 1


def test_a_transaction_of_seconds_is_no_finding(postgresql, orders):
    with psycopg.connect(postgresql.url) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        assert findings(postgresql.url) == []


def test_a_login_with_few_rights_sees_its_own_transactions_only(postgresql, orders, guarded_url, at_once):
    orders.execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    with psycopg.connect(postgresql.url) as theirs, psycopg.connect(guarded_url) as ours:
        theirs.execute("SELECT pg_current_xact_id()")
        assert findings(guarded_url) == []
        ours.execute("SELECT pg_current_xact_id()")
        (found,) = findings(guarded_url)
        assert f"session {ours.info.backend_pid} (" in found.message


@pytest.fixture
def standby(postgresql):
    """Makes a slot, and a standby that reads from it and has an old query; returns what ends it."""
    server = psycopg.connect(postgresql.url, autocommit=True)
    rules = Path(server.execute("SHOW hba_file").fetchall()[0][0])
    before = rules.read_text()
    rules.write_text(f"{before}\nhost replication all 127.0.0.1/32 scram-sha-256\n")
    server.execute("SELECT pg_reload_conf()")

    def slots(that):
        return server.execute(f"SELECT slot_name FROM pg_replication_slots WHERE {that}").fetchall()

    def begin(slot):
        server.execute("SELECT pg_create_physical_replication_slot(%s, true)", [slot])
        ((oldest, at),) = server.execute(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_wal_flush_lsn()"
        ).fetchall()
        address = psycopg.conninfo.make_conninfo(postgresql.url, replication="true")
        reader = psycopg.pq.PGconn.connect(address.encode())
        assert reader.status == psycopg.pq.ConnStatus.OK, reader.error_message
        reader.exec_(f'START_REPLICATION SLOT "{slot}" PHYSICAL {at}'.encode())
        # https://www.postgresql.org/docs/current/protocol-replication.html: hot standby feedback
        reader.put_copy_data(struct.pack("!cqIIII", b"h", 0, oldest % 2**32, oldest >> 32, 0, 0))
        reader.flush()
        eventually(lambda: slots("xmin IS NOT NULL"))
        return reader.finish

    yield begin
    eventually(lambda: not slots("active"))
    for name in slots("true"):
        server.execute("SELECT pg_drop_replication_slot(%s)", name)
    rules.write_text(before)
    server.execute("SELECT pg_reload_conf()")
    server.close()


def test_a_replication_slot_that_no_standby_reads_from_is_found(postgresql, orders, standby):
    def found():
        return [each.message for each in findings(postgresql.url)]

    leave = standby("weekly")
    assert found() == []
    leave()
    eventually(found)
    says = "The replication slot weekly keeps a snapshot of the server: until it lets go, every queue of the"
    assert found() == [f"{says} database gets slower: indexes keep the entries of rows that others delete."]
