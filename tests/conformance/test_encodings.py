"""Text is the same whatever the url says, and a database that lacks letters loses none of a message.

PostgreSQL only.
"""

import itertools
import json
from datetime import timedelta
from urllib.parse import quote

import psycopg
import pytest

from sqlqueue_spark.administration import (
    error_queue,
    event_subscriptions,
    failed_retry,
    outbox_tables,
    queue_peek,
    queue_restore,
    queue_tables,
)
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError
from sqlqueue_spark.inspection.queue_findings import findings
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.tables import queue_table
from tests.support.delayed import DelayedRows, move
from tests.support.driver import streaming
from tests.support.error_rows import full
from tests.support.forwarding import forwarding, staged
from tests.support.messages import body, message_id, message_ids, row_id
from tests.support.outcomes import outcome, outgoing, settle
from tests.support.postgresql import PostgresEngine, fresh_database
from tests.support.sending import OUTBOXES, batch, ids_in, options, send

#: Letters that LATIN1 has, and letters that it has not.
LATIN, FOREIGN = "é", "漢€\U0001f600"
_numbers = itertools.count(1)


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def database(request, server):
    """A new database with another encoding than UTF-8, and in it the queues orders, billing and error."""
    yield from _made(server, request.param)


@pytest.fixture
def latin(server):
    yield from _made(server, "LATIN1")


@pytest.fixture
def ascii_only(server):
    yield from _made(server, "SQL_ASCII")


def _made(server, encoding):
    with fresh_database(server.url(), f"encoded_{next(_numbers)}", encoding=encoding) as url:
        engine = PostgresEngine(url)
        for name in ("orders", "billing", "error"):
            engine.create_queue(name)
        outbox_tables.create(ConnectionOptions.parse({"url": url}), "Sales")
        yield engine


def in_utf_8(engine):
    """The database to look into: the tests' own sessions have its encoding, if nothing else is said."""
    return PostgresEngine(f"{engine.url}?client_encoding=UTF8")


def queue_of(engine, name="orders"):
    return in_utf_8(engine).queue(name)


def with_header(*texts):
    return [json.dumps({"text": text}, ensure_ascii=False) for text in texts]


def texts_in(queue):
    return [json.loads(row.headers)["text"] for row in queue.rows()]


# -- the url -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["client_encoding=latin1", "options=" + quote("-c client_encoding=latin1")])
def test_text_is_the_same_whatever_the_url_says(postgresql, word):
    queue = postgresql.create_queue()
    billing = postgresql.create_queue("billing")
    given = ConnectionOptions.parse({"url": f"{postgresql.url}?{word}"})
    draft = queue_tables.Draft(body=b"{}", message_type="A", headers={"text": LATIN + FOREIGN})
    queue_tables.send(given, "orders", draft)
    assert texts_in(queue) == [LATIN + FOREIGN]
    (seen,) = queue_peek.look(given, "orders")
    assert json.loads(seen.headers or "")["text"] == LATIN + FOREIGN
    with streaming(postgresql, queue, url=given.url) as stream:
        stream.trigger()
        assert [json.loads(message["Headers"])["text"] for message in stream.messages()] == [LATIN + FOREIGN]
    assert billing.count() == 0


def test_text_is_the_same_whatever_the_machine_and_the_login_say(postgresql, monkeypatch):
    postgresql.create_queue()
    name = postgresql.url.rpartition("/")[2]
    postgresql.execute(f'ALTER DATABASE "{name}" SET client_encoding = latin1')
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    send(options(postgresql, outbox="none"), batch([1], Headers=with_header(LATIN + FOREIGN)))
    assert texts_in(queue_of(postgresql)) == [LATIN + FOREIGN]


# -- letters that the database cannot hold --------------------------------------------------------


@pytest.mark.parametrize("outbox", [*OUTBOXES, "none"])
def test_no_letter_of_a_message_is_lost(database, outbox):
    rows = batch(range(3), Headers=with_header("a", LATIN, FOREIGN), MessageId=["a", LATIN, FOREIGN])
    given = options(database, outbox=outbox, errorQueue="error")
    assert send(given, rows) == (3, 0)
    assert texts_in(queue_of(database)) == ["a", LATIN, FOREIGN]
    assert [row.body for row in queue_of(database).rows()] == [body(number) for number in range(3)]
    assert send(given, rows) == ((3, 0) if outbox == "none" else (0, 3))
    assert queue_of(database, "error").count() == 0


def test_letters_go_through_an_atomic_pipeline(database):
    queue_tables_send(database, LATIN, FOREIGN)
    with forwarding(database, queue_of(database), url=database.url) as stream:
        stream.drain()
    assert (texts_in(queue_of(database, "billing")), staged(in_utf_8(database))) == ([LATIN, FOREIGN], 0)


def queue_tables_send(engine, *texts):
    for text in texts:
        draft = queue_tables.Draft(body=b"{}", message_type="A", headers={"text": text})
        queue_tables.send(ConnectionOptions.parse({"url": engine.url}), "orders", draft)


def test_letters_wait_and_are_delivered(database):
    waiting = DelayedRows(database, "Sales").create()
    rows = batch(range(2), Headers=with_header(LATIN, FOREIGN), DelayDeliveryFor=timedelta(minutes=30))
    send(options(database), rows)
    waiting.make_due("2 hours")
    assert move(database, "Sales") == (2, 0)
    assert texts_in(queue_of(database)) == [LATIN, FOREIGN]


def test_a_delayed_message_that_cannot_be_delivered_fails(database):
    """Its failure names what it could not reach."""
    DelayedRows(database, "Sales").create()
    address = f'"public"."{FOREIGN}"'
    text = json.dumps({"text": FOREIGN, FORWARD_DESTINATION: address})
    database.execute(
        f"INSERT INTO \"Sales.Delayed\" (headers, body, due) VALUES ('{text}', '', now() - interval '1 day')"
    )
    assert move(database, "Sales") == (0, 1)
    failed = [json.loads(row.headers) for row in queue_of(database, "error").rows()]
    assert [each["text"] for each in failed] == [FOREIGN]
    assert [each["NServiceBus.FailedQ"] for each in failed] == [address]


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("odd", [FOREIGN, "\0"], ids=["foreign", "NUL"])
def test_an_address_that_no_table_can_have_fails_its_message_alone(database, outbox, odd):
    more = {"endpoint": "Sales", "outbox": outbox, "errorQueue": "error"}
    rows = [
        outcome(1, outgoing("billing", 10)),
        outcome(2, outgoing(f"gone{odd}", 11)),
        outcome(3, outgoing("billing", 12)),
    ]
    assert settle(SinkOptions.parse({"url": database.url, **more}), *rows) == (2, 0, 1)
    assert queue_of(database, "billing").count() == 2
    (failed,) = (json.loads(row.headers) for row in queue_of(database, "error").rows())
    assert failed["NServiceBus.FailedQ"] == '"public"."orders"'


def test_a_row_in_transit_to_no_table_goes_to_the_error_queue(database):
    for number, to in enumerate([FOREIGN, "\0"]):
        text = json.dumps(
            {"NServiceBus.MessageId": message_id(number), FORWARD_DESTINATION: f'"public"."{to}"'}
        )
        queue_of(database).insert_row(id=row_id(number), headers=text, body=body(number))
    with streaming(database, queue_of(database), url=database.url, errorQueue="error") as stream:
        assert not stream.trigger()
    assert (queue_of(database).count(), sorted(ids_in(queue_of(database, "error")))) == (
        0,
        message_ids(range(2)),
    )


def test_an_option_that_no_table_can_have_is_said(database):
    with pytest.raises(QueueError, match="There is no queue table "):
        list(queue_peek.look(ConnectionOptions.parse({"url": database.url}), FOREIGN))


def test_events_of_a_type_that_has_foreign_letters_have_no_subscribers(database):
    given = ConnectionOptions.parse({"url": database.url})
    event_subscriptions.subscriptions(given, create=True)
    event_subscriptions.subscribe(given, "billing", [f"Shop.{LATIN}"], endpoint="Billing")
    sink = SinkOptions.parse({"url": database.url, "endpoint": "Sales"})
    rows = batch(range(2), EventType=[f"Shop.{FOREIGN}", f"Shop.{LATIN}"])
    send(sink, rows)
    assert ids_in(queue_of(database, "billing")) == message_ids([1])


def test_a_subscription_that_the_database_cannot_hold_is_refused(latin):
    given = ConnectionOptions.parse({"url": latin.url})
    event_subscriptions.subscriptions(given, create=True)
    with pytest.raises(
        ConfigurationError, match=r"^The database keeps texts in LATIN1, which has no way to write "
    ):
        event_subscriptions.subscribe(given, "billing", [f"Shop.{FOREIGN}"], endpoint="Billing")


def test_a_queue_that_the_database_cannot_hold_is_refused(latin):
    with pytest.raises(
        SqlQueueError, match=r"cannot hold a character while .*; leave it out, or use a database"
    ):
        queue_tables.create(ConnectionOptions.parse({"url": latin.url}), [FOREIGN])


def test_letters_of_the_database_reach_the_stream(latin):
    for number, text in enumerate(with_header(LATIN, "a")):
        queue_of(latin).insert_row(id=row_id(number), headers=text, body=b"x")
    with streaming(latin, queue_of(latin), url=latin.url) as stream:
        stream.trigger()
        assert [json.loads(message["Headers"])["text"] for message in stream.messages()] == [LATIN, "a"]


def test_a_failed_message_is_put_back_with_its_letters(database):
    given = ConnectionOptions.parse({"url": database.url})
    text = json.dumps({"text": FOREIGN, "NServiceBus.FailedQ": full(database)})
    queue_of(database, "error").insert_row(id=row_id(1), headers=text, body=b"x")
    gone = json.dumps({"text": FOREIGN, "NServiceBus.FailedQ": f'"public"."{FOREIGN}"'})
    queue_of(database, "error").insert_row(id=row_id(2), headers=gone, body=b"x")
    assert len([*error_queue.look(given, "error", Selection())]) == 2
    done = failed_retry.retry(given, "error", Selection())
    assert (texts_in(queue_of(database)), done.stayed.total()) == ([FOREIGN], 1)


def test_lines_keep_their_letters(database, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text(json.dumps({"headers": {"text": LATIN + FOREIGN}, "body": "x"}) + "\n")
    with lines.open("rb") as source:
        given = queue_restore.Input(source=source, name="lines", again=True)
        queue_restore.restore(ConnectionOptions.parse({"url": database.url}), "orders", given)
    assert texts_in(queue_of(database)) == [LATIN + FOREIGN]


# -- bytes that are no text ----------------------------------------------------------------------


@pytest.fixture
def spoilt(ascii_only):
    """The queue orders has messages 0 to 2; the headers of 1 have a byte that is no UTF-8."""
    with psycopg.connect(ascii_only.url) as connection:
        for number in range(3):
            text = json.dumps({"NServiceBus.MessageId": message_id(number), "text": "caf@"}).encode()
            connection.execute(
                b"INSERT INTO orders (id, headers, body) VALUES ('%b', E'%b', '%b')"
                % (
                    str(row_id(number)).encode(),
                    text.replace(b"@", rb"\xe9" if number == 1 else b"e"),
                    body(number),
                )
            )
    return ascii_only


RAW = f'{{"NServiceBus.MessageId": "{message_id(1)}", "text": "caf\\xe9"}}'


def test_bytes_that_are_no_text_reach_the_stream_as_escapes(spoilt):
    """No reader takes them for JSON."""
    with streaming(spoilt, queue_of(spoilt), url=spoilt.url) as stream:
        stream.trigger()
        assert [message["Headers"] for message in stream.messages()][1] == RAW


@pytest.mark.parametrize("mode", ["sendsAtomicWithReceive", "receiveOnly", "none"])
def test_a_row_with_bytes_that_are_no_text_is_poison(spoilt, mode):
    with forwarding(spoilt, queue_of(spoilt), url=spoilt.url, transactionMode=mode) as stream:
        stream.outbox = "none"
        stream.sink_says = {"errorQueue": "error"}
        stream.drain()
    assert ids_in(queue_of(spoilt, "billing")) == message_ids([0, 2])
    (failed,) = (json.loads(row.headers) for row in queue_of(spoilt, "error").rows())
    assert failed["sqlqueue.RawHeaders"] == RAW
    assert [row.body for row in queue_of(spoilt, "error").rows()] == [body(1)]


def test_commands_show_bytes_that_are_no_text(spoilt):
    given = ConnectionOptions.parse({"url": spoilt.url})
    assert [message.headers for message in queue_peek.look(given, "orders")][1] == RAW


def test_a_delayed_row_keeps_bytes_that_are_no_text(ascii_only):
    """The server moves them, and they never come to us."""
    DelayedRows(ascii_only, "Sales").create()
    with psycopg.connect(ascii_only.url) as connection:
        connection.execute(
            b'INSERT INTO "Sales.Delayed" (headers, body, due) VALUES '
            rb"""(E'{"a":"\xe9","NServiceBus.SqlServer.ForwardDestination":"orders"}', '', '2020-01-01')"""
        )
    assert move(ascii_only, "Sales") == (1, 0)
    assert ascii_only.fetch("SELECT convert_to(headers, 'SQL_ASCII') FROM orders") == [(b'{"a":"\xe9"}',)]


# -- what people are told ------------------------------------------------------------------------


def test_another_encoding_is_a_finding(database):
    name, encoding = database.url.rpartition("/")[2], _encoding(database)
    assert [each.message for each in _found(database)] == [
        f"The database {name!r} keeps texts in {encoding}, not in UTF8: {_SAID[encoding]}"
    ]


_SAID = {
    "LATIN1": "headers name letters beyond ASCII by escapes of JSON, and no queue or subscription can have a "
    "letter that the encoding lacks.",
    "SQL_ASCII": "it takes any bytes for a text, and a row whose headers are no UTF-8 is poison: it goes to "
    "the error queue.",
}


def test_utf_8_is_no_finding(postgresql):
    postgresql.create_queue()
    assert _found(postgresql) == []


def _encoding(engine):
    return engine.fetch("SELECT current_setting('server_encoding')::bytea")[0][0].decode()


def _found(engine):
    with connect(Target(url=engine.url)) as connection, connection.transaction():
        naming = ConnectionOptions.parse({"url": engine.url}).naming(connection.dialect)
        found = queue_table.find(connection, naming.table("orders"))
        assert found is not None
        return findings(connection, found)
