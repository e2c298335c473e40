"""Which rows a claim takes: late ones, and none that it could not tell from another."""

import itertools
import threading
from typing import Any

import pytest
from psycopg import sql

from sqlqueue_spark.errors import QueueError
from tests.support.driver import streaming
from tests.support.messages import row_ids
from tests.support.waiting import eventually

MOMENTS = ["claimed", "replayed", "planned", "written", "recovered", "cut", "settled"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_row_committed_late_comes_in_a_later_batch(engine, queue, moment):
    """Its RowVersion is lower than some of the batch that was claimed before."""
    with queue.session() as late, streaming(engine, queue) as stream:
        queue.insert(5)
        late.insert(1, start=100)
        queue.insert(5, start=5)

        def now(reached, before=lambda: None):
            if reached == moment:
                before()
                late.commit()

        assert stream.construct()
        now("claimed")
        now("replayed", stream.crash)
        slices = stream.plan()
        now("planned")
        stream.write(stream.read(slices))
        now("written")
        stream.done += 1
        now("recovered", stream.crash)
        now("cut", stream.cut)
        now("settled", stream.trigger)
        stream.drain()
        assert stream.batches() == [[1, 2, 3, 4, 5, 7, 8, 9, 10, 11], [6]]
        assert (stream.ids(), queue.count()) == (
            [*row_ids(range(5)), *row_ids(range(5, 10)), *row_ids([100])],
            0,
        )


@pytest.mark.parametrize("comes", ["late commit", "rollback"])
def test_a_row_below_the_head_is_claimed_under_load(engine, queue, comes):
    """Nothing is left to who holds it: as to a neighbour, all of these few rows would be, for two seconds."""
    queue.insert(1, start=9000)
    starts = itertools.count(0, 20)
    options: dict[str, Any] = {"maxMessagesPerTrigger": "20", "neighbourHeadroom": "0"}
    with queue.session() as other, streaming(engine, queue, **options) as stream:
        other.insert(1, start=9001) if comes == "late commit" else other.lock(1)
        low = 2 if comes == "late commit" else 1
        for _ in range(5):
            queue.insert(20, start=next(starts))
            assert stream.trigger()
        assert low not in {row for batch in stream.batches() for row in batch}
        other.commit() if comes == "late commit" else other.rollback()

        def claimed():
            queue.insert(20, start=next(starts))
            assert stream.trigger()
            return low in stream.batches()[-1]

        queue.insert(200, start=next(starts) + 10_000)  # so that there is always more than is claimed
        assert eventually(claimed)
        assert queue.count() > 100


def test_a_claim_outlives_limits_on_transactions(postgresql):
    """The server's, on how long a transaction may last or idle."""
    queue = postgresql.create_queue()
    queue.insert(10)
    name = str(postgresql.fetch("SELECT current_database()")[0][0])
    known = (
        "SELECT name FROM pg_settings WHERE name IN ('transaction_timeout', "
        "'idle_in_transaction_session_timeout')"
    )
    limits = [str(limit) for (limit,) in postgresql.fetch(known)]
    assert "idle_in_transaction_session_timeout" in limits  # the other one came with PostgreSQL 17
    for limit in limits:
        statement = sql.SQL("ALTER DATABASE {} SET {} = '300ms'")
        postgresql.execute(statement.format(sql.Identifier(name), sql.Identifier(limit)).as_string())
    with streaming(postgresql, queue) as stream:
        assert stream.construct()
        threading.Event().wait(0.6)
        assert queue.take() is None
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_claim_works_under_a_stricter_isolation(postgresql, isolation):
    """The database's default is stricter than what a claim needs,
    and another receiver takes a row meanwhile.
    """
    queue = postgresql.create_queue()
    name = str(postgresql.fetch("SELECT current_database()")[0][0])
    statement = sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}")
    postgresql.execute(statement.format(sql.Identifier(name), sql.Literal(isolation)).as_string())
    queue.insert(1000)
    with streaming(postgresql, queue) as stream, queue.session() as other:
        assert other.take(900).row_version == 900
        assert stream.construct()
        (connection, *_) = stream._connections
        assert connection.execute("SHOW transaction_isolation") == [("read committed",)]
        other.commit()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids([*range(899), *range(900, 1000)]), 0)


def test_a_claim_refuses_a_number_that_stands_twice(postgresql):
    """Before anything is deleted."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.insert(5)
    queue.execute("UPDATE {table} SET seq = 2 WHERE seq = 3")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(
            QueueError, match=r"^RowVersion 2 occurs twice in orders@\[public\]@\[\w+\], so a claim "
        ):
            stream.trigger()
        stream.crash()
        assert queue.count() == 5


def test_a_claim_refuses_a_row_without_an_id(postgresql):
    """It is said with its number."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_pkey")
    queue.execute("ALTER TABLE {table} ALTER id DROP NOT NULL")
    queue.insert(2)
    queue.execute("UPDATE {table} SET id = NULL WHERE seq = 2")
    with streaming(postgresql, queue) as stream:
        with pytest.raises(QueueError) as caught:
            stream.trigger()
        name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
        assert str(caught.value) == (
            f"The row with RowVersion 2 of {name} has no Id, by which its batch would be known "
            "again after a crash; give it one, or delete it."
        )
        assert queue.count() == 2
