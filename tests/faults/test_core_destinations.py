"""Destinations that change while a sink lives: dropped, renamed, made anew.

Nothing is lost, nothing stands still.
"""

import pickle

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.support import tampering
from tests.support.messages import message_ids
from tests.support.sending import PLAIN, batch, composed, ids_in, options


class Sink:
    """What lives as long as a sink does: the destinations that it has found.

    A minute passes when a test says so.
    """

    def __init__(self, engine, outbox):
        outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
        self.now = 1000.0
        self.options = options(engine, outbox=outbox)
        self.found = Destinations(self.options, clock=self.clock)

    def clock(self):
        return self.now

    def send(self, numbers):
        """Prepare on the driver, send on a worker, and forget after a failure, as the sink does."""
        try:
            prepare(self.found, PLAIN, ["orders"])
            with Sender(self.found) as sender:
                return sender.send(composed(self.options, batch(numbers)))
        except BaseException:
            self.found.forget()
            raise


@pytest.fixture(params=["none", "optimistic", "pessimistic"])
def sink(engine, queue, request):
    sink = Sink(engine, request.param)
    assert sink.send(range(2)) == Sent(sent=2)
    return sink


def remembered(engine):
    """How many ids the outbox holds."""
    with connect(Target(url=engine.url)) as connection:
        return OutboxTable(connection, "Sales").report().rows


def test_messages_to_a_dropped_table_count_as_unsent(engine, queue, sink):
    """Sending them fails each time, until the table is there again."""
    tampering.drop(queue)
    known = remembered(engine)
    for _ in range(2):  # found once, and looked for in vain
        with pytest.raises(QueueError, match=r"orders"):
            sink.send(range(2, 5))
    assert remembered(engine) == known
    anew = engine.create_queue()
    assert sink.send(range(2, 5)) == Sent(sent=3)
    assert ids_in(anew) == message_ids(range(2, 5))


def test_messages_go_to_the_table_that_bears_the_name_now(engine, queue, sink):
    rename = {
        "postgresql": "ALTER TABLE {table} RENAME TO before",
        "sqlserver": "EXEC sp_rename 'dbo.orders', 'before'",
    }
    queue.execute(rename[engine.name])
    if engine.name == "postgresql":  # whose indexes keep their names, which the new table's would have
        engine.execute("ALTER INDEX orders_pkey RENAME TO before_pkey")
        engine.execute("ALTER INDEX orders_seq_key RENAME TO before_seq_key")
        engine.execute("ALTER SEQUENCE orders_seq_seq RENAME TO before_seq_seq")
    anew = engine.create_queue()
    assert sink.send(range(2, 5)) == Sent(sent=3)
    assert ids_in(anew) == message_ids(range(2, 5))
    assert engine.queue("before").count() == 2


def test_a_table_that_lost_a_column_refuses_once(sqlserver):
    """It is then sent to."""
    queue = sqlserver.create_queue()
    sink = Sink(sqlserver, "optimistic")
    sink.send(range(2))
    queue.execute("ALTER TABLE {table} DROP COLUMN CorrelationId")
    with pytest.raises(QueueError):
        sink.send(range(2, 5))
    assert sink.send(range(2, 5)) == Sent(sent=3)
    assert ids_in(queue) == message_ids(range(5))


def test_the_driver_looks_again_once_a_minute(engine, queue, sink, monkeypatch):
    looks, find = list[str](), queue_table.find

    def noted(connection, table):
        looks.append(table.table)
        return find(connection, table)

    monkeypatch.setattr(queue_table, "find", noted)
    sink.send(range(2, 3))
    sink.now += 59
    sink.send(range(3, 4))
    assert looks == []
    sink.now += 1
    sink.send(range(4, 5))
    assert looks == ["orders"]
    sink.now += 59
    sink.send(range(5, 6))
    assert looks == ["orders"]
    assert ids_in(queue) == message_ids(range(6))


def test_a_table_that_is_gone_is_said_within_a_minute(engine, queue, sink):
    """Before anything is staged for it."""
    tampering.drop(queue)
    prepare(sink.found, PLAIN, ["orders"])  # as it was found just now
    sink.now += 60
    with pytest.raises(
        QueueError,
        match=r"^There is no queue table orders@\S* to send to; .* Nothing of this batch was sent\.$",
    ):
        prepare(sink.found, PLAIN, ["orders"])


def test_what_was_found_travels_to_the_workers(engine, queue, sink):
    sink.found._clock = Destinations(sink.options)._clock
    there = pickle.loads(pickle.dumps(sink.found))  # noqa: S301 -- as Spark sends it
    with Sender(there) as sender:
        assert sender.send(composed(sink.options, batch(range(2, 4)))) == Sent(sent=2)
