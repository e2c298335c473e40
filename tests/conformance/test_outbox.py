"""The outbox table: an id is added once, even if other senders add it at the same time,
and forgotten only when it may be.
"""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConfigurationError, Duplicate, LockTimeout, QueueError, TryAgain
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.support.outboxes import OutboxRows
from tests.support.waiting import eventually

WEEK = timedelta(days=7)
#: What two who clean at once forget of 4,500 ids.
BATCHES = {"postgresql": [4_000, 500], "sqlserver": [2_400, 2_100]}


TIME = {"postgresql": "timestamp", "sqlserver": "datetime"}


@pytest.fixture
def rows(engine):
    """The outbox table of the endpoint Sales, empty."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return OutboxRows(engine)


@contextlib.contextmanager
def opened(engine, **more):
    """The outbox table on a connection of its own."""
    options = ConnectionOptions.parse({"url": engine.url, **more})
    with connect(Target.of(options)) as connection:
        yield connection, OutboxTable(connection, "Sales")


def test_an_added_id_is_seen_with_time_and_writer(engine, rows):
    rows.insert("theirs")
    with opened(engine) as (connection, outbox):
        with connection.transaction():
            assert outbox.seen(["a", "b", "theirs"]) == {"theirs"}
            outbox.add(["b", "a"])
        with connection.transaction():
            assert outbox.seen(["a", "b", "c", "theirs"]) == {"a", "b", "theirs"}
    (_, dispatched, version, age, operations) = rows.rows()[0]
    assert (dispatched, version, operations) == (True, "sqlqueue 0.3.0", "[]")
    assert 0 <= age < 60


def test_nothing_is_asked_or_added_for_no_ids(engine, rows):
    with opened(engine) as (connection, outbox), connection.transaction():
        outbox.add([])
        assert (outbox.seen([]), outbox.add_new([]), rows.ids()) == (set(), set(), set())


@pytest.mark.parametrize(
    "odd", ["a,b", '{"', "\\", "'; --", "NULL", " ", "größe", "注文", "\N{GRINNING FACE}", "x" * 200]
)
def test_an_odd_id_is_just_an_id(engine, rows, odd):
    with opened(engine) as (connection, outbox), connection.transaction():
        assert outbox.add_new([odd, "other"]) == {odd, "other"}
        assert outbox.seen([odd, "another"]) == {odd}
        assert outbox.add_new([odd]) == set()


def test_more_ids_than_a_statement_takes_are_added_once(engine, rows):
    ids = [f"order {number}" for number in range(9_001)]
    with opened(engine) as (connection, outbox), connection.transaction():
        outbox.add(ids[:5_000])
        assert outbox.seen(ids) == set(ids[:5_000])
        assert outbox.add_new(ids) == set(ids[5_000:])
    assert rows.ids() == set(ids)


def test_an_id_that_was_rolled_back_is_new_again(engine, rows):
    with opened(engine) as (connection, outbox):
        assert outbox.add_new(["a"]) == {"a"}
        connection.rollback()
        with connection.transaction():
            assert outbox.add_new(["a", "a"]) == {"a"}
    assert rows.ids() == {"a"}


@pytest.mark.needs("tells_who_holds_locks")
def test_a_waiting_twin_finds_the_ids_taken(engine, rows):
    """A pessimistic one, once the first has committed."""
    with (
        opened(engine) as (connection, outbox),
        opened(engine) as (other, twin),
        ThreadPoolExecutor(1) as pool,
    ):
        assert outbox.add_new(["b", "c"]) == {"b", "c"}
        waiting = pool.submit(twin.add_new, ["a", "b", "c", "d"])
        eventually(rows.blocked)
        assert not waiting.done()
        connection.commit()
        assert waiting.result(30) == {"a", "d"}
        other.commit()
    assert rows.ids() == {"a", "b", "c", "d"}


@pytest.mark.needs("tells_who_holds_locks")
def test_a_twin_takes_over_when_the_first_rolls_back(engine, rows):
    """A pessimistic one, which has waited."""
    with (
        opened(engine) as (connection, outbox),
        opened(engine) as (other, twin),
        ThreadPoolExecutor(1) as pool,
    ):
        outbox.add_new(["a"])
        waiting = pool.submit(twin.add_new, ["a"])
        eventually(rows.blocked)
        connection.rollback()
        assert waiting.result(30) == {"a"}
        other.commit()
    assert rows.ids() == {"a"}


@pytest.mark.needs("tells_who_holds_locks")
def test_an_optimistic_twin_learns_it_was_not_first(engine, rows):
    with (
        opened(engine) as (connection, outbox),
        opened(engine) as (other, twin),
        ThreadPoolExecutor(1) as pool,
    ):
        assert (outbox.seen(["a"]), twin.seen(["a"])) == (set(), set())
        outbox.add(["a"])
        waiting = pool.submit(twin.add, ["a", "b"])
        eventually(rows.blocked)
        connection.commit()
        with pytest.raises(Duplicate, match="another transaction was first; try again") as caught:
            waiting.result(30)
        assert isinstance(caught.value, TryAgain)
        other.rollback()
        assert twin.seen(["a", "b"]) == {"a"}


@pytest.mark.needs("numbers_lock_timeouts")
@pytest.mark.provokes("lock timeout")
def test_a_twin_that_waits_for_too_long_is_told_so(engine, rows):
    with opened(engine) as (_, outbox), opened(engine, lockTimeout="200ms") as (_, twin):
        outbox.add_new(["a"])
        with pytest.raises(LockTimeout):
            twin.add_new(["a"])


@pytest.mark.parametrize("collation", ["Latin1_General_CI_AI", "Japanese_BIN2", "Turkish_100_CI_AS_SC"])
def test_a_column_of_any_collation_tells_ids_apart(sqlserver, collation):
    """Whatever the database's collation is: two that differ are error 468 in a plain comparison."""
    sqlserver.execute(
        f"CREATE TABLE dbo.Sales_OutboxData (MessageId nvarchar(200) COLLATE {collation} NOT NULL PRIMARY "
        "KEY NONCLUSTERED, Dispatched bit NOT NULL DEFAULT 0, DispatchedAt datetime NULL, PersistenceVersion "
        "varchar(23) NOT NULL, Operations nvarchar(max) NOT NULL)"
    )
    with opened(sqlserver) as (connection, outbox), connection.transaction():
        assert outbox.add_new(["Order-i", "a-1"]) == {"Order-i", "a-1"}
        outbox.add(["b-1"])
        asked = ["Order-i", "order-I", "Order-i ", "a-1", "b-1"]
        assert outbox.seen(asked) == {"Order-i", "a-1", "b-1"}
        assert outbox.seen_of(asked, "sqlqueue 0.3.0") == {"Order-i", "a-1", "b-1"}
        assert outbox.add_new(["a-1", "c-1"]) == {"c-1"}


def test_a_trigger_adds_nothing_to_what_was_forgotten(sqlserver):
    """The server counts the statement itself, and not what its trigger changes."""
    rows = OutboxRows(sqlserver)
    outbox_tables.create(ConnectionOptions.parse({"url": sqlserver.url}), "Sales")
    sqlserver.execute("CREATE TABLE dbo.forgotten (id nvarchar(200))")
    sqlserver.execute(
        f"CREATE TRIGGER dbo.forgetting ON {rows.table} AFTER DELETE AS BEGIN "
        "INSERT INTO dbo.forgotten (id) SELECT d.MessageId FROM deleted AS d CROSS JOIN (VALUES (1), "
        "(2), (3)) AS n (n); SET NOCOUNT ON; DELETE FROM dbo.forgotten WHERE 1 = 0; END"
    )
    rows.insert("old", age=2 * WEEK)
    with opened(sqlserver) as (connection, outbox), connection.transaction():
        assert outbox.clean(WEEK) == 1
    assert sqlserver.fetch("SELECT COUNT(*) FROM dbo.forgotten") == [(3,)]


def test_eight_who_add_the_same_ids_share_them(engine, rows):
    """At once, and without a deadlock."""
    ids = [f"order {number}" for number in range(4_000)]
    ready = threading.Barrier(8, timeout=60)

    def add(number):
        with opened(engine) as (connection, outbox):
            ready.wait()
            with connection.transaction():
                return outbox.add_new(ids[number:] + ids[:number])

    with ThreadPoolExecutor(8) as pool:
        added = [each for found in pool.map(add, range(0, 4_000, 500)) for each in found]
    assert sorted(added) == sorted(ids)
    assert rows.ids() == set(ids)


@pytest.mark.needs("deletes_through_cte")
def test_cleaning_forgets_only_old_dispatched_rows(engine, rows):
    rows.insert("old", age=WEEK + timedelta(minutes=1))
    rows.insert("new", age=WEEK - timedelta(minutes=1))
    rows.insert("orphan", dispatched=False)
    rows.insert("old orphan", dispatched=False, age=2 * WEEK)
    with opened(engine) as (connection, outbox):
        with connection.transaction():
            assert outbox.clean(WEEK) == 1
        assert rows.ids() == {"new", "orphan", "old orphan"}
        with connection.transaction():
            assert outbox.clean(timedelta(0)) == 1
    assert rows.ids() == {"orphan", "old orphan"}


@pytest.mark.needs("deletes_through_cte")
def test_cleaning_steps_over_rows_that_others_hold(engine, rows):
    for name in ("held", "free"):
        rows.insert(name, age=2 * WEEK)
    with opened(engine, lockTimeout="200ms") as (connection, outbox), rows.locked("held"):
        with connection.transaction():
            assert outbox.clean(WEEK) == 1
        assert rows.ids() == {"held"}


@pytest.mark.needs("deletes_through_cte")
def test_two_cleaners_do_not_wait_for_each_other(engine, rows):
    with opened(engine) as (connection, outbox), opened(engine, lockTimeout="200ms") as (other, twin):
        with connection.transaction():
            outbox.add(f"order {number}" for number in range(4_500))
        rows.age(2 * WEEK)
        assert [outbox.clean(WEEK), twin.clean(WEEK)] == BATCHES[engine.name]
        other.commit()
        connection.commit()
    assert rows.ids() == set()


@pytest.mark.needs("deletes_through_cte")
def test_senders_go_on_while_another_cleans(engine, rows):
    with opened(engine) as (connection, outbox), opened(engine, lockTimeout="200ms") as (other, sender):
        with connection.transaction():
            outbox.add(f"order {number}" for number in range(2_400))
        rows.age(2 * WEEK)
        assert outbox.clean(WEEK) == 2_400
        with other.transaction():
            assert sender.add_new([f"next {number}" for number in range(2_400)]) != set()
        connection.commit()
    assert len(rows.ids()) == 2_400


@pytest.mark.needs("numbers_missing_tables")
def test_a_missing_table_is_named_with_its_remedy(engine):
    with opened(engine) as (connection, outbox):
        with connection.transaction():
            assert not outbox.exists()
        for call in (outbox.seen, outbox.add, outbox.add_new):
            with pytest.raises(QueueError) as caught:
                call(["a"])
            assert str(caught.value).startswith(f"The outbox table {outbox.name} cannot be used (")
            assert str(caught.value).endswith(
                "); if it is not there, create it with: sqlqueue outbox create 'Sales'."
            )
            connection.rollback()


def test_an_id_that_does_not_fit_is_refused_by_its_value(engine, rows):
    with opened(engine) as (connection, outbox):
        for call in (outbox.seen, outbox.add, outbox.add_new):
            with pytest.raises(
                ConfigurationError, match="The message id '' is no text of 1 to 200 characters"
            ):
                call(["a", ""])
        connection.rollback()
    assert rows.ids() == set()


@pytest.mark.parametrize("name", ["seen", "seen_of", "add_new", "clean", "oldest"])
def test_ids_are_looked_up_in_an_index(postgresql, name):
    """However many there are."""
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    postgresql.execute(
        "INSERT INTO \"Sales_OutboxData\" SELECT i, true, now() - interval '8 days', 'x', '[]' FROM "
        "generate_series(1, 50000) AS i"
    )
    with opened(postgresql) as (connection, outbox), connection.transaction():
        ids = connection.dialect.bind_texts([str(number) for number in range(4_000)])
        parameters = {"ids": ids, "version": "x", "seconds": WEEK.total_seconds()}
        names = outbox.names(connection.dialect, outbox.table)
        statement = connection.dialect.render(f"outbox_{name}", **names)
        plan = connection.execute(Statement.parse(f"EXPLAIN {statement}"), parameters)
    said = "\n".join(row[0] for row in plan)
    index = {
        "seen": "Index Cond",
        "seen_of": "Index Cond",
        "add_new": "Arbiter Indexes",
        "clean": "OutboxData_DispatchedAt",
        "oldest": "OutboxData_DispatchedAt",
    }[name]
    assert (index in said, "Seq Scan" in said) == (True, False)


# -- what a table must be -----------------------------------------------------------------------------


def test_a_table_that_takes_an_id_twice_is_told(engine):
    """Its key has two columns, as where it is partitioned by DispatchedAt; another index is not unique."""
    at, id_ = (
        ('"DispatchedAt"', '"MessageId"') if engine.name == "postgresql" else ("DispatchedAt", "MessageId")
    )
    table = OutboxRows(engine).table
    engine.execute(f"CREATE TABLE {table} ({id_} varchar(200) NOT NULL, {at} {TIME[engine.name]} NOT NULL)")
    with opened(engine) as (connection, outbox):
        for index, once in ((f"UNIQUE INDEX a ON {table} ({id_}, {at})", False),
                            (f"INDEX b ON {table} ({id_})", False),
                            (f"UNIQUE INDEX c ON {table} ({at})", False),
                            (f"UNIQUE INDEX d ON {table} ({id_})", True)):  # fmt: skip
            engine.execute(f"CREATE {index}")
            with connection.transaction():
                assert (outbox.exists(), outbox.keeps_ids_once()) == (True, once)


def test_an_index_that_lets_an_id_in_twice_for_a_while_does_not_count(postgresql):
    """A filtered one, and a constraint that is looked at only at the commit."""
    postgresql.execute(
        'CREATE TABLE "Sales_OutboxData" ("MessageId" varchar(200) UNIQUE DEFERRABLE, "Dispatched" boolean)'
    )
    postgresql.execute('CREATE UNIQUE INDEX ON "Sales_OutboxData" ("MessageId") WHERE "Dispatched"')
    with opened(postgresql) as (connection, outbox), connection.transaction():
        assert outbox.keeps_ids_once() is False


def test_endpoints_that_share_a_table_are_told_apart(engine):
    """Rows of a .NET endpoint and of an earlier version tell nothing."""
    options = ConnectionOptions.parse({"url": engine.url})
    outbox_tables.create(options, "Shop.Spark")
    rows = OutboxRows(engine, "Shop_Spark")
    rows.insert("theirs")
    rows.insert("earlier", version="sqlqueue 0.1.0")
    with connect(Target.of(options)) as connection, connection.transaction():
        dotted, plain = OutboxTable(connection, "Shop.Spark"), OutboxTable(connection, "Shop_Spark")
        assert (dotted.is_shared(), plain.is_shared()) == (False, False)
        dotted.add(["a"])
        assert (dotted.is_shared(), plain.is_shared()) == (False, True)
        plain.add(["b"])
        assert (dotted.is_shared(), plain.is_shared()) == (True, True)
    assert sorted(version for _, _, version, _, _ in rows.rows()) == [
        "7.0.0.0",
        "sqlqueue 0.1.0",
        "sqlqueue 0.3.0",
        "sqlqueue 0.3.0 60db3b",
    ]
