"""``Outbox.process`` in a transaction of the user's own: each id is processed once,
together with what is done for it.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row, scalar_row

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.users_connection import UsersConnection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.tables.outbox import Outbox, OutboxTable
from sqlqueue_spark.tables.outbox_keys import process_key
from tests.support.waiting import eventually

OUTBOX = Outbox("Sales")


@pytest.fixture
def database(outbox_database):
    """With an outbox table, and a business table that takes what it is given, repeats too."""
    outbox_database.run_script(outbox_tables.script(outbox_database.name, "Sales"))
    outbox_database.execute("CREATE TABLE stock (id varchar(200), pieces integer)")
    return outbox_database


def write(connection, ids, outbox=OUTBOX):
    """What a foreachBatch function does for the ids, without its commit."""
    new = outbox.process(connection, ids)
    cursor = connection.cursor()
    for each in new:
        cursor.execute(f"INSERT INTO stock (id, pieces) VALUES ('{each}', 1)")
    return new


def stock(database):
    return sorted(row[0] for row in database.fetch("SELECT id FROM stock"))


def test_the_script_may_be_run_again(database):
    database.run_script(outbox_tables.script(database.name, "Sales"))
    with database.connected() as connection:
        assert OUTBOX.process(connection, ["a"]) == ["a"]


def test_the_script_s_table_keeps_each_id_once(database):
    with database.connected() as connection:
        found = OutboxTable(UsersConnection(connection, database.name), "Sales").keeps_ids_once()
    assert found is True


def test_ids_come_back_in_their_order_each_once(database):
    with database.connected() as connection:
        assert write(connection, ["b", "a", "b", "c"]) == ["b", "a", "c"]
        connection.commit()
    assert stock(database) == ["a", "b", "c"]


def test_a_repeated_batch_writes_only_what_is_missing(database):
    for ids, new in ((["a", "b"], ["a", "b"]), (["a", "b"], []), (["b", "c", "a"], ["c"])):
        with database.connected() as connection:
            assert write(connection, ids) == new
            connection.commit()
    assert stock(database) == ["a", "b", "c"]


def test_what_is_rolled_back_counts_as_never_processed(database):
    with database.connected() as connection:
        assert write(connection, ["a"]) == ["a"]
        connection.rollback()
        assert write(connection, ["a", "b"]) == ["a", "b"]
        connection.commit()
    assert stock(database) == ["a", "b"]


def test_it_never_commits(database):
    with database.connected() as connection:
        write(connection, ["a"])
    assert stock(database) == []
    with database.connected() as connection:
        assert OUTBOX.process(connection, ["a"]) == ["a"]


def test_an_id_is_new_once_in_a_transaction_too(database):
    with database.connected() as connection:
        assert OUTBOX.process(connection, ["a"]) == ["a"]
        assert OUTBOX.process(connection, ["a", "b"]) == ["b"]


@pytest.mark.needs("tells_who_holds_locks")
def test_a_twin_waits_for_what_another_is_processing(database):
    # In this order the twin is let go before it is waited for, whatever fails.
    with ThreadPoolExecutor(1) as pool, database.connected() as other, database.connected() as connection:
        assert write(connection, ["a", "b"]) == ["a", "b"]
        waiting = pool.submit(write, other, ["b", "c"])
        eventually(database.blocked)
        assert not waiting.done()
        connection.commit()
        assert waiting.result(30) == ["c"]
        other.commit()
    assert stock(database) == ["a", "b", "c"]


def test_a_large_batch_takes_several_statements(database):
    ids = [f"order {number}" for number in range(9_000)]
    with database.connected() as connection:
        assert OUTBOX.process(connection, ids[::2]) == ids[::2]
        assert OUTBOX.process(connection, ids) == ids[1::2]


@pytest.mark.parametrize("odd", ["a,b", '{"', "\\", "'; --", "50%", "?", "größe", "注文", "x" * 200])
def test_an_odd_id_is_just_an_id(database, odd):
    with database.connected() as connection:
        assert OUTBOX.process(connection, [odd, "other"]) == [odd, "other"]
        assert OUTBOX.process(connection, [odd]) == []


def test_the_drivers_own_error_passes_through(outbox_database):
    with outbox_database.connected() as connection:
        with pytest.raises(Exception, match=r"(?i)OutboxData|SALES_OD") as caught:
            OUTBOX.process(connection, ["a"])
        assert not type(caught.value).__module__.startswith("sqlqueue_spark")


def test_every_other_statement_runs_too_on_every_engine(database):
    with database.connected() as connection:
        table = OutboxTable(UsersConnection(connection), "Sales")
        assert table.exists()
        table.add(["a", "b", "größe"])
        assert table.seen(["größe", "a", "c"]) == {"a", "größe"}
        report = table.report()
        assert (report.rows, report.undispatched) == (3, 0)
        assert report.oldest_dispatched_at is not None
        assert report.oldest_age is not None
        assert abs(report.oldest_age) < timedelta(minutes=1)
        assert table.add_new(["a", "d"]) == {"d"}
        assert (table.clean(timedelta(minutes=1)), table.clean(timedelta(minutes=-1))) == (0, 4)
        connection.commit()
        table.add(["a"])
        with pytest.raises(Exception, match=r"(?i)duplicate|ORA-00001"):
            table.add(["b", "a"])


def test_cleaning_on_mysql_steps_over_held_rows(mysql):
    mysql.run_script(outbox_tables.script("mysql", "Sales"))
    with mysql.connected() as connection, mysql.connected() as other:
        table = OutboxTable(UsersConnection(connection), "Sales")
        table.add(["held", "free"])
        connection.commit()
        other.cursor().execute("SELECT 1 FROM Sales_OutboxData WHERE MessageId = 'held' FOR UPDATE")
        connection.cursor().execute("SET innodb_lock_wait_timeout = 1")
        assert table.clean(timedelta(minutes=-1)) == 1
        connection.commit()
        assert mysql.fetch("SELECT MessageId FROM Sales_OutboxData") == [("held",)]


def test_an_autocommit_connection_is_refused(postgresql):
    with (
        psycopg.connect(postgresql.url, autocommit=True) as connection,
        pytest.raises(ConfigurationError, match="exactly once would be lost; turn autocommit off"),
    ):
        OUTBOX.process(connection, ["a"])


def test_the_row_factory_of_a_connection_is_harmless(postgresql):
    outboxes_script = outbox_tables.script("postgresql", "Sales")
    postgresql.execute(outboxes_script)
    for factory in (dict_row, scalar_row):
        with psycopg.connect(postgresql.url, row_factory=factory) as connection:
            assert OUTBOX.process(connection, ["abc"]) == ["abc"]
            connection.rollback()


def test_an_id_that_a_column_cannot_keep_is_just_an_id(database):
    """Its key is ASCII."""
    face, other = "\N{GRINNING FACE}", "\N{GRINNING CAT FACE WITH SMILING EYES}"
    with database.connected() as connection:
        assert [OUTBOX.process(connection, [each]) for each in (face, other, face)] == [[face], [other], []]


def test_ids_that_a_collation_equates_are_two(database):
    """By case, trailing blanks, accents: SQL Server and MySQL take some of these for the same."""
    alike = ["order", "Order", "order ", "órder", "a", "A"]
    with database.connected() as connection:
        assert [OUTBOX.process(connection, [each]) for each in alike] == [[each] for each in alike]
        assert OUTBOX.process(connection, [*alike, "ORDER"]) == ["ORDER"]


def test_an_id_that_looks_like_the_key_of_another_is_just_an_id(database):
    like_a_key = process_key("Order")
    with database.connected() as connection:
        assert [OUTBOX.process(connection, [each]) for each in ("Order", like_a_key, like_a_key)] == [
            ["Order"], [like_a_key], [],
        ]  # fmt: skip


def test_what_was_kept_as_it_is_counts_exactly(database):
    """As version 0.1.0 kept every id."""
    with database.connected() as connection:
        OutboxTable(UsersConnection(connection), "Sales").add(["Order 1", "a-1"])
        given = ["Order 1", "order 1", "Order 1 ", "a-1"]
        assert OUTBOX.process(connection, given) == ["order 1", "Order 1 "]
        assert OUTBOX.process(connection, given) == []
