"""Runs of row versions: exact, compact, and cut without being spelled out."""

import random
import tracemalloc

import pytest

from sqlqueue_spark.row_set import RowSet, balanced, bounded

FULL = (1 << 63) - 1
SETS = [
    [],
    [(0, 0)],
    [(1, 1)],
    [(1, 100_000)],
    [(1, 3), (5, 5), (7, 9)],
    [(row, row) for row in range(1, 200, 2)],
    [(-5, -3), (-1, 4)],
    [(1 << 40, (1 << 40) + 7), (1 << 62, 1 << 62)],
    [(FULL - 1, FULL)],
    [(-FULL - 1, -FULL)],
    [(-FULL - 1, -FULL), (FULL, FULL)],
    [(-(1 << 62) - 1, -(1 << 62) - 1), (1 << 62, 1 << 62)],
]


def runs_of(rows):
    runs = RowSet()
    for row in rows:
        runs.append(row)
    return runs


def test_consecutive_rows_become_one_run():
    runs = runs_of([4, 5, 6, 8, 10, 11])
    assert list(runs) == [(4, 6), (8, 8), (10, 11)]
    assert list(runs.rows()) == [4, 5, 6, 8, 10, 11]
    assert (len(runs), runs.first, runs.last) == (6, 4, 11)


def test_a_run_that_follows_on_the_last_extends_it():
    runs = RowSet([(1, 5), (6, 9), (11, 11)])
    assert list(runs) == [(1, 9), (11, 11)]
    assert len(runs) == 10


@pytest.mark.parametrize("row", [7, 5, 3, -1])
def test_a_row_not_after_the_last_is_refused(row):
    runs = RowSet([(3, 7)])
    with pytest.raises(ValueError, match=rf"^RowVersion {row} does not come after 7\.$"):
        runs.append(row)
    assert runs == RowSet([(3, 7)])


def test_runs_are_equal_when_their_rows_are():
    assert RowSet([(1, 2), (3, 4)]) == RowSet([(1, 4)])
    assert hash(RowSet([(1, 2), (3, 4)])) == hash(RowSet([(1, 4)]))
    assert RowSet([(1, 4)]) != RowSet([(1, 3)])
    assert RowSet() != []
    assert not RowSet()


def test_the_cubes_are_those_of_each_row():
    rows = RowSet([(-5, -2), (0, 3), (2**62, 2**62 + 2)])
    assert rows.cubes == sum(row**3 for row in rows.rows())
    assert RowSet().cubes == 0


def test_runs_are_shown_in_full_while_they_are_few():
    assert repr(RowSet([(1, 3), (5, 5)])) == "RowSet([(1, 3), (5, 5)])"
    assert repr(RowSet((row, row) for row in range(0, 40, 2))) == "RowSet(20 runs, 20 rows)"


@pytest.mark.parametrize("runs", SETS, ids=lambda runs: str(runs)[:40])
def test_what_was_encoded_is_decoded(runs):
    text = RowSet(runs).encode()
    assert RowSet.decode(text) == RowSet(runs)
    assert text.isascii()


def test_random_sets_survive_the_round_trip():
    choose = random.Random(7)  # noqa: S311 -- the same sets every time
    for _ in range(50):
        rows = sorted(choose.sample(range(10_000), choose.randrange(1, 2000)))
        assert list(RowSet.decode(runs_of(rows).encode()).rows()) == rows


def test_a_text_in_a_checkpoint_stays_readable():
    # Gap 1, three rows, gap 4, one row, doubled and less one for the length: 2 4 8 0.
    assert RowSet.decode("eJxjYuFgAAAAKAAP") == RowSet([(1, 3), (7, 7)])


@pytest.mark.parametrize("rows", [1, 1000, 1_000_000])
def test_a_contiguous_claim_takes_a_few_bytes(rows):
    """Whatever its size."""
    assert len(RowSet([(1 << 40, (1 << 40) + rows - 1)]).encode()) <= 32


def test_every_second_row_takes_at_most_3_bytes():
    assert len(runs_of(range(1, 200_001, 2)).encode()) <= 3 * 100_000


@pytest.mark.parametrize("share", [0.9, 0.67, 0.5, 0.33, 0.1, 0.02])
def test_random_gaps_take_at_most_3_bytes_a_row(share):
    choose = random.Random(11)  # noqa: S311 -- likewise
    rows = [row for row in range(int(50_000 / share)) if choose.random() < share]
    assert len(runs_of(rows).encode()) <= 3 * len(rows)


@pytest.mark.tier("all")
def test_a_million_scattered_rows_stay_small():
    """In memory and as a text."""
    tracemalloc.start()
    try:
        runs = RowSet((row, row) for row in range(0, 2_000_000, 2))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        text = runs.encode()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(runs) == 1_000_000
    assert held < 20 << 20
    assert peak - held < 16 << 20
    assert len(text) < 100_000


@pytest.mark.parametrize(
    "sizes, pieces",
    [
        ([7], [[(1, 3), (5, 5), (7, 9)]]),
        ([3, 4], [[(1, 3)], [(5, 5), (7, 9)]]),
        ([1, 1, 3, 2], [[(1, 1)], [(2, 2)], [(3, 3), (5, 5), (7, 7)], [(8, 9)]]),
        ([0, 7], [[], [(1, 3), (5, 5), (7, 9)]]),
        ([], []),
    ],
)
def test_runs_are_cut_into_contiguous_pieces(sizes, pieces):
    runs = RowSet([(1, 3), (5, 5), (7, 9)])
    assert list(runs.cut(sizes)) == [RowSet(piece) for piece in pieces]


@pytest.mark.parametrize(
    "rows, chunks",
    [
        (100, [[(1, 3), (5, 5), (7, 9)]]),
        (7, [[(1, 3), (5, 5), (7, 9)]]),
        (4, [[(1, 3), (5, 5)], [(7, 9)]]),
        (2, [[(1, 2)], [(3, 3), (5, 5)], [(7, 8)], [(9, 9)]]),
    ],
)
def test_a_chunk_has_rows_for_one_statement(rows, chunks):
    """No more than it may lock."""
    runs = RowSet([(1, 3), (5, 5), (7, 9)])
    assert list(runs.chunks(rows)) == [RowSet(chunk) for chunk in chunks]


def test_no_rows_are_no_chunks():
    assert list(RowSet().chunks(10)) == []
    assert list(RowSet().spans(10)) == []
    assert list(RowSet().cut([])) == []


@pytest.mark.parametrize(
    "first, last, expected",
    [
        (-100, 100, [(-5, -3), (1, 1), (10, 20)]),
        (-4, 12, [(-4, -3), (1, 1), (10, 12)]),
        (-3, 1, [(-3, -3), (1, 1)]),
        (2, 9, []),
        (11, 11, [(11, 11)]),
        (21, 30, []),
        (-30, -6, []),
    ],
)
def test_the_rows_between_two_numbers_are_found(first, last, expected):
    assert RowSet([(-5, -3), (1, 1), (10, 20)]).between(first, last) == RowSet(expected)


@pytest.mark.parametrize(
    "gap, spans",
    [
        (0, [[(1, 3)], [(5, 5)], [(8, 9)], [(100, 100)]]),
        (1, [[(1, 3), (5, 5)], [(8, 9)], [(100, 100)]]),
        (2, [[(1, 3), (5, 5), (8, 9)], [(100, 100)]]),
        (89, [[(1, 3), (5, 5), (8, 9)], [(100, 100)]]),
        (90, [[(1, 3), (5, 5), (8, 9), (100, 100)]]),
    ],
)
def test_runs_that_are_near_are_read_by_one_range(gap, spans):
    runs = RowSet([(1, 3), (5, 5), (8, 9), (100, 100)])
    assert list(runs.spans(gap)) == [RowSet(span) for span in spans]


@pytest.mark.parametrize(
    "count, spread",
    [
        (0, []),
        (1, [1]),
        (2, [1, 105]),
        (3, [1, 5, 105]),
        (10, [1, 2, 3, 4, 5, 101, 102, 103, 104, 105]),
        (99, [1, 2, 3, 4, 5, 101, 102, 103, 104, 105]),
    ],
)
def test_witnesses_are_spread_over_the_rows(count, spread):
    """With the first and the last among them, where there are two or more."""
    assert RowSet([(1, 5), (101, 105)]).spread(count) == spread


def test_witnesses_are_rows_of_the_set():
    """Whatever its shape."""
    choose = random.Random(3)  # noqa: S311 -- likewise
    for _ in range(50):
        rows = sorted(choose.sample(range(3000), choose.randrange(1, 500)))
        found = runs_of(rows).spread(32)
        assert set(found) <= set(rows)
        assert (len(found), found[0], found[-1]) == (min(32, len(rows)), rows[0], rows[-1])
        assert found == sorted(set(found))


def test_no_rows_have_no_witness():
    assert RowSet().spread(32) == []


@pytest.mark.parametrize(
    "sizes, pieces, counts",
    [
        ([], 4, []),
        ([5], 4, [1]),
        ([1, 1, 1, 1], 1, [4]),
        ([1, 1, 1, 1], 2, [2, 2]),
        ([1, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([1, 1], 4, [1, 1]),
        ([100, 1, 1, 1], 2, [1, 3]),
        ([1, 1, 1, 100], 2, [4]),
        ([1, 100, 1, 1, 1], 3, [2, 3]),
        ([0, 0, 0], 2, [1, 2]),
    ],
)
def test_rows_are_balanced_by_their_bytes(sizes, pieces, counts):
    assert balanced(sizes, pieces) == counts


@pytest.mark.parametrize(
    "sizes, most_rows, most_bytes, counts",
    [
        ([], 10, 10, []),
        ([1, 1, 1], 10, 10, [3]),
        ([1] * 7, 3, 100, [3, 3, 1]),
        ([4, 4, 4, 4], 10, 8, [2, 2]),
        ([4, 5, 4, 4], 10, 8, [1, 1, 2]),
        ([50, 1, 1, 50, 50], 10, 8, [1, 2, 1, 1]),
        ([0, 0, 0, 9], 2, 8, [2, 1, 1]),
    ],
)
def test_rows_are_cut_by_number_and_by_size(sizes, most_rows, most_bytes, counts):
    """Where the next one would be too many or too large."""
    assert bounded(sizes, most_rows, most_bytes) == counts
