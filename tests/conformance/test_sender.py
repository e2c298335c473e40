"""The sender without Spark: each message id reaches each destination once,
whatever is repeated, cut or at once.
"""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import stamina
from pyspark.sql.types import StructType

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, TryAgain
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import warn_once
from sqlqueue_spark.send.compose import chunk
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.spark.writers import SqlQueueWriter
from sqlqueue_spark.tables import insert
from sqlqueue_spark.tables.database_facts import now
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.conftest import GUARDED_ROLE
from tests.support.driver import at_step
from tests.support.engines import without_place
from tests.support.messages import body, message_id, message_ids
from tests.support.outboxes import OutboxRows
from tests.support.postgresql import PostgresEngine, restart
from tests.support.proxy import proxied
from tests.support.sending import OUTBOXES, PLAIN, batch, composed, ids_in, options, send, steps, watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

#: In the order in which a chunk passes them.
STEPS = {
    "optimistic": (
        fail_points.IDS_CHECKED,
        fail_points.ROWS_INSERTED,
        fail_points.IDS_INSERTED,
        fail_points.CHUNK_SENT,
    ),
    "pessimistic": (fail_points.IDS_INSERTED, fail_points.ROWS_INSERTED, fail_points.CHUNK_SENT),
}
EVERY_STEP = [(outbox, step) for outbox, steps in STEPS.items() for step in steps]
#: Levels that a server may lack.
STRICTER = [
    pytest.param(level, marks=pytest.mark.needs("isolates_more_strictly"))
    for level in ("RepeatableRead", "Serializable")
]


@pytest.fixture
def sent(engine, queue):
    """The outbox table of the endpoint Sales beside the queue orders, both empty."""
    return create_outbox(engine)


@pytest.fixture
def chunks_of_50(monkeypatch):
    """Several chunks of a few messages."""
    monkeypatch.setattr(chunk, "CHUNK", 50)


def create_outbox(engine, **more):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url, **more}), "Sales")
    return OutboxRows(engine)


def sorted_ids(queue):
    return sorted(ids_in(queue))


# -- once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_messages_arrive_in_order_and_only_once(engine, queue, sent, outbox):
    """A repeated batch sends nothing."""
    given = options(engine, outbox=outbox)
    assert send(given, batch(range(5_000)), batch(range(5_000, 9_001))) == (9_001, 0)
    rows = queue.rows()
    assert [json.loads(row.headers)["NServiceBus.MessageId"] for row in rows] == message_ids(range(9_001))
    assert [row.body for row in rows] == [body(number) for number in range(9_001)]
    assert sent.message_ids() == message_ids(range(9_001))
    assert send(given, batch(range(9_001))) == (0, 9_001)
    assert queue.count() == 9_001


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_partly_repeated_batch_sends_only_the_rest(engine, queue, sent, outbox, chunks_of_50):
    given = options(engine, outbox=outbox)
    assert send(given, batch(range(0, 300, 3))) == (100, 0)
    assert send(given, batch(range(300))) == (200, 100)
    assert sorted_ids(queue) == message_ids(range(300))
    assert sent.message_ids() == message_ids(range(300))


def test_a_batch_job_says_what_it_sent_each_time_in_the_same_way(engine, queue, sent, caplog):
    """As a warning, which is shown where nothing else is configured."""
    given = {"url": engine.url, "queue": "orders", "endpoint": "Sales", "messageType": "Shop.Placed"}
    schema = StructType().add("MessageId", "string").add("Body", "binary")
    for _ in range(2):
        writer = SqlQueueWriter(SinkOptions.parse(given), schema, overwrite=False)
        writer.commit([writer.write(iter([batch(range(5))]))])
    said = [(each.levelname, each.message) for each in caplog.records]
    assert said == [("WARNING", "sent sent=5 repeated=0"), ("WARNING", "sent sent=0 repeated=5")]


def test_a_batch_may_be_repeated_in_the_other_mode(engine, queue, sent):
    assert send(options(engine, outbox="optimistic"), batch(range(10))) == (10, 0)
    assert send(options(engine, outbox="pessimistic"), batch(range(20))) == (10, 10)
    assert send(options(engine, outbox="optimistic"), batch(range(20))) == (0, 20)
    assert sorted_ids(queue) == message_ids(range(20))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_an_id_that_comes_twice_in_a_batch_is_sent_once(engine, queue, sent, outbox, chunks_of_50):
    numbers = [*range(60), *range(60), 7, 7]
    assert send(options(engine, outbox=outbox), batch(numbers)) == (60, 62)
    assert ids_in(queue) == message_ids(range(60))


def test_without_an_outbox_everything_is_sent_each_time(engine, queue):
    given = options(engine, outbox="none")
    assert send(given, batch([*range(10), 1])) == (11, 0)
    assert send(given, batch(range(10))) == (10, 0)
    assert ids_in(queue) == message_ids([*range(10), 1, *range(10)])


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_an_id_that_a_net_endpoint_handled_is_sent(engine, queue, sent, outbox):
    """What the endpoint has handled is no send of ours."""
    sent.insert(message_id(1))
    sent.insert(message_id(2), dispatched=False)
    assert send(options(engine, outbox=outbox), batch(range(4))) == (4, 0)
    assert ids_in(queue) == message_ids(range(4))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_refused_batch_leaves_no_id_in_the_outbox(engine, queue, sent, outbox):
    """One row of four is poison: none of them is sent or remembered."""
    with pytest.raises(ConfigurationError, match="The headers of a row are not a JSON object"):
        send(options(engine, outbox=outbox), batch(range(4), Headers=[None, None, None, "poison"]))
    assert (ids_in(queue), sent.ids()) == ([], set())


# -- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_each_row_goes_to_its_own_destination(engine, queue, sent, outbox):
    billing, shipping = engine.create_queue("billing"), engine.create_queue("shipping", schema="far away")
    to = [None, "billing", shipping.address] * 30
    given = options(engine, outbox=outbox)
    assert send(given, batch(range(90), Destination=to)) == (90, 0)
    assert ids_in(queue) == message_ids(range(0, 90, 3))
    assert ids_in(billing) == message_ids(range(1, 90, 3))
    assert ids_in(shipping) == message_ids(range(2, 90, 3))
    assert send(given, batch(range(90), Destination=to)) == (0, 90)
    assert queue.count() + billing.count() + shipping.count() == 90


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("length", [183, 184, 200])
def test_the_longest_id_goes_to_every_queue_once(engine, queue, sent, outbox, length):
    """As long as an outbox takes, or a little shorter."""
    billing = engine.create_queue("billing")
    long = batch([1, 1], MessageId="m" * length, Headers=None, Destination=["orders", "billing"])
    given = options(engine, outbox=outbox)
    assert [send(given, long), send(given, long)] == [(2, 0), (0, 2)]
    assert (ids_in(queue), ids_in(billing)) == (["m" * length], ["m" * length])
    assert max(map(len, sent.ids())) <= 200


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_one_id_to_two_queues_arrives_at_both_once(engine, queue, sent, outbox, chunks_of_50):
    billing = engine.create_queue("billing")
    copies = [number for number in range(80) for _ in range(2)]
    given = options(engine, outbox=outbox)
    assert send(given, batch(copies, Destination=["orders", "billing"] * 80)) == (160, 0)
    assert send(given, batch(copies, Destination=["orders", "billing"] * 80)) == (0, 160)
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(80)), message_ids(range(80)))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_every_copy_for_another_queue_arrives(engine, queue, sent, outbox, chunks_of_50):
    """Another task, another chunk, another batch: the first copy on its way is no
    reason to drop the second.
    """
    billing = engine.create_queue("billing")
    given = options(engine, outbox=outbox)
    apart = batch([*range(80), *range(80)], Destination=["orders"] * 80 + ["billing"] * 80)
    assert send(given, apart) == (160, 0)
    assert send(given, batch(range(80, 90))) == (10, 0)
    assert send(given, batch(range(90), Destination=["billing"] * 90)) == (10, 80)
    assert send(given, apart) == (0, 160)
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(90)), message_ids(range(90)))


def test_one_id_to_one_queue_by_two_names_arrives_once(engine, queue, sent):
    names = ["orders", queue.address]
    assert send(options(engine), batch([1, 1], Destination=names)) == (1, 1)
    assert ids_in(queue) == message_ids([1])


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_another_database_has_its_own_outbox(engine, queue, sent, elsewhere, outbox):
    """One chunk to two databases, each in a transaction of its own; a prefix covers the callbacks."""
    there = [elsewhere.create_queue(name) for name in ("billing", "billing.callback", "billingfoot")]
    theirs = create_outbox(elsewhere)
    given = options(
        engine,
        outbox=outbox,
        **{"endpoint.billing.url": elsewhere.url, "endpoint.billing.*.url": elsewhere.url},
    )
    to = ["orders", "billing", "billing.callback"] * 20
    assert send(given, batch(range(60), Destination=to)) == (60, 0)
    assert send(given, batch(range(60), Destination=to)) == (0, 60)
    assert ids_in(queue) == message_ids(range(0, 60, 3))
    assert [ids_in(each) for each in there] == [
        message_ids(range(1, 60, 3)),
        message_ids(range(2, 60, 3)),
        [],
    ]
    assert sent.message_ids() == message_ids(range(0, 60, 3))
    assert theirs.message_ids() == sorted({*message_ids(range(60))} - {*sent.message_ids()})
    with pytest.raises(QueueError, match="There is no queue table billingfoot@"):
        send(given, batch([99], Destination="billingfoot"))


def test_one_id_to_two_databases_arrives_at_both(engine, queue, sent, elsewhere):
    billing = elsewhere.create_queue("billing")
    create_outbox(elsewhere)
    given = options(engine, **{"endpoint.billing*.url": elsewhere.url})
    for done in ((2, 0), (0, 2)):
        assert send(given, batch([1, 1], Destination=["orders", "billing"])) == done
    assert (ids_in(queue), ids_in(billing)) == (message_ids([1]), message_ids([1]))


@pytest.mark.needs("numbers_missing_tables")
def test_a_failed_database_doubles_nothing_in_another(engine, queue, sent, elsewhere):
    billing = elsewhere.create_queue("billing")
    given = options(engine, **{"endpoint.billing.url": elsewhere.url})
    to = ["orders", "billing"] * 10
    with pytest.raises(QueueError, match=r"The outbox table .* cannot be used"):
        send(given, batch(range(20), Destination=to))
    assert (queue.count(), billing.count()) == (0, 0)  # what goes elsewhere goes first
    create_outbox(elsewhere)
    assert send(given, batch(range(20), Destination=to)) == (20, 0)
    assert send(given, batch(range(20), Destination=to)) == (0, 20)
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(0, 20, 2)), message_ids(range(1, 20, 2)))


@pytest.mark.parametrize(
    "named, address",
    [
        ({"queue.orders.schema": "special"}, "orders@[wrong]"),
        ({"endpoint.ord*.schema": "special"}, "orders@[wrong]"),
        ({"defaultSchema": "special"}, "orders"),
        ({}, "orders@[special]"),
    ],
    ids=["the queue's", "its endpoint's", "the default", "the address's"],
)
def test_destinations_resolve_schemas_as_sources_do(engine, named, address):
    special = engine.create_queue(schema="special")
    given = options(engine, queue=address, outbox="none", **named)
    assert send(given, batch(range(3))) == (3, 0)
    assert ids_in(special) == message_ids(range(3))


def test_the_outbox_lies_in_the_default_schema(engine):
    special = engine.create_queue(schema="special")
    create_outbox(engine, defaultSchema="special")
    given = options(engine, defaultSchema="special")
    assert [send(given, batch(range(3))) for _ in range(2)] == [(3, 0), (0, 3)]
    assert ids_in(special) == message_ids(range(3))


# -- before anything is sent ----------------------------------------------------------------------


def test_a_batch_to_a_missing_destination_is_refused(engine, queue, sent):
    """The destination is named, and nothing is sent."""
    given = options(engine)
    with pytest.raises(QueueError) as caught:
        prepare(Destinations(given), PLAIN, ["orders", "nowhere"])
    said = (
        f"There is no queue table nowhere@[{engine.default_schema}] to send to; create it with: sqlqueue "
        "create 'nowhere', or correct the destination or its schema."
    )
    assert str(caught.value) == f"{said} Nothing of this batch was sent."
    with pytest.raises(QueueError) as caught:
        send(given, batch(range(3), Destination=["orders", "orders", "nowhere"]))
    assert str(caught.value) == said
    assert (queue.count(), sent.ids()) == (0, set())


def test_a_missing_destination_of_another_database_is_said_to_be_missing_there(engine, queue, elsewhere):
    given = options(engine, outbox="none", **{"endpoint.billing.url": elsewhere.url})
    with pytest.raises(QueueError) as caught:
        prepare(Destinations(given), PLAIN, ["billing"])
    assert str(caught.value) == (
        f"There is no queue table billing@[{engine.default_schema}] to send to in the database of "
        "endpoint.billing.url; create it with: sqlqueue create 'billing', or correct the destination or its "
        "schema. Nothing of this batch was sent."
    )
    assert queue.count() == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"TimeToBeReceived": timedelta(0)},
        {"TimeToBeReceived": timedelta(seconds=-1)},
        {"TimeToBeReceived": timedelta(microseconds=999)},  # tables count milliseconds
        {"Headers": '{"NServiceBus.TimeToBeReceived":"00:00:00"}'},
    ],
)
def test_a_message_that_would_be_expired_from_the_start_is_refused(engine, queue, columns):
    with pytest.raises(ConfigurationError) as caught:
        send(options(engine, outbox="none"), batch([1], **columns))
    assert str(caught.value) == (
        "A row's TimeToBeReceived is not above zero, so it is expired; give more, or NULL for never. "
        f"It is the row with MessageId {message_id(1)}."
    )
    assert queue.count() == 0


@pytest.mark.needs("numbers_missing_tables")
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_missing_outbox_table_is_named_with_its_remedy(engine, queue, outbox):
    given = options(engine, outbox=outbox)
    table = OutboxRows(engine).table
    with pytest.raises(QueueError) as caught:
        prepare(Destinations(given), PLAIN, ["orders"])
    assert without_place(str(caught.value)) == (
        f"There is no outbox table {table} in the database of Home; with that database's url "
        "(SQLQUEUE_URL or --url) create it with: sqlqueue outbox create 'Sales', or set outbox to none. "
        "Nothing of this batch was sent."
    )
    with pytest.raises(QueueError, match="create it with: sqlqueue outbox create 'Sales'"):
        send(given, batch(range(3)))
    assert queue.count() == 0


def test_an_outbox_that_is_partitioned_by_time_is_refused_before_anything_is_sent(postgresql):
    """The column by which it is partitioned is in its key, so that an id may be there twice."""
    queue = postgresql.create_queue()
    postgresql.execute(
        'CREATE TABLE "Sales_OutboxData" ("MessageId" varchar(200), "Dispatched" boolean, '
        '"DispatchedAt" timestamp, "PersistenceVersion" varchar(23), "Operations" jsonb, '
        'PRIMARY KEY ("MessageId", "DispatchedAt")) '
        'PARTITION BY RANGE ("DispatchedAt")'
    )
    postgresql.execute('CREATE TABLE "Sales_all" PARTITION OF "Sales_OutboxData" DEFAULT')
    given = options(postgresql)
    with pytest.raises(
        QueueError, match=r'^The outbox table "public"\."Sales_OutboxData" has no unique index .*primary key'
    ):
        prepare(Destinations(given), PLAIN, ["orders"])
    assert queue.count() == 0


def test_two_endpoints_that_share_an_outbox_are_warned_of_once(engine, queue, caplog):
    """Names that differ by a dot and an underscore mean one table."""
    warn_once.cache_clear()
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Shop.Spark")
    first, second = (options(engine, endpoint=name) for name in ("Shop.Spark", "Shop_Spark"))
    send(first, batch(range(1)))
    assert [each for each in caplog.messages if each.startswith("shared_outbox")] == []
    for _ in range(2):
        prepare(Destinations(second), PLAIN, ["orders"])
    (line,) = [each for each in caplog.messages if each.startswith("shared_outbox")]
    assert line.startswith(
        f"shared_outbox outbox={OutboxRows(engine, 'Shop_Spark').table} endpoint=Shop_Spark: another"
    )


def test_a_missing_outbox_elsewhere_is_named_too(engine, queue, sent, elsewhere):
    """In the database of another endpoint."""
    elsewhere.create_queue("billing")
    given = options(engine, **{"endpoint.billing.url": elsewhere.url})
    with pytest.raises(QueueError, match=r"^There is no outbox table .*Sales_OutboxData"):
        prepare(Destinations(given), PLAIN, ["orders", "billing"])


def test_what_was_found_once_is_not_looked_for_again(engine, queue, sent):
    """A worker gets the destinations with their tables: it need not be able to look."""
    given = options(engine)
    found = Destinations(given)
    prepare(found, PLAIN, ["orders"])

    def never(target):
        raise AssertionError("it is known")

    orders = found.places.destination("orders")
    assert Routes(found, never).at(orders).table.table.table == "orders"
    found.forget()
    with pytest.raises(AssertionError, match="it is known"):
        Routes(found, never).at(orders)


@pytest.mark.parametrize("outbox", [*OUTBOXES, "none"])
def test_a_sender_needs_no_right_to_read_a_destination(postgresql, guarded_url, outbox):
    queue = postgresql.create_queue()
    create_outbox(postgresql)
    postgresql.execute(f"GRANT INSERT ON orders TO {GUARDED_ROLE}")
    postgresql.execute(f"GRANT USAGE ON SEQUENCE orders_seq_seq TO {GUARDED_ROLE}")
    postgresql.execute(f'GRANT SELECT, INSERT ON "Sales_OutboxData" TO {GUARDED_ROLE}')
    given = options(PostgresEngine(guarded_url), outbox=outbox)
    prepare(Destinations(given), PLAIN, ["orders"])
    rows = batch(range(5), TimeToBeReceived=timedelta(days=1))
    assert [send(given, rows) for _ in range(2)] == [(5, 0), (5, 0) if outbox == "none" else (0, 5)]
    assert queue.count() == (10 if outbox == "none" else 5)
    with (
        psycopg.connect(guarded_url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT count(*) FROM orders")


@pytest.mark.parametrize("outbox", [*OUTBOXES, "none"])
def test_a_sender_that_may_not_insert_says_so(postgresql, guarded_url, outbox):
    """It sends nothing."""
    queue = postgresql.create_queue()
    sent = create_outbox(postgresql)
    postgresql.execute(f'GRANT SELECT, INSERT ON "Sales_OutboxData" TO {GUARDED_ROLE}')
    with pytest.raises(
        ConfigurationError, match=r"User 'guarded' lacks a right at .* while sending to orders@"
    ):
        send(options(PostgresEngine(guarded_url), outbox=outbox), batch(range(5)))
    assert (queue.count(), sent.ids()) == (0, set())


# -- the database's clock, isolation -------------------------------------------------------------


def test_messages_expire_by_the_databases_clock(postgresql, monkeypatch):
    """Its clock is ten years ahead: rows end by it, and the times in headers stay the sender's."""
    queue = postgresql.create_queue()
    monkeypatch.setattr(insert, "now", lambda connection: now(connection) + timedelta(days=3650))
    hours = [timedelta(hours=1), None, timedelta(hours=3)]
    end = datetime(2030, 1, 1, tzinfo=UTC)
    assert send(options(postgresql, outbox="none"), batch(range(3), TimeToBeReceived=hours)) == (3, 0)
    assert send(options(postgresql, outbox="none"), batch([3], Expires=end)) == (1, 0)
    expires = [row.expires and row.expires.replace(tzinfo=UTC) for row in queue.rows()]
    assert [expires[1], expires[3]] == [None, end]
    assert expires[2] - expires[0] == timedelta(hours=2)
    ahead = expires[0] - datetime.now(UTC) - timedelta(days=3650, hours=1)
    assert abs(ahead) < timedelta(minutes=1)
    times = [json.loads(row.headers)["NServiceBus.TimeSent"] for row in queue.rows()]
    assert {each[:4] for each in times} == {str(datetime.now(UTC).year)}


LEVELS: dict[str, dict[str, object]] = {
    "postgresql": {
        "ReadCommitted": "read committed",
        "RepeatableRead": "repeatable read",
        "Serializable": "serializable",
        "Snapshot": "repeatable read",
    },
    "sqlserver": {"ReadCommitted": 2, "RepeatableRead": 3, "Serializable": 4, "Snapshot": 5},
}
SHOW_LEVEL = {
    "postgresql": "SHOW transaction_isolation",
    "sqlserver": "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID",
}


@pytest.mark.needs("alters_databases", "isolates_more_strictly")
@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("level", LEVELS["postgresql"])
def test_transactions_use_the_asked_isolation_level(engine, queue, sent, level, outbox):
    if engine.name == "sqlserver":
        engine.execute("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    found = []
    given = options(engine, isolationLevel=level, outbox=outbox)
    with (
        watched() as seen,
        at_step(
            fail_points.ROWS_INSERTED, lambda: found.append(seen.last.execute(SHOW_LEVEL[engine.name])[0][0])
        ),
    ):
        assert send(given, batch(range(3))) == (3, 0)
    assert found == [LEVELS[engine.name][level]]
    assert send(given, batch(range(5))) == (2, 3)
    assert sorted_ids(queue) == message_ids(range(5))


# -- at once --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [fail_points.IDS_CHECKED, fail_points.ROWS_INSERTED])
@pytest.mark.parametrize("isolation", ["ReadCommitted", "RepeatableRead", "Serializable"])
def test_an_overtaken_optimistic_sender_sends_the_rest(engine, queue, sent, step, isolation):
    """The twin sends a part of the same messages between our look and our ids:
    a unique violation in mid-chunk.
    """
    given = options(engine, isolationLevel=isolation)
    if engine.name == "sqlserver" and isolation != "ReadCommitted":
        pytest.skip("on SQL Server the twin waits for what these levels have locked")
    with steps(), at_step(step, lambda: send(given, batch(range(5, 15)))) as overtaken:
        assert send(given, batch(range(10))) == (5, 5)
    assert overtaken == [1]
    assert sorted_ids(queue) == message_ids(range(15))
    assert sent.message_ids() == message_ids(range(15))


@pytest.mark.needs("tells_who_holds_locks")
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_twin_waits_and_then_sends_the_rest(engine, queue, sent, outbox):
    """The sender has inserted its ids, and not committed."""
    given = options(engine, outbox=outbox)
    with ThreadPoolExecutor(1) as pool, steps():
        twins = []

        def let_the_twin_wait():
            twins.append(pool.submit(send, given, batch(range(5, 15))))
            eventually(sent.blocked)

        with at_step(fail_points.IDS_INSERTED, let_the_twin_wait):
            assert send(given, batch(range(10))) == (10, 0)
            assert twins[0].result(60) == (5, 5)
    assert sorted_ids(queue) == message_ids(range(15))
    assert sent.message_ids() == message_ids(range(15))


@pytest.mark.needs("tells_who_holds_locks")
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_twin_of_a_sender_that_dies_sends_everything(engine, queue, sent, outbox):
    """A speculative twin waits for the first attempt's ids; that attempt is killed."""
    given = options(engine, outbox=outbox)

    class Killed(BaseException):
        pass

    with ThreadPoolExecutor(1) as pool, steps():
        twins = []

        def die_while_the_twin_waits():
            twins.append(pool.submit(send, given, batch(range(10))))
            eventually(sent.blocked)
            raise Killed

        with at_step(fail_points.IDS_INSERTED, die_while_the_twin_waits):
            with pytest.raises(Killed):
                send(given, batch(range(10)))
            assert twins[0].result(60) == (10, 0)
    assert sorted_ids(queue) == message_ids(range(10))


@pytest.mark.parametrize("isolation", ["ReadCommitted", *STRICTER])
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_four_senders_at_once_send_each_message_once(engine, queue, sent, outbox, isolation, chunks_of_50):
    """Each in an order of its own, so that their chunks cross."""
    given = options(engine, outbox=outbox, isolationLevel=isolation)
    ready = threading.Barrier(4, timeout=60)

    def one(seed):
        numbers = list(range(400))
        random.Random(seed).shuffle(numbers)  # noqa: S311 -- a shuffle that can be repeated
        ready.wait()
        while True:
            try:
                return send(given, batch(numbers))
            except TryAgain:  # as Spark tries its task again
                continue

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(one, range(4)))
    assert sorted_ids(queue) == message_ids(range(400))
    assert sent.message_ids() == message_ids(range(400))
    assert all(gone + repeated == 400 for gone, repeated in done)


@pytest.mark.parametrize("outbox", [*OUTBOXES, "none"])
def test_a_row_whose_own_id_is_taken_is_refused_at_once(postgresql, outbox):
    """Only PostgreSQL's tables have a key on Id."""
    queue, taken = postgresql.create_queue(), "0a000000-0000-4000-8000-00000000000f"
    sent = create_outbox(postgresql)
    given = options(postgresql, outbox=outbox)
    assert send(given, batch([0], Id=taken)) == (1, 0)
    began = time.monotonic()
    with pytest.raises(QueueError) as caught:
        send(given, batch(range(1, 4), Id=[None, taken, None]))
    assert time.monotonic() - began < 20
    assert str(caught.value).endswith(
        "If the rows have Ids of their own, one of these is taken: leave the column Id out, and each row "
        "gets a new one; what makes a message go out once is its MessageId."
    )
    assert ids_in(queue) == message_ids([0])
    assert sent.message_ids() == ([] if outbox == "none" else message_ids([0]))


# -- what breaks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox, step", EVERY_STEP)
def test_cut_connections_lose_and_double_nothing(engine, queue, sent, outbox, step, chunks_of_50):
    """At any step."""
    given = options(engine, outbox=outbox)
    with steps(), at_step(step, engine.cut_connections, on={1, 3}) as cuts:
        gone, repeated = send(given, batch(range(230)))
    assert (cuts, gone + repeated) == ([1, 3], 230)
    assert ids_in(queue) == message_ids(range(230))
    assert sent.message_ids() == message_ids(range(230))


@pytest.mark.parametrize("outbox, step", EVERY_STEP)
def test_a_task_that_dies_and_is_retried_sends_once(engine, queue, sent, outbox, step, chunks_of_50):
    """It dies at any step; each message is sent once."""
    given = options(engine, outbox=outbox)

    class Killed(BaseException):
        pass

    def die():
        raise Killed

    with steps(), at_step(step, die, on={1, 3}) as deaths:
        for _ in range(2):
            with pytest.raises(Killed):
                send(given, batch(range(230)))
        send(given, batch(range(230)))
    assert deaths == [1, 3]
    assert sorted_ids(queue) == message_ids(range(230))
    assert sent.message_ids() == message_ids(range(230))


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_the_outbox_tells_whether_a_commit_arrived(postgresql, outbox, deliver):
    """Where the connection broke while committing."""
    queue = postgresql.create_queue()
    sent = create_outbox(postgresql)
    with proxied(postgresql.url) as proxy, steps():
        given = options(PostgresEngine(proxy.url), outbox=outbox)
        last = STEPS[outbox][-2]
        with at_step(last, lambda: proxy.cut_at(b"COMMIT", deliver=deliver)):
            assert send(given, batch(range(20))) == ((0, 20) if deliver else (20, 0))
        assert proxy.cuts == 1
    assert ids_in(queue) == message_ids(range(20))
    assert sent.message_ids() == message_ids(range(20))


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_an_unclear_commit_without_an_outbox_is_reported(postgresql, deliver):
    """The caller is told, and decides: a retry could double, none could lose."""
    queue = postgresql.create_queue()
    with (
        proxied(postgresql.url) as proxy,
        Sender(Destinations(given := without_outbox(proxy.url))) as sender,
    ):
        sender.send(composed(given, batch([0])))
        proxy.cut_at(b"COMMIT", deliver=deliver)
        with pytest.raises(ConnectionLost):
            sender.send(composed(given, batch(range(1, 20))))
        assert proxy.cuts == 1
        assert queue.count() == (20 if deliver else 1)
        sender.send(composed(given, batch([20])))
    assert ids_in(queue)[-1] == message_id(20)


def test_a_break_before_the_commit_is_tried_again(postgresql):
    """Also without an outbox."""
    queue = postgresql.create_queue()
    with (
        proxied(postgresql.url) as proxy,
        Sender(Destinations(given := without_outbox(proxy.url))) as sender,
    ):
        sender.send(composed(given, batch([0])))
        proxy.cut_at(b"COPY", deliver=True)
        sender.send(composed(given, batch(range(1, 20))))
        assert proxy.cuts == 1
    assert ids_in(queue) == message_ids(range(20))


def without_outbox(url):
    return options(PostgresEngine(url), outbox="none")


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_deadlock_victim_in_mid_chunk_is_tried_again(postgresql, outbox):
    """Another session holds an id that we shall add, and waits for a row that we have inserted:
    we are to give way.
    """
    queue = postgresql.create_queue()
    sent = create_outbox(postgresql)
    given = options(postgresql, outbox=outbox)
    ours = "00000000-0000-4000-8000-000000000001"
    rows = batch(range(3), Id=[ours, None, None])
    # Pessimistic ids come first: there the other waits for one of them, and we for a row.
    hold, want = (
        (
            'INSERT INTO "Sales_OutboxData" VALUES (%s, true, now(), %s, %s)',
            [f"{message_id(2)}>4qblcojrfl", "x", "[]"],
        ),
        ("INSERT INTO orders (id, headers) VALUES (%s, '{}')", [ours]),
    )
    if outbox == "pessimistic":
        hold, want = want, hold
    step = {"optimistic": fail_points.ROWS_INSERTED, "pessimistic": fail_points.IDS_INSERTED}[outbox]
    with psycopg.connect(postgresql.url) as other, ThreadPoolExecutor(1) as pool, steps():
        other.execute("SET deadlock_timeout = '1min'")  # the server looks for a deadlock in our name first
        other.execute(*hold)
        waiting = []

        def wait_for_us():
            def insert_and_give_up():
                other.execute(*want)
                other.rollback()

            waiting.append(pool.submit(insert_and_give_up))
            eventually(sent.blocked)

        with at_step(step, wait_for_us) as met:
            assert send(given, rows) == (3, 0)
        waiting[0].result(60)
    assert met == [1]
    assert ids_in(queue) == message_ids(range(3))
    assert deadlocks(postgresql) == 1


def deadlocks(engine):
    statement = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    return eventually(lambda: engine.fetch(statement)[0][0])


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_database_that_is_down_fails_the_task(server, postgresql, outbox, chunks_of_50):
    """Nothing is doubled when the task runs again."""
    queue = postgresql.create_queue()
    create_outbox(postgresql)
    given = options(postgresql, outbox=outbox)
    with stamina.set_testing(True, attempts=3), steps():  # as often, without the pauses
        try:
            with (
                at_step(fail_points.ROWS_INSERTED, lambda: server.stop(immediate=True), on={2}) as stops,
                pytest.raises(ConnectionLost, match=r"was lost|No database answers"),
            ):
                send(given, batch(range(230)))
            with pytest.raises(ConnectionLost, match="No database answers"):
                send(given, batch(range(230)))
        finally:
            server.start()
        assert stops == [2]
        assert ids_in(queue) == message_ids(range(50))
        assert send(given, batch(range(230))) == (180, 50)
    assert ids_in(queue) == message_ids(range(230))


def test_a_database_that_comes_back_soon_is_waited_for(server, postgresql, chunks_of_50):
    queue = postgresql.create_queue()
    create_outbox(postgresql)
    with (
        steps(),
        at_step(fail_points.ROWS_INSERTED, lambda: restart(server, immediate=False), on={2}) as restarts,
    ):
        assert send(options(postgresql), batch(range(230))) == (230, 0)
    assert restarts == [2]
    assert ids_in(queue) == message_ids(range(230))


# -- cleaning up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_cleaning_blocks_no_sender_and_doubles_nothing(engine, queue, sent, outbox, chunks_of_50):
    """Four senders with a short patience, one half of their messages shared,
    and a cleanup that never rests.
    """
    old = [f"old {number}" for number in range(20_000)]
    given = options(engine, outbox=outbox, lockTimeout="5s")
    done = threading.Event()

    def clean():
        cleaned = 0
        with connect(Target.of(given)) as connection:
            while not done.is_set() or cleaned < len(old):
                with connection.transaction():
                    cleaned += OutboxTable(connection, "Sales").clean(timedelta(days=7))
        return cleaned

    with connect(Target.of(given)) as connection, connection.transaction():
        OutboxTable(connection, "Sales").add(old)
    sent.age(timedelta(days=8))
    with ThreadPoolExecutor(5) as pool:
        cleaning = pool.submit(clean)
        try:
            senders = [
                pool.submit(send, given, batch(range(start, start + 1_000)))
                for start in (0, 500, 1_000, 1_500)
            ]
            gone = [sender.result(120) for sender in senders]
        finally:
            done.set()
        assert cleaning.result(60) == len(old)
    assert sum(each[0] for each in gone) == 2_500
    assert sorted_ids(queue) == message_ids(range(2_500))
    assert sent.message_ids() == message_ids(range(2_500))
