"""Reading, sending and settling are the same whatever a database sets for its sessions."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.waiting_headers import begin_of
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from sqlqueue_spark.send.waiting import waiting_rows
from sqlqueue_spark.tables import queue_table
from tests.support.delayed import DelayedRows, move
from tests.support.driver import streaming
from tests.support.forwarding import forwarding
from tests.support.messages import body, message_id, row_id
from tests.support.odd_settings import SETTINGS, make_odd
from tests.support.sending import batch, ids_in, options, send

FUTURE = datetime(2031, 2, 3, 4, 5, 6, 789012, UTC)
PAST = datetime(2021, 2, 3, 4, 5, 6, 789012, UTC)
HEADERS = r'{"NServiceBus.MessageId":"a\\b \"c\" \u00e4 \\u0041","Percent":"100%s %"}'


@pytest.fixture(
    params=[
        pytest.param([*SETTINGS], id="all of them"),
        *(pytest.param([kind], id=kind, marks=pytest.mark.tier("nightly")) for kind in SETTINGS),
    ]
)
def odd(request, postgresql):
    """A database with odd settings."""
    make_odd(postgresql, request.param)
    return postgresql


def test_rows_are_read_as_they_stand_and_deleted(odd):
    queue = odd.create_queue()
    rows = [
        (HEADERS, b"\\x41\\\x00\xff", FUTURE),
        (HEADERS, b"", None),
        (HEADERS, b"gone", PAST),
        (HEADERS, None, None),
    ]
    for number, (headers, body_, expires) in enumerate(rows):
        stored = expires and expires.replace(tzinfo=None)
        queue.insert_row(id=row_id(number), headers=headers, body=body_, expires=stored)
    with streaming(odd, queue) as stream:
        stream.drain()
        told = [(each["Headers"], each["Body"], each["Expires"]) for each in stream.messages()]
        assert told == [row for row in rows if row[2] != PAST]
        assert (stream.ids(), queue.count()) == ([row_id(number) for number in (0, 1, 3)], 0)


def test_an_unfinished_batch_is_replayed(odd):
    queue = odd.create_queue()
    queue.insert(10)
    with streaming(odd, queue) as stream:
        assert stream.construct()
        stream.crash()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[*range(1, 11)]], 0)


def test_a_batch_is_settled_together_with_what_it_sends(odd):
    queue, billing = odd.create_queue(), odd.create_queue("billing")
    queue.insert(5)
    with forwarding(odd, queue, transactionMode=ATOMIC) as stream:
        stream.drain()
    assert ids_in(billing) == [message_id(number) for number in range(5)]
    assert [row.body for row in billing.rows()] == [body(number) for number in range(5)]


def test_messages_are_sent_once_with_their_times(odd):
    queue = odd.create_queue()
    odd.create_queue("error")
    outbox_tables.create(ConnectionOptions.parse({"url": odd.url}), "Sales")
    DelayedRows(odd, "Sales").create()
    given = options(odd, outbox="optimistic")
    now = datetime.now(UTC)
    messages = batch([1, 2, 3], Expires=[FUTURE, None, None])
    assert (send(given, messages), send(given, messages)) == ((3, 0), (0, 3))
    assert [row.expires for row in queue.rows()] == [FUTURE.replace(tzinfo=None), None, None]
    send(given, batch([4, 5], DeliverAt=[now - timedelta(seconds=5), now + timedelta(minutes=5)]))
    assert move(odd, "Sales") == (1, 0)
    assert ids_in(queue) == [message_id(number) for number in (1, 2, 3, 4)]


def test_all_waiting_messages_are_put_back_portion_by_portion(odd, monkeypatch):
    """Each portion begins at the time at which the one before it ended."""
    monkeypatch.setattr(waiting_rows, "_PORTION", 2)
    queue = odd.create_queue()
    rows = DelayedRows(odd, "orders").create()
    with psycopg.connect(odd.url) as connection:
        for hour in range(7):
            connection.execute(
                f"INSERT INTO {rows.quoted} (headers, due) VALUES (%s, %s)",
                [
                    '{"a":"b"' + begin_of("far") + "}",
                    datetime(2031, 3, 29, 20, tzinfo=UTC) + timedelta(hours=hour),
                ],
            )
    with connect(Target(url=odd.url)) as connection:
        with connection.transaction():
            found = queue_table.find(connection, Table(table="orders", schema="public"))
        assert found is not None
        assert waiting_rows.put_back(connection, found, "far")[0] == 7
    assert (queue.count(), rows.count()) == (7, 0)


def test_nothing_is_wrong_with_a_queue(odd):
    odd.create_queue()
    found = queue_tables.inspect(ConnectionOptions.parse({"url": odd.url}), "orders")
    assert (found.findings, [column.type for column in found.columns]) == (
        [],
        ["uuid", "timestamp without time zone", "text", "bytea", "bigint"],
    )


def test_no_function_is_called_that_everyone_may_have_made(postgresql):
    """It fits the type of the column better than the server's own."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER headers TYPE varchar")
    postgresql.execute("CREATE SCHEMA everyones")
    postgresql.execute("GRANT CREATE ON SCHEMA everyones TO PUBLIC")
    postgresql.execute(
        "CREATE FUNCTION everyones.octet_length(varchar) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'"
    )
    ((database,),) = postgresql.fetch("SELECT quote_ident(current_database())")
    postgresql.execute(f"ALTER DATABASE {database} SET search_path TO everyones, public")
    queue.insert(3)
    with streaming(postgresql, queue) as stream:
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3]], 0)


def test_names_are_first_the_servers_own_and_last_those_of_temporary_tables(postgresql):
    postgresql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as from version 15 on
    ((database,),) = postgresql.fetch("SELECT quote_ident(current_database())")
    postgresql.execute(f"ALTER DATABASE {database} SET search_path TO pg_temp, public")
    with connect(Target(url=postgresql.url)) as connection:
        assert connection.execute("SHOW search_path") == [("pg_catalog, public, pg_temp",)]


def test_a_trigger_finds_what_it_names_without_a_schema(postgresql):
    queue = postgresql.create_queue()
    postgresql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as from version 15 on
    postgresql.execute("CREATE TABLE seen (id uuid)")
    postgresql.execute(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO seen VALUES (old.id); RETURN old; END'"
    )
    queue.execute("CREATE TRIGGER see BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION see()")
    queue.insert(3)
    with streaming(postgresql, queue) as stream:
        stream.drain()
    assert postgresql.fetch("SELECT count(*) FROM seen") == [(3,)]


def test_the_encoding_that_a_url_asks_for_changes_nothing(postgresql):
    queue = postgresql.create_queue()
    headers = '{"Name":"Ä€"}'
    queue.insert_row(id=row_id(1), headers=headers, body=b"")
    with streaming(postgresql, queue, url=f"{postgresql.url}?client_encoding=WIN1252") as stream:
        stream.drain()
        assert [each["Headers"] for each in stream.messages()] == [headers]
