"""A database that publishes all its tables lets no session change a row of a table without a key."""

import pytest

from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from tests.support.delayed import DelayedRows, move
from tests.support.forwarding import STAGE, forwarding, staged
from tests.support.messages import message_ids
from tests.support.sending import batch, ids_in, options, send

#: How the table was made before it had a key.
WITHOUT_KEY = f'ALTER TABLE "{STAGE}" DROP CONSTRAINT "{STAGE}_pkey"'


@pytest.fixture
def published(postgresql):
    # Below wal_level = logical the server warns, and refuses all the same.
    postgresql.execute("CREATE PUBLICATION all_tables FOR ALL TABLES")
    return postgresql


def given(engine):
    return ConnectionOptions.parse({"url": engine.url})


def test_a_batch_is_settled_together_with_what_it_sends(published):
    queue, billing = published.create_queue(), published.create_queue("billing")
    queue.insert(10)
    with forwarding(published, queue, transactionMode=ATOMIC, maxMessagesPerTrigger="5") as stream:
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(published)) == (message_ids(range(10)), 0, 0)


def test_each_table_that_we_create_has_a_key(published):
    queue_tables.create(given(published), ["orders", "error"], stream="Forward", subscriptions=True)
    outbox_tables.create(given(published), "Sales")
    DelayedRows(published, "Sales").create()
    assert published.fetch(
        "SELECT c.relname, pg_get_constraintdef(k.oid) FROM pg_class AS c "
        "LEFT JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p' "
        "WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace ORDER BY c.relname COLLATE \"C\""
    ) == [
        ("Forward.Outgoing", "PRIMARY KEY (seq)"),
        ("Sales.Delayed", "PRIMARY KEY (id)"),
        ("Sales_OutboxData", 'PRIMARY KEY ("MessageId")'),
        ("SubscriptionRouting", "PRIMARY KEY (endpoint, topic)"),
        ("error", "PRIMARY KEY (id)"),
        ("orders", "PRIMARY KEY (id)"),
    ]
    send(options(published), batch([1, 2]))
    assert ids_in(published.queue()) == message_ids([1, 2])
    assert move(published, "Sales") == (0, 0)
    assert queue_tables.inspect(given(published), "orders").findings == []


def test_a_stage_without_a_key_works_where_nothing_is_published(postgresql):
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue_tables.create(given(postgresql), ["orders"], stream="Forward")
    postgresql.execute(WITHOUT_KEY)
    queue.insert(10)
    with forwarding(postgresql, queue, transactionMode=ATOMIC) as stream:
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(10)), 0)


def test_published_tables_without_a_key_are_found_and_what_it_takes_is_told(published):
    queue, billing = published.create_queue(), published.create_queue("billing")
    queue_tables.create(given(published), ["orders"], stream="Forward")
    published.execute(WITHOUT_KEY)
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_pkey")
    published.execute("CREATE TABLE headers (headers text)")  # is none of ours
    queue.insert(10)
    with forwarding(published, queue, transactionMode=ATOMIC) as stream:
        with pytest.raises(QueueError, match=r"publishes updates\); .* sqlqueue inspect QUEUE"):
            stream.drain()
        stream.crash()
        findings = queue_tables.inspect(given(published), "orders").findings
        ((database,),) = published.fetch("SELECT current_database()")
        lacks = (
            "is in a publication, and has neither a primary key nor another replica identity: the server "
            "lets no session change or delete its rows."
        )
        assert [(each.message, each.remedy_sql) for each in findings] == [
            (
                f"The table {name}@[public]@[{database}] {lacks}",
                f'ALTER TABLE "public"."{name}" ADD PRIMARY KEY ("seq");',
            )
            for name in ("Forward.Outgoing", "orders")
        ]
        for each in findings:
            published.execute(each.remedy_sql)
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(10)), 0)
