"""Many receivers on one queue: each message is handled once, and no receiver pays for rows that are gone."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from tests.support.driver import at_step, crash, streaming
from tests.support.messages import row_ids
from tests.support.neighbour import Habits, Neighbour
from tests.support.waiting import eventually


def test_streams_and_a_neighbour_handle_each_message_once(engine, queue):
    """Two streams, and an endpoint with four receivers that rolls back a tenth of what it receives."""
    queue.insert(20_000)
    options = {"maxMessagesPerTrigger": "500", "minMessagesPerPartition": "200", "maxConcurrency": "2"}
    habits = Habits(concurrency=4, rolls_back=0.1, rest=timedelta(milliseconds=10))
    with (
        streaming(engine, queue, commit=True, **options) as one,
        streaming(engine, queue, commit=False, **options) as other,
        Neighbour(engine, queue, habits).running() as neighbour,
        ThreadPoolExecutor(2) as executor,
    ):
        for each in [executor.submit(stream.drain) for stream in (one, other)]:
            each.result()
        # SQL Server's readers do not count what the neighbour holds.
        eventually(lambda: neighbour.counts().handled + len(one.ids()) + len(other.ids()) >= 20_000)
    handled = neighbour.handled
    everything = [*handled, *one.ids(), *other.ids()]
    assert (sorted(everything), queue.count()) == (row_ids(range(20_000)), 0)
    assert min(len(handled), len(one.sink), len(other.sink), neighbour.counts().rolled_back) > 0
    assert (one.crashes, other.crashes) == (0, 0)


@pytest.mark.tier("all")
def test_neighbours_that_come_and_die_in_the_middle_of_a_backlog_lose_nothing(engine, queue):
    """They die with rows in their hands. Those are free again once the server notices."""
    queue.insert(6000)
    handled: list[UUID] = []
    habits = Habits(concurrency=4, handling=timedelta(milliseconds=1), rest=timedelta(milliseconds=10))
    with (
        streaming(engine, queue, maxMessagesPerTrigger="100") as stream,
        ThreadPoolExecutor(1) as executor,
    ):
        drained = executor.submit(stream.drain)
        deaths = 0
        while not drained.done() and deaths < 8:
            neighbour = Neighbour(engine, queue, habits).start()
            eventually(lambda: neighbour.counts().handled > 50 or drained.done())  # noqa: B023 -- it is called here
            neighbour.hang()
            eventually(lambda: len(neighbour.holding()) == 4 or drained.done())  # noqa: B023
            deaths += len(neighbour.holding()) == 4
            neighbour.die()
            handled += neighbour.handled
        drained.result()
        # What the last one held is free when the server notices; SQL Server's readers do not count it before.

        def all_arrived():
            stream.drain()
            return len(handled) + len(stream.ids()) >= 6000

        eventually(all_arrived)
    assert (sorted([*handled, *stream.ids()]), queue.count()) == (row_ids(range(6000)), 0)
    assert min(len(handled), len(stream.sink), deaths) > 0


@pytest.mark.parametrize("step", [fail_points.ROWS_LOCKED, fail_points.OFFSET_LOGGED, fail_points.HALF_READ])
def test_streams_that_die_handle_each_message_once(engine, queue, step):
    """Two of them, which die before they write."""
    queue.insert(6000)
    options = {"minMessagesPerPartition": "100", "maxConcurrency": "2"}
    with (
        streaming(engine, queue, commit=True, maxMessagesPerTrigger="300", **options) as one,
        streaming(engine, queue, commit=True, maxMessagesPerTrigger="200", **options) as other,
        at_step(step, crash, on=range(3, 24, 4)) as crashes,
        ThreadPoolExecutor(2) as executor,
    ):
        for each in [executor.submit(stream.drain) for stream in (one, other)]:
            each.result()
        everything = [*one.ids(), *other.ids()]
        assert (sorted(everything), queue.count()) == (row_ids(range(6000)), 0)
        assert one.crashes + other.crashes == len(crashes) == 6


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "of a full table"])
def test_no_statement_reads_more_than_its_rows(postgresql, statistics):
    queue = postgresql.create_queue()
    if statistics == "of an empty table":
        queue.execute("ANALYZE {table}")
    queue.insert(20_000)
    if statistics == "of a full table":
        queue.execute("ANALYZE {table}")
    scattered = POSTGRESQL.bind(RowSet((row, row) for row in range(1, 2000, 2)))
    everything = {"after": LOWEST, "up_to": HIGHEST, "count": 4000, "object_id": 0, "name": "orders"}
    asked = {
        "claim": everything,
        "lock": scattered,
        "delete": scattered,
        "ids": scattered,
        "read": {"first": 100, "last": 200},
        "highest": {},
        "waiting": {"after": 100},
        "look": everything,
        "take": {"first": 100, "last": 200, "count": 50},
    }
    plans = {}
    with connect(Target(url=postgresql.url)) as connection:
        for name, parameters in asked.items():
            nulls = dict.fromkeys(("CorrelationId", "ReplyToAddress", "Recoverable", "in_transit"), "NULL")
            names = {"queue": '"public"."orders"', "catalog": "", "largest_row": "1000000000"}
            statement = POSTGRESQL.render(name, **names, **nulls)
            rows = connection.execute(Statement.parse(f"EXPLAIN {statement}"), parameters)
            plans[name] = "\n".join(str(row[0]) for row in rows)
    assert [name for name, plan in plans.items() if "orders_seq_key" not in plan] == []
    assert [name for name, plan in plans.items() if "Seq Scan" in plan] == []
    assert [name for name, plan in plans.items() if "Sort" in plan] == []


@pytest.mark.tier("all")
def test_looking_over_rows_that_went_takes_little_time(postgresql):
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} SET (autovacuum_enabled = false)")
    queue.insert(50_000)
    with queue.session() as other, streaming(postgresql, queue, maxMessagesPerTrigger="20") as stream:
        other.take()  # so that no entry of a row that goes can be cleaned up
        queue.execute("DELETE FROM {table} WHERE seq > 1")
        queue.insert(20_000, start=50_000)
        looks: list[tuple[float, float]] = []
        assert stream.trigger()
        for connection in stream._connections:
            note_looks_from_start(connection, looks)
        while len(looks) < 4:
            assert stream.trigger()
        (_, began), *others = looks
        spent = sum(end - start for start, end in others)
        assert spent < (others[-1][1] - began) / 4
        assert others[0][1] - others[0][0] > 0.002  # they are what costs


def note_looks_from_start(connection, looks):
    execute = connection.execute

    def timed(statement, parameters=(), *, doing=""):
        began = time.monotonic()
        rows = execute(statement, parameters, doing=doing)
        if doing.startswith("claiming") and parameters["after"] == LOWEST:
            looks.append((began, time.monotonic()))
        return rows

    connection.execute = timed
