"""Slices: contiguous, of similar bytes, and what a worker reads or takes of one with each statement."""

import itertools
from array import array
from unittest import mock

import pyarrow as pa
import pytest

from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.engines.connection import RECORD_BATCH_ROWS
from sqlqueue_spark.engines.open_connection import Reader, Target
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ClaimLost, ConnectionLost, LockTimeout
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.reading import slice_reader
from sqlqueue_spark.receive.reading.slice_reader import SliceReader
from sqlqueue_spark.receive.reading.slices import Slice, plan, slice_count
from sqlqueue_spark.row_set import RowSet

MEGABYTE = 1 << 20
READ, TAKE = Statement.parse("READ"), Statement.parse("TAKE")
PORTS = itertools.count(1)


def claimed(*runs, size=100):
    rows = RowSet(runs)
    return QueueRows(queue=mock.Mock(), live=rows, sizes=array("q", [size] * len(rows)))


def cut_alone(rows, pieces, **more):
    """The slices of one queue: each is a task of its own."""
    whole = Slice(statement=READ, queue="orders", rows=rows.live, **more)
    tasks = plan([(whole, rows.sizes)], pieces)
    return [part for (part,) in tasks]


def cut_to_take(rows, pieces, most_rows):
    whole = Slice(statement=TAKE, queue="orders", rows=rows.live)
    tasks = plan([(whole, rows.sizes)], pieces, most_rows=most_rows)
    return [part for (part,) in tasks]


def test_a_claim_is_cut_into_contiguous_slices():
    assert cut_alone(claimed((1, 3), (7, 9)), 2) == [
        Slice(statement=READ, queue="orders", rows=RowSet([(1, 3)])),
        Slice(statement=READ, queue="orders", rows=RowSet([(7, 9)])),
    ]


def test_each_slice_gets_its_own_witnesses():
    witnesses = {1: "one", 3: "three", 5: "of a row that another consumer took", 9: "nine"}
    parts = cut_alone(claimed((1, 3), (7, 12)), 3, witnesses=witnesses)
    assert [(part.rows, part.witnesses) for part in parts] == [
        (RowSet([(1, 3)]), {1: "one", 3: "three"}),
        (RowSet([(7, 9)]), {9: "nine"}),
        (RowSet([(10, 12)]), {}),
    ]


def test_slices_to_take_are_cut_into_statements():
    """They are the same slices as those to read."""
    assert cut_to_take(claimed((1, 6), (10, 15)), 2, 4) == [
        Slice(statement=TAKE, queue="orders", rows=RowSet([(1, 6)]), counts=(4, 2)),
        Slice(statement=TAKE, queue="orders", rows=RowSet([(10, 15)]), counts=(4, 2)),
    ]


@pytest.mark.parametrize(
    "size, counts", [(MEGABYTE, (8, 2)), (5 * MEGABYTE, (1,) * 10), (100 * MEGABYTE, (1,) * 10)]
)
def test_a_statement_takes_at_most_8_megabytes(size, counts):
    """Or one row."""
    (part,) = cut_to_take(claimed((1, 10), size=size), 1, 4000)
    assert part.counts == counts


def test_sizes_belong_to_the_rows_of_their_slice():
    rows = QueueRows(
        queue=mock.Mock(), live=RowSet([(1, 20)]), sizes=array("q", [*[7 * MEGABYTE] * 4, *[MEGABYTE] * 16])
    )
    counts = [part.counts for part in cut_to_take(rows, 2, 4000)]
    assert counts == [(1, 1, 1, 1), (8, 8)]


# -- what is read by one range ----------------------------------------------------------------------


def test_rows_that_are_near_are_read_by_one_range():
    """A statement costs about as much as 200 rows."""
    runs = [(1, 10), (211, 220), (422, 430)]
    part = Slice(statement=READ, queue="orders", rows=RowSet(runs))
    assert list(part.ranges()) == [RowSet(runs[:2]), RowSet(runs[2:])]


class Table(Reader):
    """A table of these rows, and the ranges that were read of it."""

    def __init__(self, rows):
        self.rows = rows
        self.asked = []

    def batches(self, statement, rows, schema):  # noqa: ARG002 -- there is one statement
        first, last = rows.first, rows.last
        self.asked.append((first, last))
        numbers = [row for row in self.rows if first <= row <= last]
        empty = [pa.nulls(len(numbers), field.type) for field in schema][:-1]
        found = pa.RecordBatch.from_arrays([*empty, pa.array(numbers, pa.int64())], schema=schema)
        for start in range(0, max(1, len(numbers)), RECORD_BATCH_ROWS):
            yield found.slice(start, RECORD_BATCH_ROWS)

    def take(self, statement, parameters, schema):
        raise NotImplementedError

    def close(self):
        pass


@pytest.fixture
def read(monkeypatch):
    """Reads a slice of a table; the RowVersions of the rows and the ranges that were asked for."""

    def run(table, part):
        monkeypatch.setattr(slice_reader, "open_reader", lambda _: table)
        # A worker keeps its connection for the next slice of the same place,
        # so each table has a place of its own.
        batches = SliceReader(Target(url=f"Server=nowhere,{next(PORTS)}")).read(part)
        return [row for batch in batches for row in batch["RowVersion"].to_pylist()], table.asked

    return run


def test_all_rows_come_in_order_and_no_one_elses(read):
    rows = RowSet([(1, 5_000), (5_003, 7_000), (7_500, 7_600)])
    part = Slice(statement=READ, queue="orders", rows=rows)
    assert read(Table(range(-10, 8_000)), part) == (
        [*range(1, 5_001), *range(5_003, 7_001), *range(7_500, 7_601)],
        [(1, 7_000), (7_500, 7_600)],
    )


@pytest.mark.parametrize("lost", [1, 1_500, 2_500])
def test_a_row_that_is_gone_is_missed(lost, read):
    part = Slice(statement=READ, queue="orders", rows=RowSet([(1, 2_500)]))
    with pytest.raises(ClaimLost, match=r"^A slice of orders has 2499 of the 2500 rows that were claimed: "):
        read(Table([row for row in range(1, 2_501) if row != lost]), part)


def test_the_cost_of_a_slice_grows_with_its_rows(read):
    """Not with their square, where they are scattered."""
    scattered = range(1, 30_002, 2)
    part = Slice(statement=READ, queue="orders", rows=RowSet((row, row) for row in scattered))
    with mock.patch.object(pc, "is_in", wraps=pc.is_in) as is_in:
        assert read(Table(scattered), part) == ([*scattered], [(1, 30_001)])
        compared = [len(call.kwargs["value_set"]) for call in is_in.call_args_list]
    assert len(compared) > 1, "one record batch tells nothing"
    assert sum(compared) == len(scattered)


class Interrupted(Table):
    """A table of which each statement fails behind its first record batch, until it has failed so often."""

    def __init__(self, rows, failures):
        super().__init__(rows)
        self.failures = failures

    def batches(self, statement, rows, schema):
        for number, batch in enumerate(super().batches(statement, rows, schema)):
            if number and self.failures:
                self.failures -= 1
                raise ConnectionLost("the server fails over")
            yield batch


@pytest.mark.parametrize("failures", [1, 2])
def test_a_slice_goes_on_where_it_was_interrupted(failures, read):
    """No row comes twice, and the batch need not fail."""
    part = Slice(statement=READ, queue="orders", rows=RowSet([(1, 35_000)]))
    starts = [1, 10_001, 20_001][: failures + 1]
    assert read(Interrupted(range(1, 35_001), failures), part) == (
        [*range(1, 35_001)],
        [(start, 35_000) for start in starts],
    )


def test_a_slice_that_is_interrupted_too_long_fails(read, monkeypatch):
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 0.1)
    part = Slice(statement=READ, queue="orders", rows=RowSet([(1, 20_000_000)]))
    with pytest.raises(ConnectionLost):
        read(Failing(ConnectionLost("the server fails over")), part)


def test_a_slice_that_waits_for_a_lock_is_not_tried_again(read):
    """The session that waits for the claim then gets it."""
    table = Failing(LockTimeout("another session wants to change the table"))
    part = Slice(statement=READ, queue="orders", rows=RowSet([(1, 20_000)]))
    with pytest.raises(
        LockTimeout, match=r"^A slice of orders could not be read within 5 s, so its task fails: "
    ):
        read(table, part)
    assert table.tries == 1


class Failing(Table):
    """A table of which no statement is answered."""

    def __init__(self, error):
        super().__init__(())
        self.error, self.tries = error, 0

    def batches(self, statement, between, schema):  # noqa: ARG002 -- none is run
        self.tries += 1
        yield from ()
        raise self.error


def several(*rows, **more):
    found = []
    for at, runs in enumerate(rows):
        its = claimed(*runs)
        part = Slice(statement=READ, queue=f"queue {at}", address=f"address {at}", rows=its.live, **more)
        found.append((part, its.sizes))
    return found


def cut(tasks):
    return [[(part.address, part.queue, list(part.rows)) for part in task] for task in tasks]


def test_slices_over_several_queues_are_cut_where_bytes_are_similar():
    """A queue's rows may go on in the next slice, and a slice may have several queues."""
    parts = plan(several([(1, 6)], [(1, 2)], [(7, 10)]), 3)
    assert cut(parts) == [
        [("address 0", "queue 0", [(1, 4)])],
        [("address 0", "queue 0", [(5, 6)]), ("address 1", "queue 1", [(1, 2)])],
        [("address 2", "queue 2", [(7, 10)])],
    ]


@pytest.mark.parametrize("pieces", range(1, 20))
def test_the_slices_have_every_row_of_every_queue_once_and_in_order(pieces):
    given = several([(1, 5), (9, 9)], [(3, 3)], [], [(1, 30)])
    parts = plan(given, pieces)
    assert len(parts) <= pieces
    assert all(parts)
    for each, _ in given:
        rows = [
            row for task in parts for part in task if part.queue == each.queue for row in part.rows.rows()
        ]
        assert rows == list(each.rows.rows())


def test_slices_over_several_queues_have_the_witnesses_of_their_rows():
    (one,) = plan(several([(1, 3)], [(2, 4)], witnesses={1: "one", 4: "four"}), 1)
    assert [part.witnesses for part in one] == [{1: "one"}, {4: "four"}]


def test_slices_over_several_queues_are_taken_as_those_of_one_are():
    parts = plan(several([(1, 6)], [(1, 6)]), 2, most_rows=4)
    assert [[(part.address, part.counts) for part in task] for task in parts] == [
        [("address 0", (4, 2))],
        [("address 1", (4, 2))],
    ]  # fmt: skip


def test_without_live_rows_there_are_no_slices():
    assert plan(several([], []), 4) == []


@pytest.mark.parametrize(
    "rows, slices",
    [
        (10, 1),
        (39_999, 1),
        (79_999, 3),
        (100_000, 4),
        (624_999, 4),
        (625_000, 5),
        (1_000_000, 8),
        (5_000_000, 8),
    ],
)
def test_a_batch_has_more_than_four_slices_only_where_they_are_large(rows, slices):
    assert slice_count(rows, SourceOptions.parse({"url": "postgresql://h/d", "queue": "q"})) == slices


@pytest.mark.parametrize("cores", range(1, 9))
def test_fewer_cores_never_mean_more_slices(cores):
    """The jobs say the number of cores by maxConcurrency."""
    given = {"url": "postgresql://h/d", "queue": "q"}
    by_default = SourceOptions.parse(given)
    on_few = SourceOptions.parse({**given, "maxConcurrency": str(cores)})
    for rows in (10, 79_999, 100_000, 140_000, 624_999, 625_000, 1_000_000):
        assert slice_count(rows, on_few) == min(cores, slice_count(rows, by_default))


def test_who_sets_the_slices_has_them():
    at = {"url": "postgresql://h/d", "queue": "q"}
    few = SourceOptions.parse({**at, "minMessagesPerPartition": "50"})
    assert [slice_count(rows, few) for rows in (99, 300, 1_000_000)] == [1, 6, 8]
    many = SourceOptions.parse({**at, "maxConcurrency": "64"})
    assert [slice_count(rows, many) for rows in (39_999, 500_000, 5_000_000)] == [1, 25, 64]
