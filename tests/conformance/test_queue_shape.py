"""A table that cannot be a queue is refused by all that opens it, also while it is empty,
before it does more.
"""

from pathlib import Path

import pytest

from sqlqueue_spark.administration import (
    delayed_tables,
    error_queue,
    event_subscriptions,
    queue_follow,
    queue_peek,
    queue_restore,
    queue_tables,
)
from sqlqueue_spark.administration.database_overview import overview
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline import check_ready, create_missing
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.reading.peek import check_visible, plan_peek, present_rows
from tests.support.engines import with_catalog
from tests.support.waiting import eventually

ANEW = "create a table of another name with sqlqueue create and move the rows, or correct the queue name."


def options(engine):
    return ConnectionOptions.parse({"url": engine.url})


def source(engine, **more):
    return SourceOptions.parse({"url": engine.url, "queue": "orders", **more})


def several(engine):
    return SourceOptions.parse({"url": engine.url, "queues": '["orders"]'})


def sink(engine, **more):
    return SinkOptions.parse({"url": engine.url, "outbox": "none", **more})


def received(receiver):
    try:
        return receiver.latest(None, 100)
    finally:
        receiver.close()


def sent_lines(engine):
    with Path("/dev/null").open("rb") as lines:
        given = queue_restore.Input(source=lines, name="no lines", again=True)
        queue_restore.restore(options(engine), "orders", given)


#: Whatever opens the queue ``orders``, or sends to it.
DOORS = {
    "a stream": lambda engine: received(Receiver(source(engine))),
    "a stream whose workers take": lambda engine: received(Receiver(source(engine, transactionMode="none"))),
    "a stream over a list": lambda engine: received(Receiver(several(engine))),
    "a batch read": lambda engine: plan_peek(source(engine)),
    "a copy into an archive": lambda engine: [*present_rows(source(engine))],
    "a job": lambda engine: check_ready(source(engine)),
    "a job that creates": lambda engine: create_missing(source(engine)),
    "a job that copies": lambda engine: check_visible(source(engine)),
    "a job's destination": lambda engine: check_ready(
        source(engine, queue="other"), sink(engine, queue="orders")
    ),
    "a job's error queue": lambda engine: check_ready(source(engine, queue="other", errorQueue="orders")),
    "create": lambda engine: queue_tables.create(options(engine), ["orders"]),
    "peek": lambda engine: [*queue_peek.look(options(engine), "orders", count=1)],
    "peek --follow": lambda engine: next(queue_follow.follow(options(engine), "orders", MessageSelection())),
    "length": lambda engine: queue_tables.length(options(engine), "orders"),
    "send": lambda engine: queue_tables.send(options(engine), "orders", queue_tables.Draft(message_type="T")),
    "send --from": sent_lines,
    "purge": lambda engine: queue_tables.purge(options(engine), "orders"),
    "errors list": lambda engine: [*error_queue.look(options(engine), "orders", Selection())],
    "subscribe": lambda engine: event_subscriptions.subscribe(options(engine), "orders", ["T"], create=True),
    "delayed run": lambda engine: delayed_tables.deliver(options(engine), "other", "orders"),
}


def refusal(action):
    with pytest.raises(QueueError) as caught:
        action()
    return str(caught.value)


def test_a_column_that_is_gone_from_an_empty_queue_is_told_by_whatever_opens_it(engine):
    engine.create_queue("other")
    delayed_tables.create(options(engine), "other")
    engine.create_queue().execute("ALTER TABLE {table} DROP COLUMN Id")
    column = {"postgresql": "id (uuid)", "sqlserver": "Id (uniqueidentifier)"}[engine.name]
    said = f"{with_catalog(engine, 'orders')} has no column {column}; {ANEW}"
    told = {door: refusal(lambda open_=open_: open_(engine)) for door, open_ in DOORS.items()}
    assert told == dict.fromkeys(DOORS, said)


def test_a_copy_whose_rows_get_no_numbers_is_told_by_whatever_opens_it(engine):
    """A message that is sent there stands in the table, and no receiver ever sees it."""
    engine.create_queue("other")
    delayed_tables.create(options(engine), "other")
    engine.create_queue("before").insert(2)
    copy = {
        "postgresql": "CREATE TABLE orders AS TABLE before",
        "sqlserver": "SELECT Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body, "
        "CAST(RowVersion AS bigint) + NULLIF(0, 1) AS RowVersion INTO orders FROM before",
    }
    engine.execute(copy[engine.name])
    column = {"postgresql": "seq", "sqlserver": "RowVersion"}[engine.name]
    said = (
        f"The rows of {with_catalog(engine, 'orders')} may have no number: {column} may be NULL and nothing "
        f"fills it, and no receiver sees a row without a number; make it an identity, or {ANEW}"
    )
    told = {door: refusal(lambda open_=open_: open_(engine)) for door, open_ in DOORS.items()}
    assert told == dict.fromkeys(DOORS, said)


def test_numbers_that_may_be_null_and_are_filled_are_no_fault(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key, ALTER seq DROP NOT NULL")
    queue.insert(3)
    assert queue_tables.length(options(postgresql), "orders").rows == 3


#: What a column becomes, and how its type is called.
TYPES = {
    "postgresql": [
        ("body", "text", "USING convert_from(body, 'UTF8')", "bytea"),
        ("body", "character varying", "USING convert_from(body, 'UTF8')", "bytea"),
        ("body", "jsonb", "USING convert_from(body, 'UTF8')::jsonb", "bytea"),
        ("headers", "bytea", "USING convert_to(headers, 'UTF8')", "text or character varying"),
    ],
    "sqlserver": [
        ("Body", "nvarchar(max)", "", "varbinary(max)"),
        ("Body", "varchar(max)", "", "varbinary(max)"),
        ("Body", "text", "", "varbinary(max)"),
    ],
}


def retyped(engine, queue, column, to, how):
    if engine.name == "postgresql":
        queue.execute(f"ALTER TABLE {{table}} ALTER COLUMN {column} TYPE {to} {how}")
        return
    queue.execute(f"ALTER TABLE {{table}} DROP COLUMN {column}")
    queue.execute(f"ALTER TABLE {{table}} ADD {column} {to}")


@pytest.mark.tier("all")
@pytest.mark.parametrize("number", range(4))
def test_headers_that_are_no_text_and_a_body_that_is_no_bytes_are_refused_and_no_row_is_taken(engine, number):
    if number >= len(TYPES[engine.name]):
        return
    column, to, how, wanted = TYPES[engine.name][number]
    queue = engine.create_queue()
    queue.insert(3)
    retyped(engine, queue, column, to, how)
    assert refusal(lambda: received(Receiver(source(engine)))) == (
        f"The column {column} of {with_catalog(engine, 'orders')} is {to}, not {wanted}; {ANEW}"
    )
    assert queue.count() == 3


@pytest.mark.tier("all")
def test_a_type_of_the_owners_own_made_of_bytes_is_a_body(postgresql):
    postgresql.execute("CREATE DOMAIN payload AS bytea")
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER COLUMN body TYPE payload")
    queue.insert(3)
    assert received(Receiver(source(postgresql))) is not None


@pytest.mark.tier("all")
def test_a_column_that_goes_while_a_stream_has_no_connection_is_told_at_the_next(postgresql):
    queue = postgresql.create_queue()
    receiver = Receiver(source(postgresql))
    try:
        assert receiver.latest(None, 100) is None
        queue.execute("ALTER TABLE {table} DROP COLUMN id")
        postgresql.cut_connections()
        with pytest.raises(QueueError, match=r"^orders@\[public\]@\[\w+\] has no column id \(uuid\); "):
            eventually(lambda: receiver.latest(None, 100))  # one look finds the connection cut
    finally:
        receiver.close()


@pytest.mark.tier("all")
def test_of_several_queues_the_misshapen_one_is_left_alone_and_the_others_go_on(postgresql, caplog):
    for name in ("orders", "billing"):
        postgresql.create_queue(name).insert(3)
    shape = "ALTER TABLE {table} ALTER COLUMN body TYPE text USING convert_from(body, 'UTF8')"
    postgresql.queue("orders").execute(shape)
    receiver = Receiver(SourceOptions.parse({"url": postgresql.url, "queuePattern": ".*"}))
    try:
        taken = receiver.latest(None, 100)
        assert taken is not None
        assert [part.queue for part in taken.parts] == [with_catalog(postgresql, "billing")]
    finally:
        receiver.close()
    (said,) = [each.getMessage() for each in caplog.records if "queue_left_alone" in each.getMessage()]
    orders = with_catalog(postgresql, "orders")
    assert said == f"queue_left_alone queue={orders}: The column body of {orders} is text, not bytea; {ANEW}"


@pytest.mark.tier("all")
def test_a_table_of_delayed_messages_whose_body_is_text_is_refused(postgresql):
    postgresql.create_queue("other")
    postgresql.create_queue("error")
    delayed_tables.create(options(postgresql), "other")
    postgresql.execute(
        "ALTER TABLE \"other.Delayed\" ALTER COLUMN body TYPE text USING convert_from(body, 'UTF8')"
    )
    said = f"The column body of {with_catalog(postgresql, 'other.Delayed')} is text, not bytea; {ANEW}"
    doors = [
        lambda: delayed_tables.deliver(options(postgresql), "other", "error"),
        lambda: delayed_tables.length(options(postgresql), "other"),
        lambda: check_ready(source(postgresql, queue="other"), retries=True),
    ]
    assert [refusal(door) for door in doors] == [said] * 3


def test_a_table_of_delayed_messages_is_no_queue(engine):
    """And no other table is to be made of it."""
    owner = engine.create_queue().address
    made = delayed_tables.create(options(engine), "orders")
    with pytest.raises(QueueError) as caught:
        queue_tables.length(options(engine), "orders.Delayed")
    assert str(caught.value) == (
        f"{made.table} is a table of delayed messages; name its queue, or look at it with: sqlqueue delayed "
        f"length '{owner}'."
    )


def test_a_queue_that_has_a_further_column_named_due_is_a_queue(engine):
    """By its name, by a pattern, in the list of tables, and to a sender, who leaves that column alone."""
    queue = engine.create_queue()
    queue.execute("ALTER TABLE {table} ADD due int")
    queue_tables.send(options(engine), "orders", queue_tables.Draft(message_type="T"))
    named = received(Receiver(source(engine)))
    found = received(Receiver(SourceOptions.parse({"url": engine.url, "queuePattern": "orders"})))
    assert (named is None, found is None) == (False, False)
    (listed,) = overview(options(engine))
    assert (listed.kind, listed.rows) == ("queue", 1)
