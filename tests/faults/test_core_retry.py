"""A database that is away, fails over or gives way: what may be tried again is tried again, and nothing is lost."""

import contextlib
import threading

import pytest
from psycopg import sql

from sqlqueue_spark.engines.connections import Target, connect
from sqlqueue_spark.engines.dialects import POSTGRESQL, SQLSERVER, DriverError, Kind
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.send import Destinations, Sender, Sent, prepare
from tests.conftest import GUARDED_PASSWORD
from tests.support.driver import streaming
from tests.support.messages import message_ids, row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.sending import batch, composed, ids_in, options


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
    prepare(given, found, ["orders"])
    with refusing_logins(postgresql), Sender(given, found) as sender:
        assert sender.send(composed(given, batch(range(10)))) == Sent(sent=10)
    with refusing_logins(postgresql):
        Retry("the test").retried(lambda: prepare(given, Destinations(given), ["orders"], again=True))
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


@pytest.mark.parametrize(
    "sqlstate, number, kind",
    [
        ("IMC06", None, Kind.CONNECTION_LOST),
        ("IMC01", 0, Kind.CONNECTION_LOST),
        ("IM002", None, Kind.OTHER),
        ("08S01", 10054, Kind.CONNECTION_LOST),
        ("HY000", 596, Kind.CONNECTION_LOST),
        ("HY000", 976, Kind.NOT_REACHED),
        ("42000", 1204, Kind.GAVE_WAY),
        ("25000", 3906, Kind.CONNECTION_LOST),
        ("42000", 7105, Kind.CONNECTION_LOST),
        ("08004", 916, Kind.NO_RIGHT),
        ("42000", 921, Kind.NOT_REACHED),
        ("42000", 40550, Kind.CONNECTION_LOST),
        ("HY000", 6005, Kind.NOT_REACHED),
        ("42000", 8645, Kind.GAVE_WAY),
        ("42000", 49918, Kind.GAVE_WAY),
        ("42000", 40540, Kind.CONNECTION_LOST),
        ("42000", 4221, Kind.NOT_REACHED),
        ("42000", 922, Kind.NOT_REACHED),
        ("28000", 18401, Kind.NOT_REACHED),
        ("42000", 10936, Kind.GAVE_WAY),
        ("42000", 701, Kind.GAVE_WAY),
        (None, None, Kind.OTHER),
        ("42000", 8114, Kind.OTHER),
    ],
)
def test_errors_of_sql_server_have_their_kind(sqlstate, number, kind):
    """What it says of a fail-over may be tried again."""
    assert SQLSERVER.kind(DriverError(sqlstate, number, "")) is kind


@pytest.mark.parametrize(
    "said, kind",
    [
        (
            "[libpq] Failed to update autocommit: ERROR:  no such order\nCONTEXT:  PL/pgSQL function no()",
            Kind.OTHER,
        ),
        ("[libpq] Failed to update autocommit: ERROR:  could not serialize access", Kind.GAVE_WAY),
        ("[libpq] Failed to update autocommit: ERROR:  deadlock detected", Kind.GAVE_WAY),
        ("server closed the connection unexpectedly", Kind.CONNECTION_LOST),
        ("SSL error: certificate verify failed", Kind.NOT_TRUSTED),
    ],
)
def test_errors_of_postgresql_without_a_state_have_a_kind(said, kind):
    """They are told by their words."""
    assert POSTGRESQL.kind(DriverError(None, None, said)) is kind
