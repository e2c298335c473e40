"""How many rows the next batch has, by the time that the last ones took.

The sinks are simulated (:mod:`tests.support.simulated_sink`). The figures of the rule were chosen by other
seeds than those below.
"""

import itertools
import random
import statistics

import pytest

from sqlqueue_spark.receive.claiming.batch_size import BatchSize, SinkCost
from tests.support.simulated_sink import SimulatedSink

SEEDS = range(7_000, 7_060)
SINKS = list(itertools.product((0.0, 0.2, 1.7, 5.0), (1e-6, 4e-6, 100e-6, 50e-3)))


def first(each):
    """A program says where a function runs for each message, and then the first batch is small."""
    return 300 if each == 50e-3 else 100_000


def runs(fixed, each, batches=30):
    return [SimulatedSink(fixed, each, seed, first(each)).run(batches) for seed in SEEDS]


@pytest.mark.parametrize("fixed, each", SINKS)
def test_after_six_batches_the_pace_is_nine_tenths_of_the_best_size_set_by_hand(fixed, each):
    paces = [sum(run.batches[6:]) / sum(run.seconds[6:]) / run.best for run in runs(fixed, each)]
    assert statistics.mean(paces) >= 0.9


@pytest.mark.parametrize("fixed, each", SINKS)
def test_after_six_batches_at_most_one_in_twenty_has_less_than_three_quarters_of_the_best_pace(fixed, each):
    slow = [
        rows / seconds < 0.75 * run.best
        for run in runs(fixed, each)
        for rows, seconds in zip(run.batches[6:], run.seconds[6:], strict=True)
    ]
    assert statistics.mean(slow) <= 0.05


@pytest.mark.parametrize("fixed, each", SINKS)
def test_a_batch_is_expected_to_last_half_as_long_again_as_the_longest_at_most(fixed, each):
    """With other seeds in all but one run of 600: noise has no bound, and may make a batch much shorter."""
    assert max(max(run.seconds) for run in runs(fixed, each)) <= 30


@pytest.mark.parametrize("rows", [1_000_000, 3_000_000])
@pytest.mark.parametrize("fixed", [1.7, 5.0])
def test_a_cold_run_takes_two_fixed_costs_longer_than_with_the_best_size_set_by_hand(fixed, rows):
    by_hand = 7.0 + rows / 1_000_000 * fixed + rows * 4e-6
    more = [(SimulatedSink(fixed, 4e-6, seed).drain(rows) - by_hand) / fixed for seed in SEEDS]
    assert statistics.median(more) == pytest.approx(2)
    assert max(more) <= 5


def test_a_first_batch_of_a_slow_function_lasts_less_than_a_minute():
    assert all(run.seconds[0] <= 60 for run in runs(0.2, 50e-3, batches=1))


def test_a_sink_that_becomes_slower_gets_batches_as_if_it_had_always_been():
    run = SimulatedSink(0.2, 4e-6, 7_000).run(10)
    run.each = 100e-6
    run.run(16)
    assert max(run.seconds[-6:]) <= 30
    assert sum(run.batches[-6:]) / sum(run.seconds[-6:]) >= 0.85 * run.best


@pytest.mark.parametrize("seconds", [60, 600, 7200])
@pytest.mark.parametrize("fixed", [0.2, 1.7])
def test_ten_batches_after_a_long_pause_the_pace_is_nine_tenths_of_the_best_size_set_by_hand(fixed, seconds):
    """A database was down for two hours in the second batch, for example."""
    paces = []
    for before, each, seed in itertools.product(range(6), (1e-6, 4e-6, 1e-5), SEEDS):
        run = SimulatedSink(fixed, each, seed, pauses=0).run(before).pause(seconds).run(30)
        paces.append(sum(run.batches[-20:]) / sum(run.seconds[-20:]) / run.best)
    assert statistics.mean(paces) >= 0.9
    assert sum(pace < 0.7 for pace in paces) <= len(paces) / 50


@pytest.mark.parametrize("seconds, times", [(60, 1), (60, 2), (60, 3), (600, 3), (86_400, 3)])
def test_pauses_in_several_early_batches_leave_no_small_ones(seconds, times):
    paces = []
    for (fixed, each), seed in itertools.product([(1.7, 4e-6), (1.7, 1e-5), (5, 1e-5)], range(20)):
        run = SimulatedSink(fixed, each, seed, pauses=0)
        run.size = BatchSize(100_000, 2, 20, 1_000_000, told=True)
        run.run(1)
        for _ in range(times):
            run.pause(seconds)
        run.run(60)
        paces.append(sum(run.batches[-20:]) / sum(run.seconds[-20:]) / run.best)
    assert min(paces) >= 0.7


@pytest.mark.parametrize("fixed, each", [(0.2, 100e-6), (1.7, 1e-5), (5, 1e-5)])
def test_a_batch_that_took_no_time_leaves_no_small_ones(fixed, each):
    """Its sink had it already, for example. Then nothing seems to cost anything."""
    for seed in SEEDS:
        run = SimulatedSink(fixed, each, seed, pauses=0).run(1)
        run.size.begins(run.size.rows)
        run.size.done(0.0)
        run.run(200)
        assert sum(run.batches[-20:]) / sum(run.seconds[-20:]) >= 0.6 * run.best


def sizes(size, seconds):
    """The size after each batch, where all are full."""
    rows = []
    for each in seconds:
        size.begins(size.rows)
        size.done(each(size.rows) if callable(each) else each)
        rows.append(size.rows)
    return rows


def test_a_small_batch_makes_no_large_one_smaller():
    size = BatchSize(50_000, 1, 20, 1_000_000)
    size.begins(3)
    size.done(0.01)
    assert size.rows == 50_000


def test_a_batch_that_was_not_full_does_not_grow():
    size = BatchSize(100_000, 2, 20, 1_000_000)
    size.begins(40_000)
    size.done(0.1)
    assert size.rows == 100_000


def test_a_batch_whose_claim_was_waited_for_shows_that_more_rows_fit():
    """It has fewer rows than it may, and more are there."""
    size = BatchSize(100_000, 2, 20, 1_000_000)
    size.begins(40_000, more=True)
    size.done(0.1)
    assert size.rows == 160_000


@pytest.mark.parametrize("part", [0.01, 0.1, 0.5])
@pytest.mark.parametrize(
    "fixed, each, rows", [(0.2, 50e-3, 300), (1.7, 4e-6, 100_000), (0.2, 100e-6, 100_000)]
)
def test_where_most_rows_have_expired_a_batch_of_live_ones_is_no_longer_than_any_other(
    fixed, each, rows, part
):
    """The sink is given only the live ones, so their number is what the time tells of."""
    size = BatchSize(rows, 2, 20, 1_000_000)
    for number in range(20):
        live = round(part * size.rows)
        size.begins(size.rows, live=live, more=True)
        size.done(fixed + live * each + 7 * (number == 0), cold=number == 0)
        assert fixed + size.rows * each <= 30


def test_expired_rows_are_claimed_beside_as_many_live_ones_as_without_them():
    size = BatchSize(100_000, 2, 20, 1_000_000)
    for _ in range(20):
        size.begins(size.rows, live=size.rows // 4, more=True)
        size.done(0.5 + size.rows // 4 * 20e-6)
    assert size.rows == pytest.approx(800_000, rel=0.01)


def test_a_batch_grows_no_further_than_the_limit():
    assert sizes(BatchSize(100_000, 2, 20, 150_000), [0.1, 0.1]) == [100_000, 100_000]


def test_a_short_limit_is_the_first_size():
    assert BatchSize(100_000, 2, 20, 500).rows == 500


def test_a_first_batch_that_waited_for_spark_makes_no_batch_smaller():
    size = BatchSize(100_000, 2, 20, 1_000_000)
    size.begins(100_000)
    size.done(60, cold=True)
    assert size.rows == 100_000


def test_a_first_batch_that_waited_for_spark_makes_the_next_one_as_large_as_surely_fits():
    size = BatchSize(100_000, 2, 20, 1_000_000)
    size.begins(100_000)
    size.done(10, cold=True)
    assert size.rows == 300_000


def test_a_pause_between_triggers_makes_no_batch_smaller():
    """Each batch lasts a minute, whatever is in it: only a trigger comes once a minute."""
    assert sizes(BatchSize(100_000, 2, 20, 1_000_000), [60] * 5) == [
        25_000,
        100_000,
        400_000,
        1_000_000,
        1_000_000,
    ]


def test_between_triggers_the_rows_of_a_batch_take_no_longer_than_they_may():
    """A trigger once a minute, and 10 ms a row: only a longer batch tells what its rows take."""
    worked: list[float] = []

    def seconds(rows: int) -> float:
        worked.append(0.01 * rows)
        return max(60.0, worked[-1])

    sizes(BatchSize(300, 2, 20, 1_000_000), [seconds] * 30)
    assert max(worked) < 4 * 60
    assert 20 < max(worked[-8:]) < 81


@pytest.mark.parametrize("trigger", [30.0, 60.0])
@pytest.mark.parametrize("seconds", [1.1, 1.9, 120])
def test_a_batch_that_outlasts_the_trigger_makes_no_later_one_small(trigger, seconds):
    """The batch after it begins at once and ends at the next trigger, soon: that is no pause of triggers."""
    size, now = BatchSize(100_000, 2, 20, 1_000_000), 0.0

    def until_trigger(work: float) -> float:
        nonlocal now
        began, now = now, max(now + work, (now // trigger + 1) * trigger)
        return float(now - began)

    sizes(size, [lambda rows: until_trigger(0.2 + 4e-6 * rows)] * 6)
    sizes(size, [until_trigger(seconds * trigger)])
    assert sizes(size, [lambda rows: until_trigger(0.2 + 4e-6 * rows)] * 30)[-20:] == [1_000_000] * 20


def test_a_job_that_slows_down_gets_small_batches():
    """It tells when a batch is done, and pauses half a minute where its messages fail."""
    size = BatchSize(300, 2, 20, 1_000_000, told=True)
    assert sizes(size, [lambda rows: min(rows, 30)] * 6) == [75, 18, 10, 10, 10, 13]


def test_what_is_learned_of_the_cost_is_what_the_batches_took():
    cost = SinkCost()
    for rows in (100_000, 400_000, 800_000, 1_000_000) * 5:
        cost.learn(rows, 1.7 + 4e-6 * rows)
    assert cost.fixed == pytest.approx(1.7, rel=0.1)
    assert cost.each == pytest.approx(4e-6, rel=0.1)


def test_beside_neighbours_a_batch_lasts_twice_its_fixed_cost():
    size = BatchSize(100_000, 2, 20, 1_000_000)
    sizes(size, [lambda rows: 1.7 + 4e-6 * rows] * 5)
    seconds = size.beside_seconds
    assert seconds == pytest.approx(3.4, rel=0.4)
    assert 1.7 + 4e-6 * size.beside_neighbours == pytest.approx(3.4, rel=0.4)


def test_beside_neighbours_no_stream_is_left_with_batches_that_end_much_too_soon():
    """Equal sizes never tell the fixed cost. A batch that was short has surely room for more rows."""
    lengths = []
    for (fixed, each), seed in itertools.product([(0.05, 1e-5), (0.2, 4e-6), (1.7, 1e-5)], range(20)):
        noise, size = random.Random(seed), BatchSize(100_000, 2, 20, 1_000_000, told=True)  # noqa: S311
        for number in range(100):
            rows = size.beside_neighbours
            size.begins(rows, more=True)
            seconds = (fixed + each * rows) * noise.lognormvariate(0, 0.2)
            size.done(seconds + 6 * (number == 0), cold=number == 0)
        lengths.append((fixed + each * size.had) / max(1, 2 * fixed))
    assert 0.6 <= min(lengths) <= max(lengths) <= 2


def test_beside_neighbours_the_first_batch_is_small():
    assert BatchSize(100_000, 2, 20, 1_000_000).beside_neighbours == 300


@pytest.mark.parametrize("had, rows", [(300, 1_200), (100_000, 25_000)])
def test_beside_neighbours_a_batch_of_unknown_cost_is_so_different_that_it_shows(had, rows):
    """A small one grows, and a large one shrinks."""
    size = BatchSize(100_000, 2, 20, 1_000_000)
    size.begins(had)
    assert size.beside_neighbours == rows
