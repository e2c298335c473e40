"""A database that takes nothing (full, read-only) fails no message: the batch is tried again, then it ends.

PostgreSQL only: the errors come from its server.
"""

import json
from unittest import mock

import pytest

from sqlqueue_spark.administration import failed_retry, outbox_tables
from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.errors import DatabaseReadOnly, DatabaseTakesNothing
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from tests.support.error_rows import fail, full
from tests.support.messages import message_ids
from tests.support.outboxes import OutboxRows
from tests.support.sending import batch, ids_in, options, send

FULL = {"disk": "53100", "temporary files": "53400", "disk that fails": "58030"}


@pytest.fixture(autouse=True)
def hurried():
    """A database is given up after a moment."""
    with mock.patch.object(database_retry, "RETRY_SECONDS", 0.5):
        yield


@pytest.fixture
def orders(postgresql):
    return postgresql.create_queue()


@pytest.fixture
def error(postgresql):
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    return postgresql.create_queue("error")


def fill(postgresql, state="53100"):
    """From here on the table orders has no room."""
    postgresql.execute(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE 'could not extend file' USING ERRCODE = '{state}'; END $$"
    )
    postgresql.execute(
        "CREATE TRIGGER no_room BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no_room()"
    )


@pytest.mark.parametrize("state", FULL.values(), ids=list(FULL))
@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_a_full_database_fails_the_batch_and_no_message(postgresql, orders, error, outbox, state):
    fill(postgresql, state)
    given = options(postgresql, outbox=outbox, errorQueue="error")
    with pytest.raises(
        DatabaseTakesNothing, match="does not take what must be written while sending to"
    ) as caught:
        send(given, batch(range(3)))
    assert not isinstance(caught.value, DatabaseReadOnly)
    assert (error.count(), OutboxRows(postgresql).ids()) == (0, set())
    postgresql.execute("DROP TRIGGER no_room ON orders")
    assert (send(given, batch(range(3))), ids_in(orders)) == ((3, 0), message_ids(range(3)))


def test_a_database_that_has_room_again_gets_the_batch(postgresql, orders, error):
    """While the work is tried again."""
    fill(postgresql)
    given = options(postgresql, errorQueue="error")
    rid = iter([lambda: None, lambda: postgresql.execute("DROP TRIGGER no_room ON orders")])
    failed = database_retry.Retry._failed

    def failing(self, why):
        next(rid, lambda: None)()
        failed(self, why)

    with (
        mock.patch.object(database_retry, "RETRY_SECONDS", 30.0),
        mock.patch.object(database_retry.Retry, "_failed", failing),
    ):
        assert send(given, batch(range(3))) == (3, 0)
    assert (ids_in(orders), error.count()) == (message_ids(range(3)), 0)


def test_a_read_only_database_fails_the_batch_and_no_message(postgresql, orders, error):
    name = postgresql.url.rpartition("/")[2]
    given = options(postgresql, errorQueue="error")
    postgresql.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        with pytest.raises(DatabaseReadOnly, match="is read-only while sending to"):
            send(given, batch(range(3)))
    finally:
        postgresql.execute("SET default_transaction_read_only = off")
        postgresql.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert (orders.count(), error.count()) == (0, 0)


def test_what_a_full_database_does_not_take_stays_in_the_error_queue(postgresql, orders, error):
    fail(error, range(3), full(postgresql))
    fill(postgresql)
    done = failed_retry.retry(ConnectionOptions.parse({"url": postgresql.url}), "error", Selection())
    assert (orders.count(), error.count(), done.stayed.total()) == (0, 3, 3)


def test_a_sequence_without_another_number_is_the_tables_fault(postgresql, orders, error):
    postgresql.execute("ALTER SEQUENCE orders_seq_seq MAXVALUE 2")
    assert send(options(postgresql, errorQueue="error"), batch(range(3))) == (0, 0)
    assert (orders.count(), error.count()) == (0, 3)
    assert {"sqlqueue_spark.errors.QueueError"} == _exceptions(error)


def _exceptions(error):
    return {json.loads(row.headers)["NServiceBus.ExceptionInfo.ExceptionType"] for row in error.rows()}
