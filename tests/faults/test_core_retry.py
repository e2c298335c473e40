"""A database that is away, fails over or gives way: what may be tried again is tried again,
and nothing is lost.
"""

import contextlib
import threading

import pyarrow as pa
import pytest
from psycopg import sql

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from tests.conftest import GUARDED_PASSWORD
from tests.support.driver import at_step, streaming
from tests.support.messages import headers, message_ids, row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.sending import PLAIN, batch, composed, ids_in, options, steps


@contextlib.contextmanager
def refusing_logins(engine):
    """The role of the tests cannot log in for half a second, and its connections are cut."""
    engine.execute("ALTER ROLE guarded NOLOGIN")
    engine.cut_connections()
    back = threading.Timer(0.5, engine.execute, ["ALTER ROLE guarded LOGIN"])
    back.start()
    yield
    back.join()


def test_a_worker_waits_for_a_database_that_is_away(server, postgresql):
    queue = postgresql.create_queue()
    queue.insert(16)
    with streaming(postgresql, queue) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        server.stop(immediate=True)
        back = threading.Timer(0.5, server.start)
        back.start()
        read = list(SliceReader(Target.of(stream.options)).read(part))
        back.join()
        assert [row_id for rows in read for row_id in rows["Id"].to_pylist()] == [
            str(each) for each in row_ids(range(16))
        ]


def test_a_stream_waits_while_logins_are_refused(postgresql, guarded_url):
    """The database fails over."""
    queue = postgresql.create_queue()
    queue.execute("GRANT SELECT, DELETE, UPDATE ON {table} TO guarded")
    queue.insert(10)
    with streaming(PostgresEngine(guarded_url), queue) as stream:
        assert stream.trigger()
        postgresql.execute("ALTER ROLE guarded NOLOGIN")
        back = threading.Timer(0.5, postgresql.execute, ["ALTER ROLE guarded LOGIN"])
        back.start()
        assert postgresql.cut_connections() > 0
        stream.drain()
        back.join()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(10)), 0, 0)


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_worker_waits_while_its_login_is_refused(postgresql, guarded_url, mode):
    """The database fails over."""
    queue = postgresql.create_queue()
    queue.execute("GRANT SELECT, DELETE, UPDATE ON {table} TO guarded")
    queue.insert(10)
    with streaming(PostgresEngine(guarded_url), queue, transactionMode=mode) as stream:
        assert stream.construct()
        slices = stream.plan()
        postgresql.execute("ALTER ROLE guarded PASSWORD 'another one'")
        with pytest.raises(ConfigurationError):
            connect(Target.of(stream.options))
        back = threading.Timer(0.5, postgresql.execute, [f"ALTER ROLE guarded PASSWORD '{GUARDED_PASSWORD}'"])
        back.start()
        stream.write(stream.read(slices))
        back.join()
        assert stream.ids() == row_ids(range(10))


def test_a_sender_waits_while_logins_are_refused(postgresql, guarded_url):
    """The database fails over."""
    queue = postgresql.create_queue()
    postgresql.execute("GRANT INSERT ON orders TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    given = options(PostgresEngine(guarded_url), outbox="none")
    found = Destinations(given)
    run = prepare(found, PLAIN, ["orders"])
    with refusing_logins(postgresql), Sender(found) as sender:
        assert sender.send(composed(given, batch(range(10)))) == Sent(sent=10)
    with refusing_logins(postgresql):
        Retry("the test").retried(lambda: prepare(Destinations(given), PLAIN, ["orders"], last=run))
    assert ids_in(queue) == message_ids(range(10))


def test_a_server_that_became_a_standby_is_tried_again(server, postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    name = sql.Identifier(str(postgresql.fetch("SELECT current_database()")[0][0]))
    read_only = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
    on, off = (read_only.format(name, sql.Literal(each)).as_string() for each in ("on", "off"))
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        assert postgresql.cut_connections() > 0
        postgresql.execute(on)
        back = threading.Timer(0.5, PostgresEngine(server.url()).execute, [off])
        back.start()
        stream.drain()
        back.join()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(10)), 0, 0)


def test_an_id_that_gets_another_type_between_two_chunks_fails_no_message(postgresql):
    """The statements that ask the outbox were prepared for the type of before."""
    queue, source = postgresql.create_queue(), postgresql.create_queue("source")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    given = options(postgresql)
    received = [
        batch(
            numbers, Id=[*map(str, row_ids(numbers))], Queue=source.address, Headers=[*map(headers, numbers)]
        ).append_column("RowVersion", pa.array(numbers, pa.int64()))
        for numbers in (range(5), range(5, 10))
    ]
    widen = 'ALTER TABLE "Sales_OutboxData" ALTER "MessageId" TYPE varchar(300)'
    found = Destinations(given)
    with (
        at_step(fail_points.CHUNK_SENT, lambda: postgresql.execute(widen)) as times,
        steps(),
        Sender(found) as sender,
    ):
        sent = sender.send(composed(given, *received, destinations=found))
    assert (times, sent.sent, sent.failed, ids_in(queue)) == ([1], 10, 0, message_ids(range(10)))
