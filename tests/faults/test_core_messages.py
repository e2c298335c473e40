"""Odd messages, odd names and old tables are received like any other."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql

from sqlqueue_spark.errors import QueueError
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids

ODD_NAMES = [
    "my]od\"d t'able",
    "half?",
    "curly {queue} {0}",
    "back\\slash; DROP TABLE orders --",
    "[brackets]",
    '""',
    "Ünïcödé 队列",
    ".",
    "orders.2024",
]
ODD_HEADERS = [
    "",
    " ",
    "\n\t",
    "null",
    "{",
    "not JSON",
    "[]",
    '{"a": 1}',
    '{"a": null}',
    "\ufeff{}",
    "ü\u2028😀",
]


def bodies(stream):
    return [(message["Headers"], message["Body"]) for message in stream.messages()]


def test_odd_headers_are_passed_on_as_they_are_and_hold_up_nobody(engine, queue):
    queue.insert(1)
    for number, headers in enumerate(ODD_HEADERS):
        queue.insert_row(id=UUID(int=number), headers=headers, body=b"odd")
    queue.insert(1, start=1)
    with streaming(engine, queue, maxMessagesPerTrigger="1") as stream:  # so that each is the oldest once
        stream.drain()
        assert bodies(stream)[1:-1] == [(headers, b"odd") for headers in ODD_HEADERS]
        assert (len(stream.sink), queue.count()) == (len(ODD_HEADERS) + 2, 0)


def test_odd_bodies_are_passed_on_as_they_are(engine, queue):
    odd = [None, b"", b"\x00", b"\xef\xbb\xbf{}", bytes(range(256))]
    for number, body in enumerate(odd):
        queue.insert_row(id=UUID(int=number), headers="{}", body=body)
    with streaming(engine, queue) as stream:
        stream.drain()
        assert (bodies(stream), queue.count()) == ([("{}", body) for body in odd], 0)


def test_headers_that_are_null_in_an_odd_table_are_no_headers(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER headers DROP NOT NULL")
    queue.insert(1)
    queue.insert_row(id=UUID(int=1), headers=None, body=b"a")
    queue.insert_row(id=UUID(int=2), headers=None, body=None)
    queue.insert(1, start=1)
    with streaming(postgresql, queue, maxMessagesPerTrigger="2") as stream:
        assert stream.construct()
        stream.crash()  # so that the rows are locked again, too
        stream.drain()
        assert stream.batches() == [[1, 2], [3, 4]]
        assert bodies(stream)[1:3] == [(None, b"a"), (None, None)]
        assert queue.count() == 0


@pytest.mark.parametrize(
    "written, seen",
    [
        ("infinity", None),
        ("9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_a_message_that_all_but_never_expires_is_received(postgresql, written, seen):
    queue = postgresql.create_queue()
    queue.insert(3)
    queue.execute(f"UPDATE {{table}} SET expires = '{written}' WHERE seq = 2")
    with streaming(postgresql, queue) as stream:
        stream.drain()
        assert [message["Expires"] for message in stream.messages()] == [None, seen, None]
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)


@pytest.mark.needs("quotes_brackets")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_queue_of_any_name_is_drained_recovered_and_settled(engine, name):
    queue = engine.create_queue(name, schema="sch]e\"m'a {x} ?")
    queue.insert(10)
    with streaming(engine, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.trigger()
        stream.crash()  # the next claim recovers
        assert stream.construct()
        stream.crash()  # the next plan replays
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_percent_sign_in_a_name_is_a_percent_sign(postgresql):
    postgresql.create_queue("plain").insert(10)
    queue = postgresql.create_queue("100% %s", schema="50%")
    queue.execute("INSERT INTO {table} (id, headers, body) SELECT id, headers, body FROM plain ORDER BY seq")
    with streaming(postgresql, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.construct()
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.parametrize(
    "address, table",
    [
        ('"t@ble"', "t@ble"),
        ('"public"."a""b@[c]"', 'a"b@[c]'),
        ("orders@[public]", "orders"),
        ("orders@public", "orders"),
    ],
)
def test_addresses_as_the_postgresql_transport_writes_them_are_understood(postgresql, address, table):
    queue = postgresql.create_queue(table)
    queue.insert(3)
    with streaming(postgresql, queue, queue=address) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)


def test_a_queue_of_which_everything_is_named_by_settings_is_found(postgresql):
    queue = postgresql.create_queue("Sales", schema="special")
    postgresql.create_queue("Sales", schema="public")
    queue.insert(3)
    settings: dict[str, Any] = {"queue": "Sales@[public]", "queue.SALES.schema": "special"}
    with streaming(postgresql, queue, **settings) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)


def test_an_old_table_with_serial_numbers_and_no_unique_key_is_received(postgresql):
    queue = postgresql.queue("old")
    queue.execute(
        "CREATE TABLE {table} (seq serial, body bytea, expires timestamp, id uuid, headers text, note int DEFAULT 1)"
    )
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.execute("ALTER SEQUENCE old_seq_seq RESTART 2147483600")
    queue.insert(48)
    with streaming(postgresql, queue, maxMessagesPerTrigger="20") as stream:
        assert stream.construct()
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(48)), 0)
        assert stream.batches()[-1][-1] == 2147483647


def test_a_table_in_which_a_number_stands_twice_is_refused_before_anything_is_deleted(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.insert(5)
    queue.execute("UPDATE {table} SET seq = 2 WHERE seq = 3")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(
            QueueError, match=r"^RowVersion 2 occurs twice in orders@\[public\]@\[\w+\], so a claim "
        ):
            stream.trigger()
        stream.crash()
        assert queue.count() == 5


def test_a_partitioned_table_is_refused_before_anything_is_touched(postgresql):
    queue = postgresql.queue("parts")
    queue.execute(
        "CREATE TABLE {table} (id uuid, expires timestamp, headers text, body bytea, seq bigserial) "
        "PARTITION BY RANGE (seq)"
    )
    queue.execute("CREATE TABLE low PARTITION OF {table} FOR VALUES FROM (0) TO (11)")
    queue.execute("CREATE TABLE high PARTITION OF {table} FOR VALUES FROM (11) TO (1000)")
    queue.insert(20)
    with streaming(postgresql, queue) as stream:
        with pytest.raises(QueueError, match=r"^There is no queue table parts@\[public\] in this database; "):
            stream.trigger()
        assert queue.count() == 20


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_database_with_a_stricter_default_isolation_is_drained_beside_others(postgresql, isolation):
    queue = postgresql.create_queue()
    name = str(postgresql.fetch("SELECT current_database()")[0][0])
    statement = sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}")
    postgresql.execute(statement.format(sql.Identifier(name), sql.Literal(isolation)).as_string())
    queue.insert(1000)
    with streaming(postgresql, queue) as stream, queue.session() as other:
        assert other.take(900).row_version == 900
        assert stream.construct()
        (connection, *_) = stream._connections
        assert connection.execute("SHOW transaction_isolation") == [("read committed",)]
        other.commit()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids([*range(899), *range(900, 1000)]), 0)


def test_the_same_address_may_name_another_table_after_a_rename_and_keeps_its_messages(postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash()
        queue.execute("ALTER TABLE {table} RENAME TO before")
        new = postgresql.create_queue()
        new.insert(5, start=100)
        tampering.delete(postgresql, new, 5, 5)
        stream.drain()
        assert stream.ids() == row_ids([*range(10), *range(100, 104)])
        assert postgresql.queue("before").ids() == row_ids(range(10))
        assert row_id(104) not in stream.ids()


def test_a_row_without_an_id_is_said_with_its_number(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_pkey")
    queue.execute("ALTER TABLE {table} ALTER id DROP NOT NULL")
    queue.insert(2)
    queue.execute("UPDATE {table} SET id = NULL WHERE seq = 2")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(QueueError) as caught:
            stream.trigger()
        name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
        assert str(caught.value) == (
            f"The row with RowVersion 2 of {name} has no Id, by which its batch would be known again after a crash; "
            "give it one, or delete it."
        )
        assert queue.count() == 2


def test_numbers_that_are_widened_under_a_stream_go_on(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER seq TYPE integer")
    queue.insert(10)
    with streaming(postgresql, queue, pollInterval="1ms") as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        queue.execute("ALTER TABLE {table} ALTER seq TYPE bigint")
        queue.insert(10, start=10)
        stream.drain()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(20)), 0, 0)
