"""The numbers of rows that were not there and may still appear."""

from sqlqueue_spark.administration.queue_follow import Gaps
from sqlqueue_spark.row_set import HIGHEST, LOWEST


def test_a_number_that_was_not_there_is_awaited_for_a_while():
    now = [100.0]
    gaps = Gaps(clock=lambda: now[0])
    gaps.notice(0, 5, [2, 4, 5])
    now[0] = 130.0
    gaps.notice(5, 8, [8])
    assert gaps.awaited() == [1, 3, 6, 7]
    now[0] = 160.0
    assert gaps.awaited() == [1, 3, 6, 7]
    now[0] = 160.5
    assert gaps.awaited() == [6, 7]


def test_a_number_that_appears_is_awaited_no_longer():
    gaps = Gaps()
    gaps.notice(0, 5, [5])
    gaps.appeared([2, 3])
    assert gaps.awaited() == [1, 4]
    gaps.appeared([1, 4])
    assert gaps.awaited() == []


def test_of_many_numbers_the_highest_are_awaited():
    """However far the numbers are apart."""
    gaps = Gaps()
    gaps.notice(LOWEST, HIGHEST, [HIGHEST])
    assert (len(gaps.awaited()), gaps.awaited()[-1]) == (9_999, HIGHEST - 1)
    gaps = Gaps()
    gaps.notice(0, 6_000, [])
    gaps.notice(6_000, 12_000, [])
    assert (len(gaps.awaited()), gaps.awaited()[0], gaps.awaited()[-1]) == (10_000, 2_001, 12_000)
