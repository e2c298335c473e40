"""Looking at a queue: how long it is and what comes next, changing nothing and waiting for no session."""

from datetime import datetime, timedelta

import pytest

from sqlqueue_spark.administration import queue_peek, queue_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import table_code

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def options(engine):
    # A look that waited for anyone would fail.
    return ConnectionOptions.parse({"url": engine.url, "lockTimeout": "1s"})


@pytest.mark.needs("reads_uncommitted", "reads_json_as_documented")
def test_length_tells_what_stands_there(engine, queue):
    said = options(engine)
    assert queue_tables.length(said, "orders").rows == 0
    queue_tables.send(said, "orders", queue_tables.Draft(body=b"12345", message_type="T", headers={"x": "ü"}))
    queue.insert(7, start=10, expires=PAST)
    found = queue_tables.length(said, "orders")
    size = sum(engine.bytes_of(row.headers) + len(row.body or b"") for row in queue.rows())
    assert (found.rows, found.expired, found.bytes) == (8, 7, size)
    assert found.oldest_sent is not None
    assert found.oldest_age is not None
    assert timedelta(0) <= found.oldest_age < timedelta(minutes=1)
    with queue.locked(1, 2, 3), queue.session() as sender:
        sender.insert(1)
        # SQL Server counts rows that are just being sent.
        assert queue_tables.length(said, "orders").rows == {"postgresql": 8, "sqlserver": 9}[engine.name]


@pytest.mark.parametrize("count", [4_000, 4_001, 4_500])
def test_peek_shows_more_than_one_statement_reads(engine, queue, count):
    queue.insert(4_300)
    found = [*queue_peek.look(options(engine), "orders", count=count)]
    assert [message.row_version for message in found] == [*range(1, min(count, 4_300) + 1)]


def test_peek_shows_the_first_messages_and_holds_none(engine, queue):
    said = options(engine)
    queue.insert(3)
    queue.insert(1, start=10, expires=PAST)
    queue.insert(1, start=11)
    with queue.locked(2):
        found = [*queue_peek.look(said, "orders", count=4)]
    rows = queue.rows()[:4]
    assert [(m.row_version, m.id, m.headers, m.body, m.expired) for m in found] == [
        (row.row_version, str(row.id), row.headers, row.body, row.expires == PAST) for row in rows
    ]
    assert queue.take(1) is not None


def test_a_table_without_its_index_can_be_looked_into(engine, queue):
    """Nothing can be received from it on SQL Server, so an operator will want to see what is there."""
    queue.insert(3)
    queue.execute(
        {
            "postgresql": "ALTER TABLE {table} DROP CONSTRAINT orders_seq_key",
            "sqlserver": "DROP INDEX Index_RowVersion ON {table}",
        }[engine.name]
    )
    said = options(engine)
    assert [message.row_version for message in queue_peek.look(said, "orders", count=2)] == [1, 2]
    assert queue_tables.length(said, "orders").rows == 3


def test_odd_rows_can_be_shown_measured_and_purged(postgresql):
    """As others leave them."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN headers DROP NOT NULL")
    queue.execute(
        "INSERT INTO {table} (id, expires, headers) VALUES (gen_random_uuid(), 'infinity', NULL), "
        "(gen_random_uuid(), '-infinity', '{{')"
    )
    said = options(postgresql)
    assert [(m.expires, m.headers, m.expired) for m in queue_peek.look(said, "orders", count=10)] == [
        (None, None, False),
        (None, "{", True),
    ]
    found = queue_tables.length(said, "orders")
    assert (found.rows, found.expired, found.bytes, found.oldest_sent) == (2, 1, 1, None)
    assert (queue_tables.purge(said, "orders", expired=True), queue_tables.purge(said, "orders")) == (1, 1)


@pytest.mark.parametrize("looking", [True, False])
def test_a_table_that_goes_before_it_is_locked_is_named_with_the_remedy(postgresql, looking):
    orders = Table(table="orders", schema="public")
    with (
        connect(Target.of(options(postgresql))) as connection,
        pytest.raises(QueueError) as said,
        connection.transaction(),
    ):
        table_code.keep_out(connection, [orders], looking=looking)
    where = postgresql.url.rpartition("@")[2]
    assert str(said.value) == (
        f"The table is not there while keeping new code out of orders@[public] at {where} (relation "
        "\"public.orders\" does not exist); create it with: sqlqueue create 'orders@[public]'."
    )
