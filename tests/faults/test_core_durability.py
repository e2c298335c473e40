"""What was committed outlives a crash of the server, whatever the database's setting:
nothing is settled or sent only almost.
"""

import shutil
import tempfile
from pathlib import Path

import psycopg
import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from tests.support.driver import streaming
from tests.support.messages import message_ids, row_ids
from tests.support.postgresql import PostgresEngine, restart
from tests.support.sending import batch, ids_in, options, send

#: Without a word from a session nothing is written for ten seconds:
#: what a crash takes back is all that was committed since.
LAZY = {"wal_writer_delay": "10000ms", "wal_writer_flush_after": "1GB", "autovacuum": "off"}
NAME = "lazy"


@pytest.fixture(scope="module")
def own_server():
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-durability-"))
    with EmbeddedServer(folder / "data", settings=LAZY) as running:
        yield running
    shutil.rmtree(folder)


@pytest.fixture
def lazy(own_server):
    """A database whose sessions do not wait until a commit is on the disk."""
    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {NAME}")
        connection.execute(f"ALTER DATABASE {NAME} SET synchronous_commit = off")
    return PostgresEngine(own_server.url(NAME))


def crash(server):
    restart(server)


def filled(server, engine):
    """A queue of ten messages that will outlive a crash."""
    queue = engine.create_queue()
    queue.insert(10)
    engine.execute("CHECKPOINT")
    return queue


def test_a_crash_takes_back_what_others_committed(own_server, lazy):
    """Else the other tests here would prove nothing."""
    queue = filled(own_server, lazy)
    queue.insert(5, start=10)
    crash(own_server)
    assert queue.count() == 10


@pytest.mark.parametrize("outbox", ["none", "optimistic", "pessimistic"])
def test_what_was_sent_outlives_a_crash(own_server, lazy, outbox):
    queue = lazy.create_queue()
    given = options(lazy, outbox=outbox)
    if given.uses_outbox:
        outbox_tables.create(ConnectionOptions.parse({"url": lazy.url}), "Sales")
    lazy.execute("CHECKPOINT")
    assert send(given, batch(range(5))) == (5, 0)
    crash(own_server)
    assert ids_in(queue) == message_ids(range(5))


def test_settled_rows_stay_deleted_after_a_crash(own_server, lazy):
    queue = filled(own_server, lazy)
    with streaming(lazy, queue) as stream:
        stream.drain()
        crash(own_server)
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_taken_rows_stay_deleted_after_a_crash(own_server, lazy):
    """Workers take them in mode none."""
    queue = filled(own_server, lazy)
    with streaming(lazy, queue, transactionMode="none") as stream:
        stream.drain()
        crash(own_server)
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.parametrize(
    "given, kept",
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
def test_a_session_commits_as_durably_as_the_default(postgresql, given, kept):
    """At least so, whatever the url or the database say."""
    by_url = Target(url=f"{postgresql.url}?options=-csynchronous_commit%3D{given}")
    assert settings_of(by_url) == (kept, kept)
    (name,) = postgresql.fetch("SELECT current_database()")[0]
    postgresql.execute(f"ALTER DATABASE {name} SET synchronous_commit = {given}")
    assert settings_of(Target(url=postgresql.url)) == (kept, kept)


def settings_of(target):
    """What a connection of the driver's side has, and one of a worker."""
    statement = Statement.parse(
        "SELECT current_setting('synchronous_commit') AS \"Id\" WHERE :first <= :last"
    )
    with connect(target) as connection:
        ((by_driver,),) = connection.execute(statement, {"first": 1, "last": 2})
    reader = open_reader(target)
    ((by_worker, *_),) = [
        tuple(row.values())
        for each in reader.batches(statement, RowSet([(1, 2)]), SCHEMA)
        for row in each.to_pylist()
    ]
    reader.close()
    return by_driver, by_worker
