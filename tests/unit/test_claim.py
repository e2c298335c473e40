"""Where the next look begins: rows that came and went cost a small share of the time, late rows are found."""

import itertools
from unittest import mock

import pytest

from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.late_rows import Head
from sqlqueue_spark.row_set import LOWEST, RowSet


def rows(*runs, expired=()):
    return QueueRows(queue=mock.Mock(), live=RowSet(runs), expired=RowSet(expired))


def test_the_first_look_is_from_the_start():
    assert Head().next(100.0) == LOWEST


def test_the_next_look_begins_where_a_claim_ended():
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.claimed(rows((1, 7000)))
    assert (head.next(100.0), head.next(109.9)) == (7000, 7000)


def test_a_look_from_the_start_comes_again():
    """Twenty times as long after the last as that took."""
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.claimed(rows((1, 7000)))
    assert (head.next(109.99), head.next(110.0)) == (7000, LOWEST)


def test_one_look_that_waited_for_a_lock_does_not_put_off_the_next_one():
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.looked_from_start(140.0, 30.0)
    head.claimed(rows((1, 7000)))
    assert (head.next(149.99), head.next(150.0)) == (7000, LOWEST)


def test_a_first_look_that_waited_for_a_lock_puts_the_next_one_off_for_half_a_minute():
    head = Head()
    head.looked_from_start(100.0, 30.0)
    head.claimed(rows((1, 7000)))
    assert (head.next(129.99), head.next(130.0)) == (7000, LOWEST)


@pytest.mark.parametrize("takes", [0.0001, 0.01, 1.0])
def test_looks_from_the_start_take_little_time(takes):
    """At most a twentieth, whatever one costs."""
    head, now, spent, last = Head(), 0.0, 0.0, 0
    while now < 200 * takes + 1:
        if head.next(now) == LOWEST:
            now += takes
            spent += takes
            head.looked_from_start(now, takes)
        head.claimed(rows((last + 1, last + 100)))
        last += 100
        now += max(0.001, takes / 100)
    assert spent <= now / 20 + takes


def test_a_claim_given_up_leads_back_to_the_start():
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.claimed(rows((1, 7000)))
    head.look_from_start_next()
    assert head.next(100.1) == LOWEST


def test_twice_a_minute_late_rows_are_sought_in_the_whole_table():
    """Its numbers may have begun again."""
    head = Head()
    head.looked_from_start(100.0, 0.1)
    head.claimed(rows((1, 7000)))
    below, whole = [(LOWEST, 0)], [(LOWEST, 7000)]
    assert [head.late_rows(now) for now in (101.0, 102.0, 129.9, 130.0)] == [[], below, below, whole]
    head.looked_from_start(130.0, 0.1)
    assert [head.late_rows(now) for now in (131.0, 159.9, 160.0)] == [[], below, whole]
    head.look_from_start_next()
    assert head.late_rows(170.0) == below


def test_late_rows_are_sought_where_no_claim_was():
    """Once a look from the start is due; until then nowhere."""
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.claimed(rows((5, 7000), (7010, 8000), expired=[(7005, 7006)]))
    head.claimed(rows((8001, 9000), (9003, 9100)))
    assert head.late_rows(109.9) == []
    assert head.late_rows(110.0) == [(LOWEST, 4), (7000, 7004), (7006, 7009), (9000, 9002)]
    assert head.next(109.9) == 9100


def test_a_claim_from_the_start_forgets_earlier_ones():
    head = Head()
    head.claimed(rows((5, 7000)))
    head.claimed(rows((3, 3), (20, 30)))
    assert head.late_rows(0.0) == [(LOWEST, 2), (3, 19)]
    assert head.next(-1.0) == 30


def test_a_claim_given_up_may_leave_late_rows():
    """Anywhere below the next claim."""
    head = Head()
    head.claimed(rows((5, 7000)))
    head.look_from_start_next()
    head.claimed(rows((7001, 7100)))
    assert head.late_rows(0.0) == [(LOWEST, 7000)]


def test_close_ranges_of_late_rows_become_one():
    """Those that lie closest, so that no more than 16 are left."""
    head = Head()
    head.claimed(rows(*((n, n) for n in range(0, 2000, 2)), (5000, 5999), (6010, 6010)))
    ranges = head.late_rows(0.0)
    assert len(ranges) == 16
    assert (ranges[0], ranges[-1]) == ((LOWEST, -1), (5999, 6009))
    assert all(first[1] < second[0] + 1 for first, second in itertools.pairwise(ranges))
    assert {n for n in range(1, 1998, 2) if not any(after < n <= up_to for after, up_to in ranges)} == set()


def test_a_look_that_locked_nothing_leaves_late_rows():
    """They may stand anywhere up to its end."""
    head = Head()
    head.looked_from_start(100.0, 0.5)
    head.passed(7000)
    head.passed(9000)
    assert (head.next(109.9), head.late_rows(109.9)) == (9000, [])
    assert (head.next(110.0), head.late_rows(110.0)) == (LOWEST, [(LOWEST, 9000)])
