"""What a second look at the protocol found: each was a message lost, a message twice, or a stream that stood still."""

import contextlib
import threading
from unittest import mock

import pyarrow.compute as pc
import pytest
from psycopg import sql

from sqlqueue_spark.engines.connections import Target, connect
from sqlqueue_spark.engines.dialects import POSTGRESQL, SQLSERVER, DriverError, Kind
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, QueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver, SliceReader, slices
from sqlqueue_spark.receive.held_claim import hold
from sqlqueue_spark.receive.offset import INITIAL
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.send import Destinations, Sender, Sent, prepare
from tests.conftest import GUARDED_PASSWORD
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import message_ids, row_id, row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.sending import batch, composed, ids_in, options
from tests.support.waiting import eventually


def test_a_slice_whose_reader_is_slow_does_not_run_into_the_command_timeout(engine, queue):
    queue.insert(16, size=4 << 20)  # more than any buffer between here and the server takes
    with streaming(engine, queue, commandTimeout="1s") as stream:
        assert stream.construct()
        (part,) = stream.plan()
        pause, rows = threading.Event(), 0
        for batch in SliceReader(Target.of(stream.options)).read(part):
            if rows == 0:
                pause.wait(2)  # a sink that takes its time
            rows += batch.num_rows
        assert rows == 16


def test_a_connection_that_is_cut_in_the_middle_of_a_slice_is_a_connection_lost(engine, queue):
    queue.insert(16, size=4 << 20)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        batches = SliceReader(Target.of(stream.options)).read(part)
        assert next(batches).num_rows > 0
        engine.cut_connections()
        with pytest.raises(ConnectionLost, match=r"^The connection to \S+ was lost while reading \("):
            list(batches)


def test_a_worker_waits_for_a_database_that_is_gone_for_a_moment(server, postgresql):
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


def test_a_stream_that_stops_while_it_claims_ahead_leaves_no_session_behind(postgresql, monkeypatch):
    queue = postgresql.create_queue()
    queue.insert(20)
    begun, closed = threading.Event(), threading.Event()

    def hold_when_closed(*arguments):
        if threading.current_thread().name == "sqlqueue-claim-ahead":
            begun.set()
            assert closed.wait(10)
            queue.execute("DELETE FROM {table}")
        return hold(*arguments)

    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ahead' AND state IS NOT NULL"
    url = f"{postgresql.url}?application_name=ahead"
    monkeypatch.setattr("sqlqueue_spark.receive.receiver.hold", hold_when_closed)
    receiver = Receiver(SourceOptions.parse({"url": url, "queue": queue.address}))
    end = receiver.latest(dict(INITIAL), 10)
    receiver.plan(dict(INITIAL), end)
    assert begun.wait(10)
    receiver.close()
    closed.set()
    slices._KEPT._close()
    eventually(lambda: not postgresql.fetch(sessions))


def test_a_machine_that_vanishes_is_given_up_within_minutes_on_both_ends(postgresql):
    with connect(Target(url=postgresql.url)) as connection:
        ours = connection._raw.info.get_parameters()  # type: ignore[attr-defined] # the driver's connection
        names = ["keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"]
        assert [ours[name] for name in names] == ["30", "10", "3", "60000"]
        theirs = [f"tcp_{name}" for name in ("keepalives_idle", "keepalives_interval", "keepalives_count")]
        assert [connection.execute(f"SHOW {name}") for name in theirs] == [[("60",)], [("10",)], [("6",)]]
    with connect(Target(url=f"{postgresql.url}?keepalives_idle=7")) as connection:
        ours = connection._raw.info.get_parameters()  # type: ignore[attr-defined] # the driver's connection
        assert ours["keepalives_idle"] == "7"


def test_a_limit_of_the_server_on_transactions_does_not_end_a_claim(postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    name = str(postgresql.fetch("SELECT current_database()")[0][0])
    known = "SELECT name FROM pg_settings WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout')"
    limits = [str(limit) for (limit,) in postgresql.fetch(known)]
    assert "idle_in_transaction_session_timeout" in limits  # the other one came with PostgreSQL 17
    for limit in limits:
        statement = sql.SQL("ALTER DATABASE {} SET {} = '300ms'")
        postgresql.execute(statement.format(sql.Identifier(name), sql.Identifier(limit)).as_string())
    with streaming(postgresql, queue) as stream:
        assert stream.construct()
        threading.Event().wait(0.6)
        assert queue.take() is None
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_database_that_refuses_logins_while_it_fails_over_is_tried_again(postgresql, guarded_url):
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
def test_a_worker_waits_for_a_database_that_refuses_its_login_while_it_fails_over(
    postgresql, guarded_url, mode
):
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


@contextlib.contextmanager
def refusing_logins(engine):
    """The role of the tests cannot log in for half a second, and its connections are cut."""
    engine.execute("ALTER ROLE guarded NOLOGIN")
    engine.cut_connections()
    back = threading.Timer(0.5, engine.execute, ["ALTER ROLE guarded LOGIN"])
    back.start()
    yield
    back.join()


def test_a_sender_waits_for_a_database_that_refuses_logins_while_it_fails_over(postgresql, guarded_url):
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


def test_a_server_that_has_become_a_standby_is_tried_again(server, postgresql):
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
def test_what_sql_server_says_of_a_fail_over_may_be_tried_again(sqlstate, number, kind):
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
def test_what_postgresqls_driver_says_without_a_state_is_told_by_its_words(said, kind):
    assert POSTGRESQL.kind(DriverError(None, None, said)) is kind


def test_a_table_from_which_others_inherit_is_refused_before_anything_is_touched(postgresql):
    queue = postgresql.create_queue()
    queue.insert(3)
    queue.execute("CREATE TABLE child () INHERITS ({table})")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(Exception, match=r"^There is no queue table orders@\[public\] in this database; "):
            stream.trigger()
        assert queue.count() == 3


@pytest.mark.parametrize("after", ["crash", "cut"])
def test_settling_again_deletes_what_was_locked_again_or_nothing(postgresql, after):
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash() if after == "crash" else postgresql.cut_connections()
        queue.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        queue.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW WHEN (old.seq = 4) EXECUTE FUNCTION keep()"
        )
        with pytest.raises(ClaimLost, match=r" found 9 of 10 locked rows, so nothing was deleted; somebody "):
            stream.trigger()
        assert queue.row_versions() == list(range(1, 11))
        stream.crash()


def test_a_number_that_stands_twice_when_a_batch_is_recovered_is_said_and_nothing_is_deleted(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.insert(5)
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash()
        queue.execute("ALTER SEQUENCE orders_seq_seq RESTART")
        queue.insert(1, start=100)
        with pytest.raises(QueueError, match=r"^A RowVersion of an unfinished batch occurs twice in orders@"):
            stream.trigger()
        stream.crash()
        assert queue.count() == 6


@pytest.mark.parametrize("after", ["crash", "cut"])
def test_a_table_that_has_come_to_be_inherited_from_loses_no_message(postgresql, after):
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
            QueueError, match=r"^There is no queue table orders@\[public\] in this database; "
        ):
            stream.trigger()
        stream.crash()
        assert queue.count() == 30


@pytest.mark.parametrize(
    "first, last, expected",
    [
        (-100, 100, [(-5, -3), (1, 1), (10, 20)]),
        (-4, 12, [(-4, -3), (1, 1), (10, 12)]),
        (-3, 1, [(-3, -3), (1, 1)]),
        (2, 9, []),
        (11, 11, [(11, 11)]),
        (21, 30, []),
        (-30, -6, []),
    ],
)
def test_the_rows_between_two_numbers_are_found(first, last, expected):
    assert RowSet([(-5, -3), (1, 1), (10, 20)]).between(first, last) == RowSet(expected)


def test_what_a_scattered_slice_costs_grows_with_its_rows_and_not_with_their_square(engine, queue):
    queue.insert(30_000)
    number = "seq" if engine.name == "postgresql" else "RowVersion"
    queue.execute(f"DELETE FROM {{table}} WHERE {number} % 2 = 0")
    queue.insert(1, start=30_000)
    with (
        streaming(engine, queue, maxConcurrency="1") as stream,
        mock.patch.object(pc, "is_in", wraps=pc.is_in) as is_in,
    ):
        assert stream.construct()
        assert len(stream.read(stream.plan())) == 15_001
        compared = [len(call.kwargs["value_set"]) for call in is_in.call_args_list]
    assert sum(compared) == 15_001


@pytest.mark.parametrize("refilled", [10, 25])
def test_rows_that_have_the_numbers_of_a_lost_claim_are_not_read_for_it(engine, queue, refilled):
    queue.insert(10)
    with streaming(engine, queue, minMessagesPerPartition="5") as stream:
        assert stream.construct()
        slices = stream.plan()
        assert [(part.rows, len(part.witnesses)) for part in slices] == [
            (RowSet([(1, 5)]), 5),
            (RowSet([(6, 10)]), 5),
        ]
        stream.cut()
        eventually(lambda: not tampering.holds_a_transaction(engine, stream.name))
        tampering.truncate(engine, queue)
        queue.insert(refilled, start=100)
        expected = (
            rf"^The row with RowVersion 1 of orders@\S+ was the message {row_id(0)} when it was claimed, and is {row_id(100)} "
            r"now: .* start the stream again, which leaves the rows of others alone\.$"
        )
        with pytest.raises(ClaimLost, match=expected):
            stream.read(slices)
        stream.crash()
        stream.drain()  # the replay is empty, and the new rows come in a batch of their own
        assert stream.batches() == [[], list(range(1, refilled + 1))]
        assert (stream.ids(), queue.count()) == (row_ids(range(100, 100 + refilled)), 0)
