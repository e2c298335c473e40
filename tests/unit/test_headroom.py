"""How many rows are left to neighbours, by what the looks at a queue have seen."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BatchSize
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.headroom import Headroom
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables.queues import Oldest


class Rows:
    """A queue whose rows are numbers, and which looks as a real one does."""

    table = SimpleNamespace(name="orders")

    def __init__(self, rows):
        self.rows = list(rows)
        self.held, self.streams, self.looking, self.looks = 0, 0, 0, 0

    def oldest(self, after, left_to, onward, count):
        self.looks += 1
        before = [row for row in self.rows if after < row <= left_to]
        found = (before + [row for row in self.rows if row > onward])[:count]
        return Oldest(
            free_before=len(before),
            held=self.held,
            floor=found[0] - 1 if found else max(left_to, onward),
            last=found[-1] if found else max(left_to, onward),
            free=len(found),
            enough=len(found) >= count,
            streams=self.streams,
            looking=self.looking,
        )

    def take(self, count):
        self.rows = self.rows[count:]


class Beside:
    """A headroom, and a stream that claims ``batch`` rows a batch, which lasts a second."""

    def __init__(self, rows, wanted=None, batch=1_000):
        self.now = 0.0
        self.queue: Any = Rows(rows)
        self.size = BatchSize(100_000, 2, 20, HIGHEST)
        #: What the neighbours do while the stream measures their pace.
        self.sleeps: Callable[[], object] = lambda: None
        self.headroom = Headroom(wanted, lambda: self.now, self.sleep, self.size)
        self.batch = batch

    def sleep(self, _: float) -> None:
        self.sleeps()

    def claim(self):
        """The first row of the next batch; None where it may have none."""
        above = self.headroom.begin(self.queue)
        free = [row for row in self.queue.rows if row > above][: self.batch]
        taken = set(free)
        self.queue.rows = [row for row in self.queue.rows if row not in taken]
        if free:
            full = len(free) == self.batch
            rows = QueueRows(queue=self.queue, live=RowSet([(free[0], free[-1])]), full=full)
            self.size.begins(len(free), more=full)
            self.headroom.claimed(self.queue, above, rows)
            self.size.done(1.0)
        self.now += 1.0
        return free[0] if free else None


def test_without_neighbours_nothing_is_left():
    beside = Beside(range(1, 10_000))
    assert [beside.claim() for _ in range(3)] == [1, 1_001, 2_001]
    assert (beside.headroom.beside_neighbours, beside.headroom.left) == (False, 0)
    assert beside.headroom.limited(BatchLimits(rows=70, bytes=8)) == BatchLimits(rows=70, bytes=8)


def test_rows_that_vanish_behind_a_claim_are_a_neighbours():
    beside = Beside(range(1, 100_000))
    assert beside.claim() == 1
    beside.queue.take(10)  # 1001 to 1010
    assert beside.claim() == 1_011 + 1_000  # as many as the last batch had are left
    assert (beside.headroom.rows, beside.headroom.left) == (1_000, 1_000)


def test_rows_that_another_stream_may_have_taken_are_no_sign():
    beside = Beside(range(1, 100_000))
    beside.claim()
    beside.queue.take(10)
    beside.queue.streams = 1
    assert beside.claim() == 1_011
    assert not beside.headroom.beside_neighbours


@pytest.mark.parametrize("held, looking, streams", [(8, 0, 0), (0, 8, 0), (0, 2, 1)])
def test_neighbours_that_hold_rows_or_look_for_one_are_a_sign(held, looking, streams):
    """To look is a sign beside another stream, too."""
    beside = Beside(range(1, 100_000))
    beside.queue.held, beside.queue.looking, beside.queue.streams = held, looking, streams
    assert [beside.claim(), beside.claim()] == [1, 2_001]


def test_who_looks_for_a_row_for_ever_is_forgotten_until_others_come():
    beside = Beside(range(1, 100_000))
    beside.queue.looking = 1
    assert [beside.claim() for _ in range(4)] == [1, 2_001, 1_001, 3_001]
    beside.queue.looking = 2
    assert [beside.claim(), beside.claim()] == [5_001, 6_001]


def test_the_headroom_grows_while_it_is_taken_whole():
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    beside.queue.take(16)
    sizes = []
    for _ in range(4):
        beside.claim()
        sizes.append(beside.headroom.rows)
        beside.queue.take(beside.headroom.rows)
    assert sizes == [1_000, 4_000, 16_000, 64_000]


def test_beside_another_stream_it_grows_to_32_000_only():
    """That stream takes from it, too, so this one cannot tell what the neighbours took."""
    beside = Beside(range(1, 1_000_000))
    beside.queue.looking, beside.queue.streams = 8, 1
    beside.claim()
    sizes = []
    for _ in range(5):
        beside.claim()
        sizes.append(beside.headroom.rows)
        beside.queue.take(beside.headroom.left)
    assert sizes == [1_000, 4_000, 16_000, 32_000, 32_000]


def sizes_while_they_take(*numbers):
    """The headroom behind each claim. Before it, neighbours that were just seen took this number of rows."""
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    beside.queue.take(16)
    sizes = []
    for taken in numbers:
        beside.queue.take(taken)
        beside.claim()
        sizes.append(beside.headroom.rows)
    return sizes


def test_the_headroom_follows_the_neighbours_pace():
    """Twice as much as they take while a batch lasts; it shrinks by half at most."""
    sizes = sizes_while_they_take(0, 900, 900, 50, 50, 50, 50)
    assert sizes == [1_000, 1_800, 1_800, 900, 450, 225, 112]


def test_while_a_backlog_waits_the_headroom_is_filled_up_for_eight_seconds():
    """In between it stays where it is, so the neighbours meet no row that the stream has drained."""
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    beside.queue.take(16)
    beside.claim()
    seen = []
    for _ in range(8):
        beside.queue.take(500)
        beside.claim()
        seen.append((beside.headroom.left, beside.headroom.end))
    stays = [(rows, 6_516) for rows in range(3_500, 500, -500)]
    assert seen == [(4_000, 6_516), *stays, (4_000, 17_016)]


def test_at_the_end_of_a_backlog_the_headroom_is_what_they_take_in_two_seconds():
    beside = Beside(range(1, 6_000))
    beside.claim()
    beside.queue.take(16)
    beside.claim()
    beside.queue.take(900)
    assert (beside.claim(), beside.headroom.left) == (4_717, 1_800)


def test_neighbours_that_pause_find_the_same_headroom_again():
    assert sizes_while_they_take(0, 900, 0, 0, 0, 0, 900) == [1_000, *6 * [1_800]]


def test_neighbours_that_take_nothing_for_five_seconds_are_gone():
    beside = Beside(range(1, 100_000))
    beside.claim()
    beside.queue.take(16)
    assert beside.claim() == 2_017
    beside.queue.take(1)
    seen = []
    for _ in range(7):
        beside.claim()
        seen.append(beside.headroom.beside_neighbours)
    assert seen == [True, True, True, True, True, False, False]


def test_neighbours_that_have_starved_in_a_batch_are_waited_for_as_others_are():
    """They have taken nothing, and hold nothing now: they pause. Only who still looks may be dead."""
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    seen = []
    for second in range(30):
        if second in (0, 10):
            beside.queue.looking = 8
            assert [beside.headroom.sees(beside.queue) for _ in range(2)] == [False, True]
            beside.queue.looking = 0
        beside.claim()
        seen.append(beside.headroom.beside_neighbours)
    assert seen == 5 * [True] + 5 * [False] + 10 * [True] + 10 * [False]


def test_neighbours_that_come_back_soon_are_waited_for_twice_as_long():
    """Receivers that are busy two seconds of ten keep their headroom from the second time on."""
    beside = Beside(range(1, 60_000))
    beside.claim()
    seen = []
    for second in range(30):
        if second % 10 < 2:
            beside.queue.take(50)
        beside.claim()
        seen.append(beside.headroom.beside_neighbours)
    assert seen == 6 * [True] + 4 * [False] + 20 * [True]


def test_the_pace_of_neighbours_is_measured_before_the_first_headroom():
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    beside.queue.take(16)
    beside.sleeps = lambda: beside.queue.take(250)  # a thousand a second
    beside.claim()
    assert beside.headroom.rows == 2_000


def test_a_pace_measured_behind_a_batch_in_which_they_starved_is_no_bound():
    """They may just be beginning again, or stop."""
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    beside.queue.take(16)
    beside.sleeps = lambda: beside.queue.take(4)  # sixteen a second
    beside.claim()
    assert beside.headroom.rows == 1_000


def test_receivers_that_run_before_the_first_claim_keep_the_oldest_rows():
    beside = Beside(range(1, 100_000))
    beside.queue.looking = 8
    beside.sleeps = lambda: beside.queue.take(250)
    assert (beside.claim(), beside.headroom.rows) == (2_251, 2_000)


def test_receivers_that_hold_no_row_when_it_is_looked_are_seen_by_what_they_take():
    beside = Beside(range(1, 100_000))
    beside.sleeps = lambda: beside.queue.take(250)
    assert (beside.claim(), beside.headroom.rows) == (2_251, 2_000)


@pytest.mark.parametrize("rows, most", [(7_999, HIGHEST), (100_000, 7_999)])
def test_no_pace_is_measured_before_a_claim_that_is_soon_stepped_over(rows, most):
    beside = Beside(range(1, rows + 1))
    beside.sleeps = pytest.fail
    assert beside.headroom.begin(beside.queue, most) == LOWEST


def test_one_sighting_during_a_batch_is_no_neighbour():
    """An administrator's SELECT FOR UPDATE, or the check of a foreign key."""
    beside = Beside(range(1, 1_000_000))
    beside.claim()
    seen = []
    for looking in (1, 0, 1, 1):
        beside.queue.looking = looking
        seen.append(beside.headroom.sees(beside.queue))
    assert seen == [False, False, False, True]
    beside.queue.looking = 0
    beside.claim()
    assert beside.headroom.beside_neighbours


def test_the_oldest_rows_are_left_though_a_claim_ahead_stood_there():
    """The watch gives it up when it sees neighbours: its rows are the oldest free ones again."""
    beside = Beside(range(1, 100_001))
    beside.claim()
    ahead = QueueRows(queue=beside.queue, live=RowSet([(1_001, 50_000)]), full=True)
    beside.headroom.claimed(beside.queue, 1_000, ahead)
    beside.queue.looking = 8
    assert [beside.headroom.sees(beside.queue) for _ in range(2)] == [False, True]
    beside.sleeps = lambda: beside.queue.take(250)
    assert (beside.claim(), beside.headroom.left) == (9_251, 8_000)


def test_the_pace_of_who_gives_a_row_back_while_it_is_measured_is_not_known():
    beside = Beside([11, *range(13, 10_000)])
    beside.queue.held = 1
    beside.sleeps = lambda: beside.queue.rows.insert(1, 12)
    assert beside.claim() == 11
    assert beside.headroom.rows == 1_000  # as many as the batch has


def test_two_looks_in_a_moment_are_not_two_seconds():
    beside = Beside(range(1, 100_000))
    beside.claim()
    beside.queue.take(16)
    beside.claim()
    for _ in range(5):
        beside.now -= 0.9
        beside.claim()
    assert beside.headroom.beside_neighbours


def test_who_holds_rows_and_takes_none_is_known_from_then_on():
    """He may be dead, and hold them until his connection ends."""
    beside = Beside(range(1, 100_000))
    beside.queue.held = 8
    assert [beside.claim() for _ in range(6)] == [1, 2_001, 1_001, 3_001, 4_001, 5_001]
    beside.queue.held = 9
    beside.claim()
    assert beside.headroom.beside_neighbours


def known(beside, *, held, looking):
    """Sessions that hold and seek rows, take none, and are forgotten."""
    beside.claim()
    beside.queue.held, beside.queue.looking = held, looking
    for _ in range(4):
        beside.claim()
    assert not beside.headroom.beside_neighbours


def test_newcomers_are_seen_beside_a_session_that_holds_more_rows_than_they_are_sessions():
    beside = Beside(range(1, 1_000_000))
    known(beside, held=5, looking=1)
    assert [beside.headroom.sees(beside.queue) for _ in range(2)] == [False, False]
    beside.queue.looking = 4
    assert [beside.headroom.sees(beside.queue) for _ in range(2)] == [False, True]


def test_newcomers_are_seen_in_the_place_of_sessions_that_were_forgotten():
    beside = Beside(range(1, 1_000_000))
    known(beside, held=0, looking=8)
    found = []
    for looking in (8, 0, 4, 4):
        beside.queue.looking = looking
        found.append(beside.headroom.sees(beside.queue))
    assert found == [False, False, False, True]


def test_a_queue_with_fewer_rows_is_left_whole():
    beside = Beside(range(1, 500), batch=100)
    beside.claim()
    beside.queue.take(5)
    beside.size.begins(4_000)
    assert beside.headroom.begin(beside.queue) == HIGHEST
    assert beside.headroom.left == 394


@pytest.mark.parametrize("wanted", [7, 300])
def test_a_fixed_headroom_is_there_from_the_start(wanted):
    """While rows of it are taken."""
    beside = Beside(range(1, 100_000), wanted)
    firsts = []
    for _ in range(4):
        firsts.append(beside.claim())
        beside.queue.take(wanted)
    assert firsts == [wanted + 1 + n * (wanted + 1_000) for n in range(4)]
    for _ in range(5):
        beside.claim()
    oldest = beside.queue.rows[0]
    assert beside.claim() == oldest


def test_no_headroom_asks_nothing():
    beside = Beside(range(1, 100_000), 0)
    beside.queue.held = 8
    assert [beside.claim(), beside.claim(), beside.queue.looks] == [1, 1_001, 0]


def test_a_claim_that_was_given_back_is_not_skipped():
    beside = Beside(range(1, 100_000), 100)
    assert beside.claim() == 101
    beside.headroom.forget_claims()
    beside.queue.rows = list(range(50, 100_000))  # 49 were taken, and the claim came back
    assert beside.claim() == 150


def test_the_lowest_row_of_all_may_be_left():
    beside = Beside([LOWEST + 1, *range(1, 50)], 1)
    assert beside.claim() == 1


def test_where_receivers_do_not_show_a_claim_is_no_larger_than_they_step_over_while_its_batch_lasts():
    beside, limits = Beside(range(1, 100)), BatchLimits(rows=1_000_000, bytes=8)
    beside.claim()
    assert beside.headroom.limited(limits, told=False).rows == 100_000
    beside.size.done(3)
    assert beside.headroom.limited(limits, told=False).rows == 300_000
    assert beside.headroom.limited(limits).rows == 1_000_000
    assert Beside([], wanted=0).headroom.limited(limits, told=False).rows == 1_000_000
