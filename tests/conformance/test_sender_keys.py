"""What an outbox remembers of a send: message id and final address,
whatever else changes between two tries.
"""

import contextlib
import hashlib
import json
from typing import Any

import psycopg
import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.tables.outbox import Outbox, OutboxTable
from tests.support.kept_connections import forget
from tests.support.messages import message_id, message_ids
from tests.support.outboxes import OutboxRows
from tests.support.postgresql import PostgresEngine
from tests.support.sending import OUTBOXES, PLAIN, batch, composed, ids_in, options, send

pytestmark = pytest.mark.needs("reads_json_as_documented")

#: As version 0.1.0 signed its rows.
EARLIER = "sqlqueue 0.1.0"


@pytest.fixture
def sent(engine, queue):
    """The outbox table of the endpoint Sales beside the queue orders, both empty."""
    return create_outbox(engine)


def create_outbox(engine):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return OutboxRows(engine)


def earlier_copy(message_id, queue, engine):
    """By what version 0.1.0 knew a message to another queue than that of its option."""
    with connect(Target.of(ConnectionOptions.parse({"url": engine.url}))) as connection:
        database = connection.execute(connection.dialect.statement("database"))[0][0]
    copy = ">" + hashlib.sha256(f"{queue.address}@[{database}]".encode()).hexdigest()[:16]
    if len(message_id) + len(copy) > 200:
        message_id = hashlib.sha256(message_id.encode()).hexdigest()
    return message_id + copy


# -- what may change between two tries ------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_another_option_queue_gets_the_messages_too(engine, queue, sent, outbox):
    billing = engine.create_queue("billing")
    for to, done in (("orders", (9, 0)), ("billing", (9, 0)), ("orders", (0, 9)), ("billing", (0, 9))):
        assert send(options(engine, outbox=outbox, queue=to), batch(range(9))) == done
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(9)), message_ids(range(9)))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_retry_under_another_option_queue_sends_once(engine, queue, sent, outbox):
    """Half of the batch goes to each queue by name; the first try ends after three messages of six."""
    shipping = engine.create_queue("shipping")
    rows = batch(range(6), Destination=["orders", "shipping"] * 3)
    assert send(options(engine, outbox=outbox, queue="orders"), rows.slice(0, 3)) == (3, 0)
    assert send(options(engine, outbox=outbox, queue="shipping"), rows) == (3, 3)
    assert send(options(engine, outbox=outbox, queue="elsewhere"), rows) == (0, 6)
    assert (ids_in(queue), ids_in(shipping)) == (message_ids([0, 2, 4]), message_ids([1, 3, 5]))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_renamed_database_gets_no_message_again(server, postgresql, outbox):
    queue = postgresql.create_queue()
    billing = postgresql.create_queue("billing")
    create_outbox(postgresql)
    rows = batch([*range(5), *range(5)], Destination=["orders"] * 5 + ["billing"] * 5)
    assert send(options(postgresql, outbox=outbox), rows) == (10, 0)
    name = postgresql.url.rpartition("/")[2]
    renamed = PostgresEngine(f"{postgresql.url}_2")

    def rename(before, after):
        forget(postgresql.url)
        forget(renamed.url)
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{before}" RENAME TO "{after}"')

    rename(name, f"{name}_2")
    try:
        assert send(options(renamed, outbox=outbox), rows) == (0, 10)
        own = batch(range(6), Destination=f"orders@[public]@[{name}_2]")
        assert send(options(renamed, outbox=outbox), own) == (1, 5)
    finally:
        rename(f"{name}_2", name)
    assert (ids_in(queue), ids_in(billing)) == (message_ids(range(6)), message_ids(range(5)))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_another_schema_makes_another_address(engine, queue, sent, outbox):
    """For a queue of the same name."""
    far = engine.create_queue(schema="far")
    to = [queue.address, far.address, "orders"]
    assert send(options(engine, outbox=outbox), batch([1, 1, 1], Destination=to)) == (2, 1)
    assert (ids_in(queue), ids_in(far)) == (message_ids([1]), message_ids([1]))


# -- any id ---------------------------------------------------------------------------------------

ODD = [
    "a\0b",
    "ab",
    "\0",
    "x" * 201,
    "x" * 202,
    "ß" * 5_000,
    "Order 1",
    "order 1",
    "Örder 1",
    "Order 1 ",
    '{"',
    "\\",
    "a>b",
    "'; --",
]


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("given", ["column", "header"])
def test_a_message_is_sent_once_whatever_its_id(engine, queue, sent, outbox, given):
    billing = engine.create_queue("billing")
    headers = [json.dumps({"NServiceBus.MessageId": each}) for each in ODD]
    columns: dict[str, Any] = (
        {"MessageId": ODD} if given == "column" else {"MessageId": None, "Headers": headers}
    )
    for done in ((len(ODD), 0), (0, len(ODD))):
        for to in ("orders", "billing"):
            rows = batch(range(len(ODD)), **columns, Destination=to)
            assert send(options(engine, outbox=outbox), rows) == done
    assert (ids_in(queue), ids_in(billing)) == (ODD, ODD)
    correlated = [json.loads(row.headers)["NServiceBus.CorrelationId"] for row in queue.rows()]
    assert correlated == ODD


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_ids_equal_by_collation_are_two_messages(postgresql, outbox):
    queue = postgresql.create_queue()
    sent = create_outbox(postgresql)
    # As a collation would have it, of which there is none in the server from the wheel.
    postgresql.execute(f'CREATE UNIQUE INDEX alike ON {sent.table} (lower("MessageId"))')
    ids = [
        "order",
        "Order",
        "ORDER",
        "10000000-0000-4000-8000-00000000000A",
        "10000000-0000-4000-8000-00000000000a",
    ]
    rows = batch(range(5), MessageId=ids)
    assert [send(options(postgresql, outbox=outbox), rows) for _ in range(2)] == [(5, 0), (0, 5)]
    assert ids_in(queue) == ids


# -- what version 0.1.0 remembered ----------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_what_version_0_1_has_sent_is_not_sent_again(engine, queue, sent, outbox):
    """To the option queue it wrote the bare id, to others a mark of the queue;
    ids of an odd form and length too.
    """
    billing = engine.create_queue("billing")
    ids = [*message_ids(range(4)), "Größe", "m" * 200]
    for each in ids:
        sent.insert(each, version=EARLIER)
        sent.insert(earlier_copy(each, billing, engine), version=EARLIER)
    rows = batch(
        range(14),
        MessageId=[*ids, message_id(9), *ids, message_id(9)],
        Destination=["orders"] * 7 + ["billing"] * 7,
    )
    given = options(engine, outbox=outbox)
    assert [send(given, rows) for _ in range(2)] == [(2, 12), (0, 14)]
    assert (ids_in(queue), ids_in(billing)) == (message_ids([9]), message_ids([9]))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_what_version_0_1_sent_elsewhere_is_sent_here(engine, queue, sent, outbox):
    billing = engine.create_queue("billing")
    sent.insert(message_id(1), version=EARLIER)  # to the option queue
    sent.insert(earlier_copy(message_id(2), billing, engine), version=EARLIER)
    rows = batch([1, 2, 1, 2], Destination=["billing", "orders", "orders", "billing"])
    assert send(options(engine, outbox=outbox), rows) == (2, 2)
    assert (ids_in(queue), ids_in(billing)) == (message_ids([2]), message_ids([1]))


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_an_id_that_others_have_remembered_is_no_send(engine, queue, sent, outbox):
    """A .NET endpoint, and a function with a table of its own, whose transactions they were."""
    sent.insert("of version 0.1", version=EARLIER)
    sent.insert(message_id(1))
    with contextlib.closing(sending_connection(engine)) as connection:
        assert Outbox("Sales").process(connection, [message_id(2)]) == [message_id(2)]
        connection.commit()
    assert send(options(engine, outbox=outbox), batch(range(4))) == (4, 0)
    assert ids_in(queue) == message_ids(range(4))


def sending_connection(engine):
    if engine.name == "postgresql":
        return psycopg.connect(engine.url)
    from tests.support.sqlserver import opened

    return opened(engine.url)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_keys_of_version_0_1_are_not_sought_in_vain(engine, queue, sent, outbox, monkeypatch):
    """Where that version left nothing."""
    asked = []

    def seen_of(_, ids, version):
        asked.append((*ids, version))
        return set()

    monkeypatch.setattr(OutboxTable, "seen_of", seen_of)
    given = options(engine, outbox=outbox)
    prepare(found := Destinations(given), PLAIN, ["orders"])
    sent.insert("old", version=EARLIER)
    for known in (found, Destinations(given)):  # as the driver found it before, and as a worker finds it now
        with Sender(known) as sender:
            sender.send(composed(given, batch([7])))
    old = (message_id(7), earlier_copy(message_id(7), queue, engine), EARLIER)
    assert asked == [old]


def test_one_look_tells_whether_version_0_1_left_rows(postgresql):
    sent = create_outbox(postgresql)

    def fill(count, version, age):
        postgresql.execute(
            f"INSERT INTO {sent.table} SELECT '{version} ' || n, true, "
            f"now() AT TIME ZONE 'UTC' - interval '{age}', '{version}', "
            f"'[]' FROM generate_series(1, {count}) AS n"
        )

    def found():
        with connect(Target.of(options(postgresql))) as connection, connection.transaction():
            return OutboxTable(connection, "Sales").may_hold(EARLIER)

    steps = [found()]
    for count, version, age in [
        (999, "7.0.0.0", "9 days"),  # a .NET endpoint's, and nothing behind them
        (1, "7.0.1.0", "9 days"),  # what is behind this number of rows is not known
        (1, "sqlqueue 0.2.0", "10 days"),  # ours, and none of version 0.1 before it
        (1, EARLIER, "11 days"),
    ]:
        fill(count, version, age)
        steps.append(found())
    assert steps == [False, False, True, False, True]
    postgresql.execute(f"TRUNCATE {sent.table}")
    assert found() is False


def test_rows_of_version_0_2_are_looked_for_behind_many_of_version_0_1(postgresql):
    sent = create_outbox(postgresql)
    found = []
    for count, version, age in [
        (999, EARLIER, "9 days"),
        (1, EARLIER, "8 days"),
        (1, "sqlqueue 0.3.0", "9 days"),
    ]:
        postgresql.execute(
            f"INSERT INTO {sent.table} SELECT '{version} {age} ' || n, true, "
            f"now() AT TIME ZONE 'UTC' - interval '{age}', "
            f"'{version}', '[]' FROM generate_series(1, {count}) AS n"
        )
        with connect(Target.of(options(postgresql))) as connection, connection.transaction():
            found.append(OutboxTable(connection, "Sales").may_hold("sqlqueue 0.2.0"))
    # Fewer rows are all that there are; rows of a later version are behind those of 0.2.0.
    assert found == [False, True, False]
