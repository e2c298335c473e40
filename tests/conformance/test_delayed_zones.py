"""A .NET endpoint and we read one table of delayed messages: the same times, whatever zones database,
login and session have.
"""

import base64
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from sqlqueue_spark.administration import delayed_tables
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from tests.conftest import GUARDED_ROLE
from tests.support import dotnet
from tests.support.delayed import DelayedRows, move, mover
from tests.support.kept_connections import forget
from tests.support.messages import message_id, message_ids
from tests.support.sending import batch, ids_in, send

#: Where midnight is 5 hours later than in UTC, and where it is 9 hours earlier; and hours that have no name.
ZONES = ("'America/New_York'", "'Asia/Tokyo'", "-5", "5.5", "INTERVAL '-05:00' HOUR TO MINUTE")
#: What else may say a time zone to a session.
SESSIONS = {"its own": {}, "the environment": {"PGTZ": "Europe/Berlin"}}


@pytest.fixture
def queue(postgresql):
    return postgresql.create_queue()


@pytest.fixture(params=ZONES)
def zone(request, postgresql):
    """The default time zone of the database."""
    set_zone(postgresql, request.param)
    return request.param


def set_zone(postgresql, zone):
    (database,) = postgresql.fetch("SELECT current_database()")[0]
    postgresql.execute(f'ALTER DATABASE "{database}" SET TIME ZONE {zone}')
    forget(postgresql.url)  # a session asks for its time zone when it begins


def dotnet_due(postgresql, table):
    """How many messages are due, as a .NET endpoint asks, whose session has the database's time zone."""
    with psycopg.connect(postgresql.url) as connection:
        statement = f"""SELECT count(*) FROM "{table}" WHERE due < now() AT TIME ZONE 'UTC'"""
        return connection.execute(statement).fetchall()[0][0]


def seconds(length: delayed_tables.DelayedLength) -> float:
    """How long it takes until the first message is due."""
    assert length.first_due_in is not None
    return length.first_due_in.total_seconds()


@pytest.mark.parametrize("session", SESSIONS.values(), ids=list(SESSIONS))
def test_both_take_the_same_messages_for_due(postgresql, queue, zone, session, monkeypatch):
    for name, value in session.items():
        monkeypatch.setenv(name, value)
    postgresql.create_queue("error")
    DelayedRows(postgresql, "Sales").create()
    given = SinkOptions.parse(
        {"url": postgresql.url, "queue": "orders", "outbox": "none", "endpoint": "Sales"}
    )
    now = datetime.now(UTC)
    send(given, batch([1, 2], DeliverAt=[now - timedelta(seconds=5), now + timedelta(minutes=5)]))
    send(given, batch([3], DelayDeliveryFor=timedelta(minutes=5)))
    monkeypatch.delenv("PGTZ", raising=False)
    assert dotnet_due(postgresql, "Sales.Delayed") == 1
    for name, value in session.items():
        monkeypatch.setenv(name, value)
    own = ConnectionOptions.parse({"url": postgresql.url})
    length = delayed_tables.length(own, "Sales")
    assert (length.rows, length.due, move(postgresql, "Sales")) == (3, 1, (1, 0))
    assert ids_in(queue) == [message_id(1)]
    left = seconds(delayed_tables.length(own, "Sales"))
    assert 240 < left < 360


def test_a_mover_that_runs_follows_the_zone_of_the_database(postgresql, queue):
    """Else what is stored since then comes hours early or late, until the mover begins anew."""
    postgresql.create_queue("error")
    DelayedRows(postgresql, "Sales").create()
    given = SinkOptions.parse(
        {"url": postgresql.url, "queue": "orders", "outbox": "none", "endpoint": "Sales"}
    )
    past = datetime.now(UTC) - timedelta(minutes=1)
    zones, delivered = iter(("'Asia/Tokyo'", "'America/New_York'", "5.5")), []

    def pause(_):
        """Before each look the zone is another one, by which one message is due, and one is not."""
        delivered.append(ids_in(queue))
        if (zone := next(zones, None)) is not None:
            set_zone(postgresql, zone)
            number = len(delivered)
            send(given, batch([number, -number], DeliverAt=[past, past + timedelta(days=2)]))
        return zone is None

    mover(postgresql, "Sales").run(pause)
    assert delivered == [message_ids(range(1, last)) for last in range(1, 5)]


def test_the_zone_of_the_login_does_not_count(postgresql, guarded_url, zone):
    rows = DelayedRows(postgresql, "Sales").create()
    postgresql.execute(
        f"INSERT INTO {rows.quoted} (headers, due) VALUES ('{{}}', now() AT TIME ZONE 'UTC' - "
        "interval '1 minute')"
    )
    postgresql.execute(f"GRANT SELECT ON {rows.quoted} TO {GUARDED_ROLE}")
    postgresql.execute(f"ALTER ROLE {GUARDED_ROLE} SET timezone TO 'Europe/Berlin'")
    length = delayed_tables.length(ConnectionOptions.parse({"url": guarded_url}), "Sales")
    assert length.due == 1
    assert seconds(length) == pytest.approx(-60, abs=10)


def test_recorded_messages_of_an_endpoint_are_delivered(postgresql, zone):
    """Rows of a real endpoint's own table: a delayed send, and delayed retries for its own queue."""
    dotnet.create_table(postgresql, dotnet.DELAYED)
    recorded = dotnet.lines("delayed")
    with psycopg.connect(postgresql.url) as connection:
        for each in recorded:
            connection.execute(
                f'INSERT INTO "{dotnet.DELAYED}" (id, headers, body, due) VALUES (%s, %s, %s, %s::timestamp)',
                [each["id"], each["headers"], base64.b64decode(each["body"]), each["due"]],
            )
    queues = {name: postgresql.create_queue(name) for name in ("Interop.Recorder", "Interop.Subscriber")}
    postgresql.create_queue("error")
    own = ConnectionOptions.parse({"url": postgresql.url})
    first = min(datetime.fromisoformat(each["due"]) for each in recorded).replace(tzinfo=UTC)
    meant = (first - datetime.now(UTC)).total_seconds()
    assert move(postgresql, "Interop.Recorder") == (0, 0)
    length = delayed_tables.length(own, "Interop.Recorder")
    assert (length.rows, length.due) == (3, 0)
    assert seconds(length) == pytest.approx(meant, abs=60)
    postgresql.execute(f"""UPDATE "{dotnet.DELAYED}" SET due = due - interval '20 years'""")
    assert move(postgresql, "Interop.Recorder") == (3, 0)
    for name, queue in queues.items():
        wanted = {
            (_without_way(each["headers"]), base64.b64decode(each["body"]))
            for each in recorded
            if json.loads(each["headers"])[FORWARD_DESTINATION] == f'"public"."{name}"'
        }
        assert wanted
        assert {(row.headers, row.body) for row in queue.rows()} == wanted


def _without_way(headers):
    """The text without the last member, as an endpoint writes it."""
    text, _, way = headers.partition(f',"{FORWARD_DESTINATION}":')
    assert way.endswith('\\""}')
    return text + "}"
