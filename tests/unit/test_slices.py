"""Slices: contiguous, of similar bytes, and what a worker takes of one with each statement."""

from array import array

import pytest

from sqlqueue_spark.claims import Runs
from sqlqueue_spark.receive.claiming import Claimed
from sqlqueue_spark.receive.slices import Slice, TakingSlice, plan, plan_taking

MEGABYTE = 1 << 20


def claimed(*runs, size=100):
    rows = Runs(runs)
    return Claimed(live=rows, sizes=array("q", [size] * len(rows)))


def test_a_claim_is_cut_into_contiguous_slices():
    assert plan("READ", "orders", claimed((1, 3), (7, 9)), 2) == [
        Slice(statement="READ", queue="orders", rows=Runs([(1, 3)])),
        Slice(statement="READ", queue="orders", rows=Runs([(7, 9)])),
    ]


def test_what_is_taken_is_cut_into_the_same_slices_and_these_into_statements():
    assert plan_taking("TAKE", "orders", claimed((1, 6), (10, 15)), 2, 4) == [
        TakingSlice(statement="TAKE", queue="orders", rows=Runs([(1, 6)]), counts=(4, 2)),
        TakingSlice(statement="TAKE", queue="orders", rows=Runs([(10, 15)]), counts=(4, 2)),
    ]


@pytest.mark.parametrize("size, counts", [(MEGABYTE, (8, 2)), (5 * MEGABYTE, (1,) * 10), (100 * MEGABYTE, (1,) * 10)])  # fmt: skip
def test_a_statement_takes_at_most_eight_megabytes_or_one_row(size, counts):
    (part,) = plan_taking("TAKE", "orders", claimed((1, 10), size=size), 1, 4000)
    assert isinstance(part, TakingSlice)
    assert part.counts == counts


def test_sizes_belong_to_the_rows_of_their_own_slice():
    rows = Claimed(live=Runs([(1, 20)]), sizes=array("q", [*[7 * MEGABYTE] * 4, *[MEGABYTE] * 16]))
    counts = [part.counts for part in plan_taking("TAKE", "orders", rows, 2, 4000) if isinstance(part, TakingSlice)]  # fmt: skip
    assert counts == [(1, 1, 1, 1), (8, 8)]
