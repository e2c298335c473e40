"""A look at the numbers and Ids of all rows, and a look at some rows whole: nothing is locked,
and nothing is left out.
"""

from datetime import datetime

import pytest

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import NoRight, QueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.reading.peek import Present, check_visible, plan_rows, present_rows
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from tests.support import tampering
from tests.support.messages import body, headers, row_id

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def options(engine, queue, **more):
    return SourceOptions.parse({"url": engine.url, "queue": queue.address, **more})


def read(engine, queue, rows, **more):
    given = options(engine, queue, **more)
    parts = plan_rows(given, rows)
    reader = SliceReader(Target.of(given))
    return [batch["RowVersion"].to_pylist() for part in parts for batch in reader.peek(part)]


def test_a_look_tells_number_id_and_size_of_every_row(engine, queue):
    queue.insert(3)
    queue.take(2)
    found = list(present_rows(options(engine, queue)))
    size = engine.bytes_of(headers(0)) + len(body(0))
    assert found == [Present(1, str(row_id(0)), size), Present(3, str(row_id(2)), size)]
    assert queue.count() == 2


def test_an_empty_queue_has_no_rows(engine, queue):
    assert list(present_rows(options(engine, queue))) == []


def test_a_look_goes_on_portion_by_portion(engine, queue, monkeypatch):
    """However far apart the numbers are."""
    numbers = [LOWEST + 1, -1, 0, 1, 7, HIGHEST]
    tampering.insert_at(engine, queue, *numbers)
    monkeypatch.setattr(type(Target.of(options(engine, queue)).dialect), "chunk", 2)
    assert [row.row_version for row in present_rows(options(engine, queue))] == numbers


def test_a_look_neither_disturbs_nor_awaits_a_receiver(engine, queue):
    """A row that is only locked is seen."""
    queue.insert(3)
    with queue.locked(2):
        found = [row.row_version for row in present_rows(options(engine, queue, lockTimeout="1ms"))]
    assert found == [1, 2, 3]


def test_some_rows_are_read_and_no_others(engine, queue):
    """Those that are there and have not expired."""
    queue.insert(8)
    queue.insert(1, start=8, expires=PAST)
    queue.take(3)
    wanted = RowSet.of([1, 3, 5, 6, 9])
    assert read(engine, queue, wanted) == [[1, 5, 6]]
    assert read(engine, queue, wanted, minMessagesPerPartition="2", maxConcurrency="2") == [[1, 5], [6]]
    assert queue.count() == 8


def test_a_queue_that_is_missing_is_said_before_spark_starts(engine):
    with pytest.raises(
        QueueError, match=r"There is no queue table orders@.* create it with: sqlqueue create 'orders'"
    ):
        check_visible(SourceOptions.parse({"url": engine.url, "queue": "orders"}))


def test_who_looks_needs_select_and_no_more(postgresql, guarded_url):
    queue = postgresql.create_queue()
    queue.insert(2)
    given = SourceOptions.parse({"url": guarded_url, "queue": "orders"})
    with pytest.raises(NoRight) as caught:
        check_visible(given)
    assert str(caught.value).endswith("; a login that looks at the queue orders needs SELECT on it")
    postgresql.execute("GRANT SELECT ON orders TO guarded")
    check_visible(given)
    assert [row.row_version for row in present_rows(given)] == [1, 2]
    assert [part.rows for (part,) in plan_rows(given, RowSet.of([2]))] == [RowSet([(2, 2)])]
