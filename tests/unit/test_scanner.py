"""When late rows are looked for, how many rows each queue may have, and what a claim that failed leaves."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.receive.claiming.next_batch import BatchMaker, NextBatch
from sqlqueue_spark.receive.claiming.shares_of_queues import take_turns
from sqlqueue_spark.receive.claiming.stream_scanner import Scanner
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables.queues import Oldest

OPTIONS = SourceOptions.parse(
    {"url": "postgresql://h/d", "queue": "orders", "pollInterval": "1ms", "neighbourHeadroom": "0"}
)
NAME = "orders@[public]@[d]"
ROW = RowSet([(7, 7)])


class SlowPool(ConnectionPool):
    """The first connection takes a minute, as with a database that has to wake up; it is kept."""

    def __init__(self, now):
        super().__init__(OPTIONS, None)
        self._now = now
        self._seconds = 60.0

    def borrow(self):
        self._now[0] += self._seconds
        self._seconds = 0.0
        self.opened_before, self.names = True, {Table(table="orders", schema="public"): NAME}
        dialect = SimpleNamespace(tells_receivers=True)
        connection = SimpleNamespace(rollback=lambda: None, close=lambda: None, dialect=dialect)
        queue = SimpleNamespace(connection=connection, name=NAME, table=SimpleNamespace(name=NAME))
        queue.oldest = self.oldest
        return SimpleNamespace(
            connection=connection,
            rollback=connection.rollback,
            hurry=lambda: None,
            several=False,
            at=lambda _: queue,
        )

    def give_back(self, session):
        pass

    def oldest(self, *looked):
        raise AssertionError(f"It leaves no rows to neighbours, and looks at {looked}.")


class Seen(BatchMaker):
    """Sees one row from the start of the queue, and locks none."""

    def __init__(self, now, seconds):
        super().__init__(OPTIONS, lambda: now[0])
        self.now, self.seconds, self.looks = now, seconds, []

    def find(self, queue, after, *_):
        self.now[0] += self.seconds
        self.looks.append(after)
        return QueueRows(queue=queue, live=ROW, locked=False) if after == LOWEST else None

    def make(self, _, start, turn):
        parts = turn()
        end = Offset(queue=NAME, identity="", live=ROW, expired=RowSet())
        return NextBatch(start, end, parts) if parts else None


@pytest.mark.parametrize("seconds", [0.25, 0.5])
def test_time_to_connect_does_not_delay_late_rows(seconds):
    """They are looked for by how long a look took."""
    now = [0.0]
    maker, pool = Seen(now, seconds), SlowPool(now)
    scanner = Scanner(OPTIONS, pool, maker, lambda: now[0], lambda _: None)
    scanner._list()
    scanner._members[NAME].backlog._next_look = 1e9
    pool._seconds = 60.0  # for the connection of the first look
    assert scanner.next(None, 10) is not None
    now[0] += 20 * seconds - 0.1
    assert scanner.next(None, 10) is None
    now[0] += 0.2
    assert scanner.next(None, 10) is not None
    assert maker.looks == [LOWEST, 7, LOWEST]


class Lost(Seen):
    """Locks a row, and then loses its connection."""

    def make(self, *given):
        turn = given[-1]
        assert turn() != []
        raise ConnectionLost("The connection was lost.")


class TwoFreeRows(SlowPool):
    """Notes above which row each look goes on that finds what is left to neighbours."""

    def __init__(self, now):
        super().__init__(now)
        self.onward = []

    def oldest(self, *looked):
        self.onward.append(looked[2])
        return Oldest(
            free_before=0, held=0, floor=LOWEST, last=LOWEST, free=2, enough=True, streams=0, looking=0
        )


def test_rows_of_a_claim_that_was_lost_count_as_free():
    """Else they would not be left to neighbours that seek the oldest rows."""
    now = [0.0]
    maker, pool = Lost(now, 0.0), TwoFreeRows(now)
    options = dataclasses.replace(OPTIONS, neighbour_headroom=2)
    scanner = Scanner(options, pool, maker, lambda: now[0], lambda _: None)
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            scanner.next(None, 10)
    assert pool.onward == [LOWEST, LOWEST]


@pytest.mark.parametrize("rows, shares", [(HIGHEST, [HIGHEST] * 3), (100, [34, 33, 33]), (2, [1, 1])])
def test_queues_have_equal_shares_and_of_everything_each_has_all(rows, shares):
    """A share of everything that is a number is a limit beside one-row receivers."""
    given: list[int] = []

    def look(_, turn):
        given.append(turn.limits.rows)
        return QueueRows(queue=turn.queue, live=RowSet([(1, min(turn.limits.rows, 40))]))

    session: Any = SimpleNamespace(hurry=lambda: None, several=True, at=lambda table: table)
    queues: Any = [SimpleNamespace(name=name, table=name, full=False, served=0) for name in "abc"]
    list(take_turns(session, queues, BatchLimits(rows=rows, bytes=HIGHEST), look))
    assert given == shares
