"""Queue tables of another shape, and those that are renamed, changed or created again under a stream:
received or refused.
"""

import pytest

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queues
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids
from tests.support.waiting import eventually

TIER = pytest.mark.tier("all")


def test_an_old_table_with_serial_numbers_is_received(postgresql):
    """It has no unique key."""
    queue = postgresql.queue("old")
    queue.execute(
        "CREATE TABLE {table} (seq serial, body bytea, expires timestamp, id uuid, headers "
        "text, note int DEFAULT 1)"
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


def test_a_partitioned_table_is_refused(postgresql):
    """Before anything is touched."""
    queue = postgresql.queue("parts")
    queue.execute(
        "CREATE TABLE {table} (id uuid, expires timestamp, headers text, body bytea, seq bigserial) "
        "PARTITION BY RANGE (seq)"
    )
    queue.execute("CREATE TABLE low PARTITION OF {table} FOR VALUES FROM (0) TO (11)")
    queue.execute("CREATE TABLE high PARTITION OF {table} FOR VALUES FROM (11) TO (1000)")
    queue.insert(20)
    with streaming(postgresql, queue) as stream:
        with pytest.raises(
            QueueError, match=r"^parts@\[public\] is a partitioned table, not a queue table; "
        ):
            stream.trigger()
        assert queue.count() == 20


def test_a_table_that_others_inherit_from_is_refused(postgresql):
    """Before anything is touched."""
    queue = postgresql.create_queue()
    queue.insert(3)
    queue.execute("CREATE TABLE child () INHERITS ({table})")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(
            Exception, match=r"^orders@\[public\] is a table from which others inherit, not a queue table; "
        ):
            stream.trigger()
        assert queue.count() == 3


@pytest.mark.parametrize("after", ["crash", "cut"])
def test_a_table_with_a_new_child_loses_no_message(postgresql, after):
    """The child inherits from it under the stream."""
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue) as stream:
        stream.drain()
        queue.insert(10, start=10)
        assert stream.trigger()
        queue.execute("CREATE TABLE child () INHERITS ({table})")
        queue.execute(
            "INSERT INTO child (id, headers) SELECT gen_random_uuid(), '{{}}' FROM generate_series(1, 20)"
        )
        stream.crash() if after == "crash" else postgresql.cut_connections()
        with pytest.raises(
            QueueError, match=r"^orders@\[public\] is a table from which others inherit, not a queue table; "
        ):
            stream.trigger()
        stream.crash()
        assert queue.count() == 30


def test_a_renamed_table_keeps_its_messages(postgresql):
    """Its address names another table then, which is received from."""
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


def test_numbers_widened_under_a_stream_go_on(postgresql):
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


#: Columns whose type becomes another one under a session, and back: the bytes of a message would be others.
RETYPED = {
    "body": ("ALTER body TYPE text", "ALTER body TYPE bytea USING body::bytea"),
    "headers": (
        "ALTER headers TYPE bytea USING convert_to(headers, 'UTF8')",
        "ALTER headers TYPE text USING convert_from(headers, 'UTF8')",
    ),
}
retyped = pytest.mark.parametrize("column", [pytest.param(each, marks=TIER) for each in RETYPED])


@retyped
@pytest.mark.parametrize("mode", ["receiveOnly", pytest.param("none", marks=TIER)])
def test_content_of_another_type_under_a_stream_is_refused_and_stays_as_it_is(postgresql, mode, column):
    queue = postgresql.create_queue()
    queue.insert(10)
    rows = queue.rows()
    there, back = (f"ALTER TABLE {{table}} {each}" for each in RETYPED[column])
    with streaming(
        postgresql, queue, transactionMode=mode, maxMessagesPerTrigger="5", claimAhead="false"
    ) as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        queue.execute(there)
        with pytest.raises(QueueError, match=r"^The table is not shaped like a queue table while "):
            stream.trigger()
        stream.crash()
        queue.execute(back)
        stream.drain()
        assert [(str(row.id), row.headers, row.body) for row in rows] == [
            (each["Id"], each["Headers"], each["Body"]) for each in stream.messages()
        ]


@retyped
def test_a_worker_takes_nothing_of_another_type(postgresql, column):
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue, transactionMode="none") as stream:
        assert stream.construct()
        slices = stream.plan()
        queue.execute(f"ALTER TABLE {{table}} {RETYPED[column][0]}")
        with pytest.raises(QueueError, match=r"^The table is not shaped like a queue table while reading "):
            stream.read(slices)
        assert (stream.messages(), queue.count()) == ([], 10)


@retyped
def test_a_message_of_another_type_is_not_moved(postgresql, column):
    """It is found before, by headers that are a text, and locked then."""
    queue = postgresql.create_queue()
    queue.insert(3)
    with connect(Target(url=postgresql.url)) as connection:
        with connection.transaction():
            found = queues.at(connection, Table(table="orders", schema="public"))
        assert found is not None
        queue.execute(f"ALTER TABLE {{table}} {RETYPED[column][0]}")
        with pytest.raises(QueueError, match=r" while moving on messages of "), connection.transaction():
            found.lock_in_transit([1, 2, 3])


@pytest.mark.parametrize("after", ["crash", "cut"])
def test_settling_again_finds_a_table_created_again(engine, queue, after):
    """It was created again under the stream, which then lost its connection or died."""
    with streaming(engine, queue) as stream:
        assert not stream.trigger()
        tampering.drop(queue)
        engine.create_queue()
        queue.insert(10)
        eventually(stream.trigger)
        stream.crash() if after == "crash" else stream.cut()
        queue.insert(5, start=10)
        stream.drain()
        assert (stream.batches(), queue.count()) == ([list(range(1, 11)), list(range(11, 16))], 0)


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_queue_that_is_partitioned_under_an_idle_stream_is_refused(postgresql, mode):
    """Its stream would find it empty for ever."""
    queue = postgresql.create_queue()
    with streaming(postgresql, queue, transactionMode=mode) as stream:
        assert not stream.trigger()
        postgresql.execute(
            "BEGIN; ALTER TABLE orders RENAME TO part; CREATE TABLE orders (LIKE part INCLUDING DEFAULTS) "
            "PARTITION BY RANGE (seq); ALTER TABLE orders ATTACH PARTITION part DEFAULT; COMMIT"
        )
        queue.insert(10)
        with pytest.raises(
            QueueError, match=r"^orders@\[public\] is a partitioned table, not a queue table; "
        ):
            eventually(stream.trigger)
        assert queue.count() == 10
