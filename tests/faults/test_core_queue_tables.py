"""Queue tables of another shape, and those that are renamed, changed or created again under a stream:
received or refused.
"""

import pytest

from sqlqueue_spark.errors import QueueError
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids
from tests.support.waiting import eventually


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
