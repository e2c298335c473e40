"""A connection pooler in front of PostgreSQL: one that lends whole sessions is fine,
one that shares them is refused.
"""

import contextlib

import psycopg
import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.engines.postgresql import connection as driver
from sqlqueue_spark.engines.postgresql import poolers
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions, SourceOptions
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.reading.peek import plan_peek
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from tests.support import pgbouncer
from tests.support.driver import streaming
from tests.support.messages import message_ids, row_ids
from tests.support.pgbouncer import pooled
from tests.support.postgresql import PostgresEngine
from tests.support.sending import PLAIN, batch, composed, ids_in, options, watched

pytestmark = pytest.mark.skipif(
    not pgbouncer.is_there(), reason="pgbouncer is missing; run: tests/install_packages.sh"
)


def refusal(url):
    return (
        f"The connection pooler at {url.rpartition('@')[2]} shares sessions among connections, so that "
        "timeouts, plans and durable commits are not kept; let the url lead to the server itself, or have "
        "whole sessions pooled (PgBouncer: pool_mode = session)."
    )


def receives(mode):
    def ask(url):
        receiver = Receiver(SourceOptions.parse({"url": url, "queue": "orders", "transactionMode": mode}))
        with contextlib.closing(receiver):
            receiver.latest(None, 10)

    return ask


def sends(url):
    given = options(PostgresEngine(url), outbox="none")
    prepare(Destinations(given), PLAIN, ["orders"])


ASKED = {
    "a stream": receives("receiveOnly"),
    "a stream of mode none": receives("none"),
    "a peek": lambda url: plan_peek(SourceOptions.parse({"url": url, "queue": "orders"})),
    "a sink": sends,
    "a person": lambda url: queue_tables.inspect(ConnectionOptions.parse({"url": url}), "orders"),
}


@pytest.mark.parametrize("who", ASKED)
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused(postgresql, mode, who):
    postgresql.create_queue()
    with pooled(postgresql.url, mode) as url:
        with pytest.raises(ConfigurationError) as caught:
            ASKED[who](url)
        assert str(caught.value) == refusal(url)


@pytest.mark.parametrize("order", ["0", "1"], ids=["the session freed last first", "all in turn"])
def test_a_pooler_that_shares_many_sessions_is_refused(postgresql, order):
    with pooled(postgresql.url, "transaction", server_round_robin=order) as url:
        with contextlib.ExitStack() as several:
            for _ in range(5):
                several.enter_context(psycopg.connect(url)).execute("SELECT 1")
        with pytest.raises(ConfigurationError):
            connect(Target(url=url))


def test_nothing_is_left_in_a_shared_session(postgresql):
    asked = (
        "SELECT current_setting('enable_seqscan'), current_setting('statement_timeout'), "
        "coalesce(current_setting('sqlqueue.session', true), '')"
    )
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    with pooled(postgresql.url, "transaction", default_pool_size="1") as url:
        with pytest.raises(ConfigurationError):
            connect(Target(url=url))
        with psycopg.connect(url, prepare_threshold=None) as other:
            assert other.execute(asked).fetchall() == [("on", "0", "")]
            assert other.execute(prepared).fetchall() == [(0,)]


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_stream_may_use_a_pooler_of_whole_sessions(postgresql, mode):
    queue = postgresql.create_queue()
    queue.insert(500)
    with pooled(postgresql.url, "session") as url:
        given = {"maxMessagesPerTrigger": "100", "minMessagesPerPartition": "50", "transactionMode": mode}
        with streaming(PostgresEngine(url), queue, **given) as stream:
            stream.drain()
            assert (stream.ids(), queue.count()) == (row_ids(range(500)), 0)


def test_a_sender_may_use_a_pooler_of_whole_sessions(postgresql):
    queue = postgresql.create_queue()
    with pooled(postgresql.url, "session") as url:
        given = options(PostgresEngine(url), outbox="none")
        with Sender(Destinations(given)) as sender:
            assert sender.send(composed(given, batch(range(10)))) == Sent(sent=10)
    assert ids_in(queue) == message_ids(range(10))


def test_a_session_lent_to_others_later_is_noticed(postgresql, monkeypatch):
    """Before anything is done on it."""
    monkeypatch.setattr(driver, "lends_sessions", lambda *_: True)  # as if no other session had been there
    queue = postgresql.create_queue()
    with pooled(postgresql.url, "transaction") as url, connect(Target(url=url)) as connection:
        assert connection.execute("SELECT 1") == [(1,)]
        connection.commit()
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("DISCARD ALL")
        for act in (
            lambda: connection.execute("INSERT INTO orders (id, headers) VALUES (gen_random_uuid(), '{}')"),
            lambda: connection.load(Statement.parse("COPY orders (id, headers) FROM STDIN"), []),
        ):
            with pytest.raises(ConfigurationError) as caught:
                act()
            assert str(caught.value) == refusal(url)
            connection.rollback()
    assert queue.count() == 0


def test_a_pooled_transaction_is_looked_at_once(postgresql, monkeypatch):
    looks = list[psycopg.Connection]()

    def noted(raw):
        looks.append(raw)
        return poolers.session_of(raw)

    monkeypatch.setattr(driver, "session_of", noted)
    with pooled(postgresql.url, "session") as url, connect(Target(url=url)) as connection:
        for _ in range(3):
            connection.execute("SELECT 1")
            connection.execute("SELECT 2")
            connection.commit()
        assert len(looks) == 3


def test_nothing_is_asked_where_no_pooler_is(postgresql, monkeypatch):
    def ask(*_):
        raise AssertionError

    monkeypatch.setattr(driver, "lends_sessions", ask)
    monkeypatch.setattr(driver, "session_of", ask)
    with watched() as seen, connect(Target(url=postgresql.url)) as connection:
        assert len(seen.opened) == 1
        assert connection.execute("SELECT 1") == [(1,)]
