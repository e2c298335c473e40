"""The outbox is cleaned in the background of a sink: when it is due, everywhere it sends to,
and no sender waits for it.
"""

from datetime import timedelta
from threading import Event

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.tables import outbox_cleanup
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from tests.support.clock import wrong_clock
from tests.support.outboxes import OutboxRows
from tests.support.sending import options, watched
from tests.support.waiting import eventually

WEEK = timedelta(days=7)
NEVER = [
    {"disableCleanup": "true"},
    {"outbox": "none"},
]


@pytest.fixture
def rows(engine):
    """The outbox table of the endpoint Sales, with one id of eight days and one of six."""
    return with_two(engine)


def with_two(engine):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    found = OutboxRows(engine)
    found.insert("old", age=WEEK + timedelta(days=1))
    found.insert("young", age=WEEK - timedelta(days=1))
    return found


def cleaned(cleaner, *targets):
    cleaner.clean_when_due(targets)
    cleaner.wait()


def test_it_forgets_at_once_and_then_every_minute(engine, rows):
    given = options(engine)
    now = [1_000.0]
    cleaner = OutboxCleaner(given, lambda: now[0])
    cleaned(cleaner, Target.of(given))
    assert rows.ids() == {"young"}
    rows.age(WEEK + timedelta(days=1))
    for seconds, left in ((59.9, {"young"}), (0.1, set())):
        now[0] += seconds
        cleaned(cleaner, Target.of(given))
        assert rows.ids() == left


def test_how_often_and_how_much_are_options(engine, rows):
    given = options(engine, cleanupEvery="1h", keepDeduplicationDataFor="5d")
    now = [0.0]
    cleaner = OutboxCleaner(given, lambda: now[0])
    cleaned(cleaner, Target.of(given))
    assert rows.ids() == set()
    rows.insert("old", age=WEEK)
    for seconds, left in ((3_599.0, {"old"}), (1.0, set())):
        now[0] += seconds
        cleaned(cleaner, Target.of(given))
        assert rows.ids() == left


@pytest.mark.parametrize("hours, left", [(-49, {"old", "young"}), (-23, {"young"}), (+49, {"young"})])
def test_an_id_is_old_by_the_clocks_of_the_database_and_of_the_machine(engine, rows, hours, left):
    """That of the database may have jumped ahead. Then all would be old at once."""
    given = options(engine)
    with wrong_clock(outbox_cleanup, hours=hours):
        cleaned(OutboxCleaner(given), Target.of(given))
    assert rows.ids() == left


@pytest.mark.parametrize("never", NEVER, ids=["disabled", "no outbox"])
def test_it_leaves_everything_where_it_is_not_wanted(engine, rows, never):
    given = options(engine, **never)
    cleaned(OutboxCleaner(given), Target.of(given))
    assert rows.ids() == {"old", "young"}


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_an_atomic_sink_cleans_the_outbox_that_it_asks(engine, rows, asked):
    """It asks where the pipeline has also sent in another mode; then the outbox is to become empty."""
    given = options(engine, transactionMode="sendsAtomicWithReceive", stream="s")
    destinations = Destinations(given)
    with connect(Target.of(given)) as connection:
        destinations.is_known("ids", connection, lambda: asked)
    cleaner = OutboxCleaner(given)
    cleaner.clean_when_due(destinations.having_outboxes())
    cleaner.wait()
    assert rows.ids() == ({"young"} if asked else {"old", "young"})


@pytest.mark.tier("all")
def test_a_job_cleans_the_outbox_of_each_of_its_databases_once_no_row_waits(engine, rows, elsewhere):
    """It keeps ids for as long as a row may have waited that an earlier process has put back."""
    home, away = (options(each, giveUpAfter="2d", errorQueue="error") for each in (engine, elsewhere))
    places = Places(home, away)
    databases, cleaner = RemoteDatabases(places), OutboxCleaner(home, at=places.at)
    theirs = with_two(elsewhere)
    for each in (rows, theirs):
        each.insert("older", age=WEEK + timedelta(days=3))
    databases.clean(cleaner, places.everywhere())
    cleaner.wait()
    assert (rows.ids(), theirs.ids()) == ({"old", "young", "older"},) * 2
    databases.look()
    databases.clean(cleaner, places.everywhere())
    cleaner.wait()
    assert (rows.ids(), theirs.ids()) == ({"old", "young"},) * 2


def test_it_forgets_more_than_one_statement_does(engine, rows):
    """It forgets nothing that is not dispatched."""
    given = options(engine)
    with connect(Target.of(given)) as connection, connection.transaction():
        OutboxTable(connection, "Sales").add(f"order {number}" for number in range(9_001))
    rows.age(WEEK + timedelta(days=1))
    rows.insert("orphan", dispatched=False, age=2 * WEEK)
    cleaned(OutboxCleaner(given), Target.of(given))
    assert rows.ids() == {"orphan"}


@pytest.mark.tier("all")
def test_a_sink_cleans_the_outbox_of_each_database_of_its_options(engine, rows, elsewhere, caplog):
    """A task also sends to databases that the driver has not looked at. One that is down stops no other."""
    urls = {"endpoint.Lost.url": "postgresql://127.0.0.1:1/none", "endpoint.Billing.url": elsewhere.url}
    given = options(engine, **urls)
    theirs, destinations = with_two(elsewhere), Destinations(given)
    cleaner = OutboxCleaner(given, at=destinations.places.at)
    cleaned(cleaner, *destinations.having_outboxes())
    assert (rows.ids(), theirs.ids()) == ({"young"}, {"young"})
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("cleanup_failed endpoint=Sales: ")
    assert "127.0.0.1" in said


@pytest.mark.tier("all")
def test_a_sink_that_stores_what_goes_elsewhere_opens_no_connection_to_there(engine, rows, elsewhere):
    """The job that passes it on sends there. It keeps ids for longer, because rows may wait."""
    urls = {"endpoint.Billing.url": elsewhere.url}
    given = options(engine, storeAndForward="outgoing", **urls)
    theirs, destinations = with_two(elsewhere), Destinations(given)
    with watched() as seen:
        cleaned(OutboxCleaner(given, at=destinations.places.at), *destinations.having_outboxes())
    assert [target.url for target, _ in seen.opened] == [engine.url]
    assert (rows.ids(), theirs.ids()) == ({"young"}, {"old", "young"})


def test_a_database_without_the_outbox_is_passed_over(engine, rows, elsewhere, caplog):
    given = options(engine)
    there = Target.of(options(elsewhere))
    cleaned(OutboxCleaner(given), there, Target.of(given))
    assert rows.ids() == {"young"}
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
    theirs = with_two(elsewhere)
    cleaned(OutboxCleaner(given), there)
    assert theirs.ids() == {"young"}


def test_a_slow_cleanup_is_not_joined_by_a_second(engine, rows, monkeypatch):
    given, go, begun = options(engine, cleanupEvery="1ms"), Event(), []
    clean = OutboxTable.clean

    def slowly(self, keep):
        begun.append(keep)
        assert go.wait(60)
        return clean(self, keep)

    monkeypatch.setattr(OutboxTable, "clean", slowly)
    now = [0.0]
    cleaner = OutboxCleaner(given, lambda: now[0])
    with wrong_clock(outbox_cleanup, hours=1):  # never behind that of the database
        for _ in range(3):
            now[0] += 1.0
            cleaner.clean_when_due([Target.of(given)])
        eventually(lambda: begun != [])
    go.set()
    cleaner.wait(60)
    assert (begun, rows.ids()) == ([WEEK], {"young"})
