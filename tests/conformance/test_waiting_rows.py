"""A sink with several databases: rows for one that is down wait as they were received; all others go on."""

import contextlib
import json
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import quote

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost
from sqlqueue_spark.messages.failure_headers import RAW_HEADERS
from sqlqueue_spark.messages.message import GIVE_UP_AT, MESSAGE_ID, parse_time
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.declared.pipeline_options import agreed, places_of
from sqlqueue_spark.pipeline.running.delayed_delivery import waiting_for
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver import error_and_audit_rows
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases, database_came_back
from sqlqueue_spark.send.waiting.waiting_rows import put_back
from sqlqueue_spark.spark.send_task import SendTask
from sqlqueue_spark.spark.sink import SqlQueueSink
from sqlqueue_spark.tables import queues
from tests.conftest import GUARDED_PASSWORD
from tests.support import messages
from tests.support.clock import wrong_clock
from tests.support.delayed import DelayedRows, move
from tests.support.driver import BATCH_WRITTEN, Crash, Stream, at_step, crash, watched_connections
from tests.support.gate import gated
from tests.support.messages import body, row_id
from tests.support.sending import batch, columns_of, options, send, steps
from tests.support.stored import create_home, create_outbox, numbers_in
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")

COLUMNS = columns_of("Queue", "RowVersion", "Id", "Headers", "Body", "Destination")


class Copies(Stream):
    """Sends each message to several queues, with another body, as a transform may make it."""

    def __init__(self, engine, queue, to, **sink):
        super().__init__(engine, queue, maxMessagesPerTrigger="6")
        self.to = to
        given = {"url": engine.url, "endpoint": "Copies", "errorQueue": "error", **sink}
        self.given = SinkOptions.parse(given)
        self.databases = RemoteDatabases(Places(self.given, self.given), queue.address)
        self.sent = Sent()

    def crash(self, *, noticed=True):
        super().crash(noticed=noticed)
        self.databases = RemoteDatabases(Places(self.given, self.given), self.table.address)

    def write(self, messages):
        super().write(messages)
        destinations = Destinations(self.given)
        prepare(destinations, COLUMNS, self.to, down=self.databases.down())
        rows = [
            {
                **each,
                "Queue": self.table.address,
                "Destination": to,
                "Body": b'{"order":' + str(each["RowVersion"]).encode() + b"}",
            }
            for each in messages
            for to in self.to
        ]
        frame = pa.table({name: [row[name] for row in rows] for name in COLUMNS.names})
        task = SendTask(COLUMNS, destinations, self.databases.down())
        self.sent = task.sent(iter(frame.to_batches()))
        self.databases.note(self.sent)


@pytest.fixture
def orders(engine):
    """The queue; beside it are the queue near, the error queue, an outbox,
    and the table in which messages wait.
    """
    engine.create_queue("near")
    return create_home(engine, "Copies", "orders")


@pytest.fixture
def far(elsewhere):
    create_outbox(elsewhere, "Copies")
    return elsewhere.create_queue("far")


@pytest.fixture
def gate(elsewhere):
    with gated(elsewhere.url) as gate:
        yield gate


@contextlib.contextmanager
def copying(engine, orders, gate, *to, **sink):
    stream = Copies(engine, orders, to, **{"endpoint.far.url": gate.url, **sink})
    with watched_connections(stream.opened):
        try:
            yield stream
        finally:
            stream.stop()


def drained(stream):
    total = Sent()
    while stream.trigger():
        total += stream.sent
    return total


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_row_waits_by_the_clock_of_its_database(engine, orders, far, gate, hours):
    """That of the machine is wrong by more than a row may wait. By it a row would be given up at once, or
    later than it should.
    """
    orders.insert(6)
    gate.shut()
    with (
        wrong_clock(error_and_audit_rows, hours=hours),
        copying(engine, orders, gate, "far", giveUpAfter="1h") as stream,
    ):
        assert drained(stream) == Sent(waiting=6)
        assert move(engine, "orders") == (0, 0)
    waiting = DelayedRows(engine, "orders").rows()
    now = datetime.now(UTC)
    left = [each.due - now for each in waiting]
    left += [(parse_time(each.headers[GIVE_UP_AT]) or now) - now for each in waiting]
    assert [timedelta(minutes=50) < each <= timedelta(hours=1) for each in left] == [True] * 12


def test_a_row_is_given_up_by_the_clock_of_its_database(engine, orders, far, gate):
    """By that of the machine, which is behind, none would have waited so long."""
    orders.insert(6)
    gate.shut()
    with (
        wrong_clock(error_and_audit_rows, hours=-2),
        copying(engine, orders, gate, "far", giveUpAfter="100ms") as stream,
    ):
        assert drained(stream) == Sent(waiting=6)
        due = datetime.now(UTC) + timedelta(milliseconds=100)
        eventually(lambda: datetime.now(UTC) > due)
        assert move(engine, "orders")[0] == 6
        assert drained(stream) == Sent(failed=6)


def test_copies_of_which_one_is_for_a_database_that_is_down_wait_as_one_row(engine, orders, far, gate):
    orders.insert(6)
    near = engine.queue("near")
    gate.shut()
    with copying(engine, orders, gate, "near", "far", "far") as stream:
        assert drained(stream) == Sent(waiting=6)
        waiting = DelayedRows(engine, "orders").rows()
        # As they were received, not as they were to be sent.
        assert [each.body for each in waiting] == [body(n) for n in range(6)]
        assert near.count() == 0  # all copies of a row go, or wait
        gate.open()
        assert stream.databases.look() == 6
        # Each comes back under a new number. Two of its copies go to one queue.
        assert drained(stream) == Sent(sent=12, repeated=6)
    assert numbers_in(far) == numbers_in(near) == [*range(7, 13)]
    assert (near.count(), orders.count(), DelayedRows(engine, "orders").count()) == (6, 0, 0)


def test_rows_go_back_into_the_queue_of_the_source_whatever_schema_the_sink_has(
    engine, orders, far, elsewhere, gate
):
    orders.insert(3)
    with copying(engine, orders, gate, "far") as stream:
        gate.shut()
        assert drained(stream) == Sent(waiting=3)
    elsewhere.execute("CREATE SCHEMA sales")
    sink = {"url": engine.url, "endpoint": "Copies", "errorQueue": "error", "defaultSchema": "sales"}
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url, "defaultSchema": "sales"}), "Copies")
    given = SinkOptions.parse({**sink, "endpoint.far.url": gate.url})
    gate.open()
    source = SourceOptions.parse({"url": engine.url, "queue": "orders"})
    databases = waiting_for(source, Places(given, given))
    assert databases is not None
    assert (databases.look(), orders.count()) == (3, 3)


def test_rows_of_each_queue_of_a_list_wait_and_go_back_into_their_own(engine, orders, far, gate):
    other = engine.create_queue("other")
    home = {"url": engine.url, "endpoint": "Copies", "errorQueue": "error"}
    given = SinkOptions.parse({**home, "endpoint.far.url": gate.url})
    source = SourceOptions.parse({"url": engine.url, "queues": '["orders", "other"]'})
    assert waiting_for(source, Places(given, given)) is None  # rows of other have nowhere to wait
    DelayedRows(engine, "other").create()
    databases = waiting_for(source, Places(given, given))
    assert databases is not None
    received = {
        "Queue": ["orders", "other", "other"],
        "RowVersion": [1, 2, 3],
        "Id": [str(row_id(n)) for n in (1, 2, 3)],
        "Headers": [messages.headers(n) for n in (1, 2, 3)],
        "Body": [body(n) for n in (1, 2, 3)],
        "Destination": ["far"] * 3,
    }
    gate.shut()
    task = SendTask(COLUMNS, Destinations(given), databases.down())
    assert task.sent(iter(pa.table(received).to_batches())) == Sent(waiting=3)
    gate.open()
    assert databases.look() == 3
    assert (numbers_in(orders), numbers_in(other)) == ([1], [2, 3])


def test_the_length_says_which_rows_wait_for_a_database_and_when_they_are_given_up(engine, orders, far, gate):
    def told(*more):
        cli = CliRunner(env={"SQLQUEUE_URL": engine.url})
        return cli.invoke(main, ["delayed", "length", "orders", *more], catch_exceptions=False).stdout

    orders.insert(2)
    gate.shut()
    with copying(engine, orders, gate, "far", giveUpAfter="3h") as stream:
        drained(stream)
    assert told().splitlines()[1:] == [
        "  rows   2",
        "  due    0",
        "  wait   2 for endpoint.far.url: they go when it answers again; the first is given up in 2 h",
    ]
    later = options(engine, endpoint="Copies", delayedEndpoint="orders")
    send(later, batch([9], DeliverAt=datetime.now(UTC) + timedelta(hours=5, minutes=1)))
    assert told().splitlines()[3] == "  first  due in 5 h"
    found = json.loads(told("--json"))
    assert (found["rows"], found["waiting"], found["waitsFor"]) == (3, 2, ["endpoint.far.url"])
    assert found["firstGivenUpInSeconds"] < 3 * 3600 < found["firstDueInSeconds"]
    DelayedRows(engine, "orders").make_due("4 hours")
    assert told().splitlines()[4].endswith("the first is given up as soon as the job looks")


def test_a_batch_that_runs_again_leaves_out_what_waits(engine, orders, far, gate):
    orders.insert(3)
    gate.shut()
    with copying(engine, orders, gate, "far") as stream:
        with steps(), at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            stream.trigger()
        gate.open()
        stream.crash()
        assert stream.databases.look() == 3
        assert (stream.trigger(), stream.sent) == (True, Sent(repeated=3))
        assert drained(stream) == Sent(sent=3)
    assert far.count() == 3


def test_a_database_that_goes_down_within_a_batch_holds_nothing_up(engine, orders, far, gate):
    orders.insert(6)
    near = engine.queue("near")
    with copying(engine, orders, gate, "far", "near") as stream:
        first = steps(), at_step("ids checked", gate.shut)
        with first[0], first[1]:
            assert stream.trigger()
        assert (stream.sent.waiting, near.count()) == (6, 0)
        gate.open()
        stream.databases.look()
        drained(stream)
    assert (far.count(), near.count(), orders.count()) == (6, 6, 0)


def test_without_an_error_queue_the_batch_fails_and_its_rows_stay(engine, orders, far, gate, monkeypatch):
    monkeypatch.setattr("sqlqueue_spark.engines.database_retry.RETRY_SECONDS", 0.2)
    orders.insert(3)
    with copying(engine, orders, gate, "near", errorQueue="error") as stream:
        stream.given = SinkOptions.parse(
            {"url": engine.url, "endpoint": "Copies", "endpoint.far.url": gate.url, "queue": "far"}
        )
        stream.to = ("far",)
        gate.shut()
        with pytest.raises(ConnectionLost):
            stream.trigger()
    assert (orders.count(), DelayedRows(engine, "orders").count()) == (3, 0)


def test_an_error_queue_in_another_database_needs_a_queue_that_stores_for_it(
    engine, elsewhere, orders, far, gate
):
    """Nothing would pass on what a transform cannot tell from the messages of the queue."""
    elsewhere.create_queue("lost")
    orders.insert(3)
    with (
        copying(engine, orders, gate, "near", errorQueue="lost", **{"endpoint.lost.url": gate.url}) as stream,
        pytest.raises(ConfigurationError, match="name a queue of this database as storeAndForward"),
    ):
        stream.trigger()
    assert orders.count() == 3


def test_a_batch_waits_for_a_database_until_it_is_back_and_says_so_once(engine, far, gate, caplog):
    given = SinkOptions.parse(
        {"url": engine.url, "endpoint": "Copies", "endpoint.far.url": gate.url, "retryInterval": "50ms"}
    )
    assert database_came_back(Places(given, given), 7) is False
    gate.shut()
    done = []
    thread = threading.Thread(target=lambda: done.append(database_came_back(Places(given, given), 7)))
    thread.start()
    eventually(lambda: len(caplog.records) == 1)
    gate.open()
    thread.join(20)
    assert done == [True]
    assert [each.getMessage().partition(" retry")[0] for each in caplog.records] == [
        "batch_waits batch=7 database=endpoint.far.url",
        "database_back database=endpoint.far.url",
    ]


def test_a_login_that_was_never_taken_is_no_database_that_is_down(engine, guarded_url, caplog):
    """A wrong password is an error of the configuration: the first batch fails with it, and does not wait."""
    wrong = guarded_url.replace(quote(GUARDED_PASSWORD), "wrong")
    given = SinkOptions.parse(
        {
            "url": engine.url,
            "endpoint": "Copies",
            "outbox": "none",
            "endpoint.far.url": wrong,
            "retryInterval": "50ms",
            "giveUpAfter": "1s",
        }
    )
    assert database_came_back(Places(given, given), 7) is False
    assert caplog.messages == []
    assert database_came_back(Places(given, given), 7, reached=True) is False
    assert [each.partition(" retry")[0] for each in caplog.messages] == [
        "batch_waits batch=7 database=endpoint.far.url"
    ]


def test_a_batch_that_waits_for_a_database_ends_when_it_is_asked_to(engine, gate):
    given = SinkOptions.parse({"url": engine.url, "endpoint": "Copies", "endpoint.far.url": gate.url})
    gate.shut()
    assert database_came_back(Places(given, given), 7, stopped=lambda: True) is False


def test_an_atomic_batch_waits_for_no_other_database(engine, gate, caplog):
    """It reaches none, so its error is another one, and is told at once."""
    atomic = {"transactionMode": "sendsAtomicWithReceive", "stream": "Copies"}
    given = SinkOptions.parse({"url": engine.url, "endpoint.far.url": gate.url, **atomic})
    gate.shut()
    assert database_came_back(Places(given, given), 7) is False
    assert caplog.messages == []


# -- messages that were not received --------------------------------------------------------------


def plain_frame(rows):
    """A frame of messages that tells no rows, as ``foreachBatch`` hands it over. Its one task runs here."""

    def run(task, _):
        told = [SimpleNamespace(**each.to_pylist()[0]) for each in task(iter([rows]))]
        return SimpleNamespace(collect=lambda: told)

    columns = [("Body", "binary"), ("MessageId", "string")]
    return SimpleNamespace(dtypes=columns, sparkSession=None, mapInArrow=run)


@pytest.fixture
def job_of_plain_messages(engine, orders, far, gate, monkeypatch):
    """The options of a sink, and the databases for which rows of its job may wait."""
    monkeypatch.setattr("sqlqueue_spark.engines.database_retry.RETRY_SECONDS", 0.2)
    more = {"endpoint": "Copies", "errorQueue": "error", "queue": "far", "retryInterval": "50ms"}
    given = SinkOptions.parse({"url": engine.url, "endpoint.far.url": gate.url, **more})
    return given, RemoteDatabases(Places(given, given), orders.address)


def test_a_batch_of_plain_messages_waits_for_its_database_and_is_sent_then(
    engine, orders, far, gate, job_of_plain_messages, caplog
):
    """A job that selects less than rows are told by has nothing that could wait instead."""
    given, databases = job_of_plain_messages
    sink = SqlQueueSink.of(given)
    sink.databases = databases
    gate.shut()
    databases.look()
    thread = threading.Thread(target=lambda: sink(plain_frame(batch(range(3))), 7))
    thread.start()
    eventually(lambda: "batch_waits batch=7" in caplog.text or not thread.is_alive())
    assert (sink.sent_in(7), far.count()) == (None, 0)
    gate.open()
    thread.join(20)
    assert (sink.sent_in(7), numbers_in(far)) == (Sent(sent=3), [0, 1, 2])
    assert (engine.queue("error").count(), DelayedRows(engine, "orders").count()) == (0, 0)


@pytest.mark.parametrize("known", [True, False])
def test_a_task_of_plain_messages_fails_while_their_database_is_down(far, gate, job_of_plain_messages, known):
    """Whether the driver knows it or the task finds it out. Nothing counts as sent."""
    given, databases = job_of_plain_messages
    gate.shut()
    if known:
        databases.look()
    columns = columns_of("Body", "MessageId")
    task = SendTask(columns, Destinations(given), databases.down())
    with pytest.raises(ConnectionLost):
        task.sent(iter([batch(range(3))]))
    gate.open()
    assert task.sent(iter([batch(range(3))])) == Sent(sent=3)
    assert numbers_in(far) == [0, 1, 2]


class Rewriting(Copies):
    """Gives each message new headers, as a transform may."""

    def read(self, task):
        new = json.dumps({MESSAGE_ID: "m1"})
        return [{**each, "Headers": new} for each in super().read(task)]


@pytest.mark.parametrize("kind", [Copies, Rewriting])
def test_a_message_is_given_up_though_its_headers_are_new_each_time(engine, orders, far, gate, kind):
    orders.insert(1)
    gate.shut()
    stream = kind(engine, orders, ("far",), **{"endpoint.far.url": gate.url, "giveUpAfter": "100ms"})
    with watched_connections(stream.opened):
        try:
            assert drained(stream) == Sent(waiting=1)
            due = datetime.now(UTC) + timedelta(milliseconds=100)
            eventually(lambda: datetime.now(UTC) > due)
            with connect(Target.of(stream.given)) as connection:
                with connection.transaction():
                    table = queues.get(connection, "orders", stream.given.naming(connection.dialect)).table
                assert put_back(connection, table, "endpoint.far.url")[0] == 1
            assert drained(stream) == Sent(failed=1)
        finally:
            stream.stop()


def test_a_message_that_an_index_elsewhere_refuses_fails_alone(engine, orders, far, gate):
    """Its database is not down: the other messages arrive."""
    if engine.name != "postgresql":
        pytest.skip("there no index may be on bodies")
    far.execute("CREATE UNIQUE INDEX one_body ON {table} (body)")
    far.insert_row(id=row_id(99), headers="{}", body=b'{"order":2}')
    orders.insert(3)
    with copying(engine, orders, gate, "far") as stream:
        assert drained(stream) == Sent(sent=2, failed=1)
    assert (far.count(), DelayedRows(engine, "orders").count()) == (3, 0)


class Mending(Copies):
    """Takes a comma too many out of the headers, as a transform may."""

    def read(self, task):
        return [{**each, "Headers": each["Headers"].replace(",}", "}")} for each in super().read(task)]


@pytest.mark.parametrize("down", [False, True])
def test_headers_that_a_transform_has_mended_are_not_lost_where_their_row_would_wait(
    engine, orders, far, gate, down
):
    """What waits is the row as it was received, and nothing can say in its headers where it goes."""
    poison = '{"NServiceBus.MessageId":"order-1","Customer":"4711",}'
    orders.insert_row(id=row_id(1), headers=poison, body=body(1))
    if down:
        gate.shut()
    stream = Mending(engine, orders, ("far",), **{"endpoint.far.url": gate.url})
    with watched_connections(stream.opened):
        try:
            assert drained(stream) == (Sent(failed=1) if down else Sent(sent=1))
        finally:
            stream.stop()
    if down:
        [row] = engine.queue("error").rows()
        failed = json.loads(row.headers)
        assert failed[RAW_HEADERS] == poison
        assert failed["NServiceBus.ExceptionInfo.ExceptionType"] == "sqlqueue_spark.errors.UnreadableHeaders"
    else:
        [row] = far.rows()
        told = json.loads(row.headers)
        assert (told[MESSAGE_ID], told["Customer"]) == ("order-1", "4711")


def test_a_row_that_has_no_table_to_wait_in_fails_and_says_why(engine, orders, far, gate):
    orders.insert(1)
    gate.shut()
    engine.execute('DROP TABLE "orders.Delayed"')
    with copying(engine, orders, gate, "far") as stream:
        assert drained(stream) == Sent(failed=1)
    [row] = engine.queue("error").rows()
    failed = json.loads(row.headers)
    assert failed["NServiceBus.ExceptionInfo.ExceptionType"] == "sqlqueue_spark.errors.GaveUp"
    assert failed["NServiceBus.ExceptionInfo.Message"].startswith(
        "The database of the option endpoint.far.url was down"
    )


def test_events_wait_while_the_database_of_their_subscriptions_is_down(engine, elsewhere, orders, far, gate):
    """The driver looks there again after a minute, whatever it knows of it."""
    SubscriptionRows(elsewhere).create().add(far, "Shop.Placed")
    source = {"url": engine.url, "queue": "orders"}
    sink = {"url": gate.url, "endpoint": "Copies", "errorQueue": "error"}
    places, now = places_of(*agreed(source, sink)), [0.0]
    destinations = Destinations(places.home, places.away, clock=lambda: now[0])
    columns = columns_of("Queue", "RowVersion", "Id", "Headers", "Body", "EventType")
    databases = RemoteDatabases(places, orders.address)

    def published(number, down):
        orders.insert(1, start=number)
        row = orders.rows()[-1]
        prepare(destinations, columns, [], down=down)
        told = ["orders", row.row_version, str(row.id), row.headers, row.body, "Shop.Placed"]
        frame = pa.table({name: [value] for name, value in zip(columns.names, told, strict=True)})
        return SendTask(columns, destinations, down).sent(iter(frame.to_batches()))

    databases.look()
    assert published(1, databases.down()) == Sent(sent=1)
    gate.shut()
    now[0] += 61
    assert published(2, set()) == Sent(waiting=1)
    databases.note(Sent(waiting=1))
    databases.look()
    now[0] += 61
    assert published(3, databases.down()) == Sent(waiting=1)
    gate.open()
    assert databases.look() == 2
    assert numbers_in(far) == [1]
