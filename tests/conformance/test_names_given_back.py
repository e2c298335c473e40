"""A session in which code of a stranger may have run has its names back, and everything else as it was."""

import pytest

from sqlqueue_spark.engines.open_connection import Target, connect


def setting(connection, name):
    return connection.execute(f"SELECT pg_catalog.current_setting('{name}')")[0][0]


@pytest.fixture
def connection(postgresql):
    with connect(Target(url=postgresql.url)) as opened:
        opened.renewing = True
        yield opened


def test_a_schema_of_a_stranger_leaves_the_path(postgresql, connection):
    postgresql.execute("CREATE SCHEMA evil")
    with connection.transaction():
        before = setting(connection, "search_path")
        connection.execute("SELECT pg_catalog.set_config('search_path', 'evil, pg_catalog', false)")
        assert setting(connection, "search_path") == before
    assert setting(connection, "search_path") == before


@pytest.mark.parametrize("name, value", [("client_encoding", "LATIN1"), ("synchronous_commit", "off")])
def test_no_setting_by_which_messages_are_lost_stays(connection, name, value):
    with connection.transaction():
        before = setting(connection, name)
        connection.execute(f"SELECT pg_catalog.set_config('{name}', '{value}', false)")
        assert setting(connection, name) == before


def test_a_statement_that_was_prepared_is_not_another_one(connection):
    connection.renewing = False
    with connection.transaction():
        assert [connection.execute("SELECT 7") for _ in range(3)] == [[(7,)]] * 3
        prepared = connection.execute(
            "SELECT name FROM pg_catalog.pg_prepared_statements WHERE statement = 'SELECT 7'"
        )
        connection.renewing = True
        for (name,) in prepared:
            connection.execute(f'DEALLOCATE "{name}"')
            connection.execute(f'PREPARE "{name}" AS SELECT 8')
        assert (len(prepared), connection.execute("SELECT 7")) == (1, [(7,)])


def test_the_times_of_statements_and_the_isolation_stay(connection):
    with connection.hasty(500):
        assert setting(connection, "lock_timeout") == "500ms"
    with connection.transaction(), connection.attempt():
        assert setting(connection, "statement_timeout") == "0"
    connection.isolate("Serializable")
    with connection.transaction():
        assert setting(connection, "transaction_isolation") == "serializable"


def test_a_statement_that_failed_is_undone_all_the_same(connection):
    with connection.transaction():
        with pytest.raises(Exception, match="division"), connection.attempt():
            connection.execute("SELECT 1/0")
        assert connection.execute("SELECT 7") == [(7,)]
