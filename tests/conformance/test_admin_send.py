"""Sending: one message with everything a receiver expects, or a load of them,
needing no more right than INSERT.
"""

import json
import re
import socket
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import sqlqueue_spark
from sqlqueue_spark.administration import queue_peek, queue_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError
from sqlqueue_spark.messages.message import parse_time
from sqlqueue_spark.options import ConnectionOptions
from tests.conftest import GUARDED_PASSWORD
from tests.support.clock import Clock
from tests.support.engines import full_address
from tests.support.pages import page
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

TYPE = "Shop.Messages.OrderPlaced, Shop.Messages"


def options(engine):
    return ConnectionOptions.parse({"url": engine.url})


def headers_of(row):
    headers = json.loads(row.headers)
    assert isinstance(headers, dict)
    return headers


def database_clock(engine):
    says = {"postgresql": "SELECT now() AT TIME ZONE 'UTC'", "sqlserver": "SELECT SYSUTCDATETIME()"}
    now = engine.fetch(says[engine.name])[0][0]
    assert isinstance(now, datetime)
    return now


def test_a_message_has_what_a_good_sender_fills_in(engine, queue):
    before = datetime.now(UTC)
    message_id = queue_tables.send(
        options(engine), "orders", queue_tables.Draft(body=b'{"a":1}', message_type=TYPE)
    )
    (row,) = queue.rows()
    headers = headers_of(row)
    sent, conversation = headers.pop("NServiceBus.TimeSent"), headers.pop("NServiceBus.ConversationId")
    assert headers == {
        "NServiceBus.MessageId": message_id,
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.CorrelationId": message_id,
        "NServiceBus.OriginatingMachine": socket.gethostname(),
        "NServiceBus.OriginatingEndpoint": "sqlqueue",
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": TYPE,
    }
    moment = parse_time(sent)
    assert moment is not None
    assert before <= moment <= datetime.now(UTC)
    ids = {uuid.UUID(conversation), uuid.UUID(message_id), row.id}
    assert (len(ids), len(sent), row.body, row.expires, row.row_version) == (3, 28, b'{"a":1}', None, 1)


def test_a_header_that_is_given_is_never_overwritten(engine, queue):
    given = {
        "NServiceBus.MessageId": "my id",
        "NServiceBus.MessageIntent": "Publish",
        "NServiceBus.ConversationId": "my conversation",
        "NServiceBus.CorrelationId": "my correlation",
        "NServiceBus.OriginatingMachine": "my machine",
        "NServiceBus.OriginatingEndpoint": "my endpoint",
        "NServiceBus.ContentType": "my/type",
        "NServiceBus.EnclosedMessageTypes": "my type",
        "NServiceBus.TimeSent": "my time",
        "NServiceBus.ReplyToAddress": {"postgresql": '"dbo"."me"', "sqlserver": "me@[dbo]@[shop]"}[
            engine.name
        ],
        "größe \U0001f4e6": "a/b\\c \"'\n",
    }
    draft = queue_tables.Draft(body=None, message_type="another", headers=given)
    assert queue_tables.send(options(engine), "orders", draft) == "my id"
    (row,) = queue.rows()
    assert (headers_of(row), row.body) == (given, b"")
    assert r"a\/b" in row.headers


@pytest.mark.parametrize("name", ["Interop.Source", 'say "hi"'])
def test_an_address_is_sent_in_the_transports_form(engine, queue, name):
    """Whatever form a person gives; a .NET endpoint takes a dot without quotation marks for that of
    a schema and a table.
    """
    addresses = ("ReplyToAddress", "SqlServer.ForwardDestination", "FailedQ")
    given = {f"NServiceBus.{each}": name for each in addresses}
    sent = {"NServiceBus.OriginatingEndpoint": name, **given}
    queue_tables.send(options(engine), "orders", queue_tables.Draft(message_type=TYPE, headers=sent))
    (row,) = queue.rows()
    expected = {"NServiceBus.OriginatingEndpoint": name, **dict.fromkeys(given, full_address(engine, name))}
    assert headers_of(row).items() >= expected.items()
    queue_tables.send_load(options(engine), "orders", count=3)
    found = [headers_of(row)["NServiceBus.ReplyToAddress"] for row in queue.rows()[1:]]
    assert found == [full_address(engine, "Shop.Web")] * 3


def test_an_address_that_cannot_be_read_is_refused(engine, queue):
    draft = queue_tables.Draft(message_type=TYPE, headers={"NServiceBus.ReplyToAddress": "@web"})
    with pytest.raises(ConfigurationError, match="The queue address '@web' has no table name"):
        queue_tables.send(options(engine), "orders", draft)
    assert queue.count() == 0


def test_a_message_without_a_body_has_an_empty_one(engine, queue):
    """A NULL would stop a .NET endpoint on PostgreSQL."""
    queue_tables.send(options(engine), "orders", queue_tables.Draft(message_type=TYPE))
    assert [row.body for row in queue.rows()] == [b""]


def test_columns_of_old_receivers_hold_header_values(sqlserver):
    sqlserver.create_queue()
    headers = {"NServiceBus.CorrelationId": "c", "NServiceBus.ReplyToAddress": "r@[s]@[d]"}
    queue_tables.send(options(sqlserver), "orders", queue_tables.Draft(message_type=TYPE, headers=headers))
    too_long = {"NServiceBus.CorrelationId": "c" * 256}
    queue_tables.send(options(sqlserver), "orders", queue_tables.Draft(message_type=TYPE, headers=too_long))
    found = [
        (message.correlation_id, message.reply_to_address, message.recoverable)
        for message in queue_peek.look(options(sqlserver), "orders", count=10)
    ]
    assert found == [("c", "r@[s]@[d]", True), (None, None, True)]


def test_headers_keep_every_letter_in_varchar(sqlserver):
    """A column of one code page."""
    queue = sqlserver.create_queue()
    queue.execute(
        "ALTER TABLE {table} DROP COLUMN Headers; ALTER TABLE {table} ADD Headers varchar(max) NOT NULL"
    )
    queue_tables.send(
        options(sqlserver),
        "orders",
        queue_tables.Draft(message_type=TYPE, headers={"x": "Łódź ☃ \U0001f4e6"}),
    )
    assert headers_of(queue.rows()[0])["x"] == "Łódź ☃ \U0001f4e6"


@pytest.mark.parametrize("body", [b"", b"\x00\xff\\\"'", b"\xef\xbb\xbf{}", b"x" * 5_000_000], ids=len)
def test_a_body_arrives_byte_for_byte(engine, queue, body):
    queue_tables.send(options(engine), "orders", queue_tables.Draft(body=body, message_type=TYPE))
    assert queue.rows()[0].body == body


def test_messages_expire_by_the_databases_clock(engine, queue):
    before = database_clock(engine)
    ttl = timedelta(days=40, milliseconds=250)
    queue_tables.send(options(engine), "orders", queue_tables.Draft(message_type=TYPE, ttl=ttl))
    expires = queue.rows()[0].expires
    # SQL Server's datetime is good to 1/300 s.
    assert before + ttl - timedelta(milliseconds=4) <= expires
    assert expires <= database_clock(engine) + ttl + timedelta(milliseconds=4)


def test_a_message_without_a_type_is_refused(engine, queue):
    """With the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        queue_tables.send(options(engine), "orders", queue_tables.Draft(body=b"{}"))
    assert str(caught.value) == (
        "A message needs a type, or no receiver knows what to do with it; give a type like "
        "'Namespace.Name, Assembly', or the header NServiceBus.EnclosedMessageTypes."
    )
    assert queue.count() == 0


def test_bodies_are_messages_that_are_the_same_otherwise(engine, queue):
    """Each has an id of its own."""
    draft = queue_tables.Draft(message_type=TYPE, headers={"tenant": "north"}, ttl=timedelta(hours=1))
    bodies = [b"%d" % number for number in range(5_000)]
    ids = queue_tables.send_bodies(options(engine), "orders", draft, bodies)
    rows = queue.rows()
    assert [row.body for row in rows] == bodies
    assert [headers_of(row)["NServiceBus.MessageId"] for row in rows] == ids
    assert {(headers_of(row)["tenant"], row.expires is None) for row in rows} == {("north", False)}


def test_where_one_of_several_messages_is_refused_none_is_sent(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ADD CONSTRAINT odd CHECK (body <> '4999')")
    bodies = [b"%d" % number for number in range(5_000)]
    with pytest.raises(SqlQueueError, match='violates check constraint "odd"'):
        queue_tables.send_bodies(options(postgresql), "orders", queue_tables.Draft(message_type=TYPE), bodies)
    assert queue.count() == 0


def test_several_messages_have_no_id_in_common(engine, queue):
    draft = queue_tables.Draft(message_type=TYPE, headers={"NServiceBus.MessageId": "mine"})
    with pytest.raises(ConfigurationError) as caught:
        queue_tables.send_bodies(options(engine), "orders", draft, [b"1", b"2"])
    assert str(caught.value) == (
        "Several messages cannot have one id; leave out the header NServiceBus.MessageId, and each gets "
        "its own."
    )
    assert queue.count() == 0
    assert queue_tables.send_bodies(options(engine), "orders", draft, [b"1"]) == ["mine"]


def test_a_python_program_sends_as_the_command_does(engine, queue):
    """Bytes and text as they are, anything else as JSON."""
    ids = sqlqueue_spark.send(
        "orders", {"größe": [1]}, "ü", b"\xff", url=engine.url,
        type=TYPE, headers={"tenant": "north"}, ttl=timedelta(hours=1),
    )  # fmt: skip
    command = ["send", "orders", "--url", engine.url, "--type", TYPE, "--header", "tenant=north"]
    CliRunner().invoke(main, [*command, "--ttl", "1h", "--body", '{"größe":[1]}'], catch_exceptions=False)
    *rows, typed = queue.rows()
    assert [row.body for row in rows] == ['{"größe":[1]}'.encode(), "ü".encode(), b"\xff"]
    assert [headers_of(row)["NServiceBus.MessageId"] for row in rows] == ids
    its = (
        "NServiceBus.MessageId",
        "NServiceBus.CorrelationId",
        "NServiceBus.ConversationId",
        "NServiceBus.TimeSent",
    )
    program, person = (headers_of(row) for row in (rows[0], typed))
    assert {**program, **dict.fromkeys(its)} == {**person, **dict.fromkeys(its)}
    assert None not in {row.expires for row in (*rows, typed)}


def test_the_program_of_the_page_runs_as_printed(postgresql, monkeypatch):
    monkeypatch.setenv("SQLQUEUE_URL", postgresql.url)
    queue = postgresql.create_queue("Billing")
    (program,) = page("docs/sending.md").blocks("python")
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 -- what a reader would type
    assert [(headers_of(row)["NServiceBus.MessageId"], row.body) for row in queue.rows()] == [
        *zip(names["ids"], (b'{"order":1}', b'{"order":2}'), strict=True)
    ]


def test_a_python_program_may_leave_the_url_and_the_password_to_the_environment(
    postgresql, guarded_url, monkeypatch
):
    queue = postgresql.create_queue()
    postgresql.execute("GRANT INSERT ON orders TO guarded; GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    monkeypatch.setenv("SQLQUEUE_URL", re.sub(r"guarded:[^@]*@", "guarded@", guarded_url))
    monkeypatch.setenv("SQLQUEUE_PASSWORD", GUARDED_PASSWORD)
    sqlqueue_spark.send("orders", type=TYPE)
    assert [row.body for row in queue.rows()] == [b""]


@pytest.mark.parametrize(
    "bodies,more,why",
    [
        (({1},), {}, "A body cannot be JSON: Object of type set is not JSON serializable; "),
        ((), {"headers": {"tenant": 7}}, "The header 'tenant' is 7; give it a text."),
        (
            (),
            {"ttl": timedelta(0)},
            "ttl is datetime.timedelta(0); write a duration above 0 like 500ms, 30s, 10m or 7d",
        ),
        ((), {"ttl": 5}, "ttl is 5; write a duration above 0 like 500ms, 30s, 10m or 7d"),
        ((), {"ulr": "x"}, "There is no option 'ulr'; did you mean url?"),
        (("a", "b"), {"headers": {"NServiceBus.MessageId": "mine"}}, "Several messages cannot have one id; "),
    ],
)
def test_a_wrong_value_of_a_python_program_is_one_sentence(engine, queue, bodies, more, why):
    with pytest.raises(ConfigurationError) as caught:
        sqlqueue_spark.send("orders", *bodies, type=TYPE, url=engine.url, **more)
    assert (str(caught.value).startswith(why), queue.count()) == (True, 0)


def test_sending_to_a_missing_queue_names_the_remedy(engine):
    """The command that creates it."""
    with pytest.raises(QueueError, match="create it with: sqlqueue create 'nowhere'"):
        queue_tables.send(options(engine), "nowhere", queue_tables.Draft(message_type=TYPE))


def test_a_sender_who_may_not_look_can_send(postgresql, guarded_url):
    queue = postgresql.create_queue()
    postgresql.execute("GRANT INSERT ON orders TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    guarded = ConnectionOptions.parse({"url": guarded_url})
    queue_tables.send(guarded, "orders", queue_tables.Draft(body=b"{}", message_type=TYPE))
    queue_tables.send_load(guarded, "orders", count=10)
    assert queue.count() == 11
    with pytest.raises(ConfigurationError, match="permission denied for table orders"):
        [*queue_peek.look(guarded, "orders", count=10)]
    with pytest.raises(ConfigurationError, match="permission denied for table orders"):
        queue_tables.purge(guarded, "orders")
    assert queue.count() == 11


def test_a_login_that_may_not_send_is_told_why(postgresql, guarded_url):
    """Which right is missing."""
    postgresql.create_queue()
    with pytest.raises(ConfigurationError, match="a sender INSERT"):
        queue_tables.send(
            ConnectionOptions.parse({"url": guarded_url}), "orders", queue_tables.Draft(message_type=TYPE)
        )


@pytest.mark.needs("measures_utf16")
def test_a_load_has_the_asked_number_and_size(engine, queue):
    """The messages are all different."""
    told: list[int] = []
    queue_tables.send_load(options(engine), "orders", count=9_001, size=1_000, progress=told.append)
    rows = queue.rows()
    headers = [headers_of(row) for row in rows]
    assert (sum(told), len(rows), len(told)) == (9_001, 9_001, 3)
    assert (
        len({row.id for row in rows} | {uuid.UUID(each["NServiceBus.MessageId"]) for each in headers})
        == 18_002
    )
    assert {len(row.headers) + len(row.body or b"") for row in rows} == {1_000}
    assert {each["NServiceBus.EnclosedMessageTypes"] for each in headers} == {
        "Shop.Orders.OrderPlaced, Shop.Contracts",
        "Shop.Billing.PaymentAccepted, Shop.Contracts",
        "Shop.Shipping.ShipOrder, Shop.Contracts",
    }
    bodies = [json.loads(row.body or b"") for row in rows]
    assert [int(body.get("orderId", "O-0")[2:]) for body in bodies] == [*range(9_001)]
    stored = {"postgresql": 1, "sqlserver": 2}[engine.name]  # bytes of a letter in the column Headers
    size = sum(stored * len(row.headers) + len(row.body or b"") for row in rows)
    assert queue_tables.length(options(engine), "orders").bytes == size


def test_a_load_keeps_its_rate(engine, queue, monkeypatch):
    """Each portion is sent when it is due. What takes too long is caught up with."""
    clock, sent = Clock(), []
    monkeypatch.setattr(queue_tables, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    began = clock.now

    def tell(rows):
        sent.append((rows, round(clock.now - began, 6)))
        if len(sent) == 3:
            clock.sleep(0.25)

    took = queue_tables.send_load(options(engine), "orders", count=300, rate=200, progress=tell)
    due = [number * 20 / 200 for number in range(15)]
    assert sent == [(20, at) for at in (*due[:3], 0.45, 0.45, *due[5:])]
    assert (took, queue.count()) == (timedelta(seconds=1.4), 300)


def test_a_load_can_expire(engine, queue):
    queue_tables.send_load(options(engine), "orders", count=20, ttl=timedelta(milliseconds=1))
    eventually(lambda: queue_tables.length(options(engine), "orders").expired == 20)
    assert queue_tables.length(options(engine), "orders").rows == 20


def test_large_messages_are_sent_in_small_transactions(postgresql):
    """Those of a load."""
    queue = postgresql.create_queue()
    told: list[int] = []
    queue_tables.send_load(options(postgresql), "orders", count=10, size=3 << 20, progress=told.append)
    assert (told, queue.count()) == ([2, 2, 2, 2, 2], 10)


def test_what_a_load_has_sent_stays_when_it_fails(postgresql):
    queue = postgresql.create_queue()

    def drop(_):
        with psycopg.connect(postgresql.url) as connection:
            connection.execute("ALTER TABLE orders RENAME TO gone")

    with pytest.raises(QueueError):
        queue_tables.send_load(options(postgresql), "orders", count=8_000, progress=drop)
    queue.execute("ALTER TABLE gone RENAME TO orders")
    assert queue.count() == 4_000
