"""How many rows the next batch has, by the time that the last ones took."""

from sqlqueue_spark.receive.claiming.batch_size import BatchSize


def test_a_batch_that_lasts_too_long_gets_smaller():
    size = BatchSize(50_000, 1.0, 1_000_000)
    rows = []
    for seconds in (2.0, 2.0, 1.0, 0.5, 0.1):
        size.begins(size.rows)
        size.done(size.rows / 25_000 if seconds == 2.0 else seconds)
        rows.append(size.rows)
    assert rows == [25_000, 25_000, 25_000, 50_000, 200_000]


def test_a_batch_whose_time_does_not_depend_on_its_rows_keeps_its_size():
    size = BatchSize(50_000, 1.0, 1_000_000)
    rows = []
    for _ in range(4):
        size.begins(size.rows)
        size.done(60.0)
        rows.append(size.rows)
    assert rows == [25_000, 50_000, 50_000, 50_000]


def test_a_small_batch_says_nothing_of_a_large_one():
    size = BatchSize(50_000, 1.0, 1_000_000)
    size.begins(3)
    size.done(0.01)
    assert size.rows == 50_000


def test_a_batch_grows_while_it_is_short_and_full():
    """Towards the size that lasts two seconds: 0.7 s, and 5 µs a row."""
    size = BatchSize(100_000, 2.0, 1_000_000)
    rows = []
    for _ in range(8):
        rows.append(size.rows)
        size.begins(size.rows)
        size.done(0.7 + 5e-6 * size.rows)
    assert rows == [100_000, 166_666, 217_390, 243_308, 253_903, 257_833, 259_237, 259_732]


def test_a_batch_grows_no_further_than_the_limit():
    size = BatchSize(100_000, 2.0, 150_000)
    for _ in range(3):
        size.begins(size.rows)
        size.done(0.1)
    assert size.rows == 150_000


def test_a_short_limit_is_the_first_size():
    assert BatchSize(100_000, 2.0, 500).rows == 500


def test_a_batch_that_was_not_full_does_not_grow():
    size = BatchSize(100_000, 2.0, 1_000_000)
    size.begins(40_000)
    size.done(0.1)
    assert size.rows == 100_000


def test_a_batch_whose_claim_was_waited_for_shows_that_more_rows_fit():
    """It has fewer rows than it may, and more are there."""
    size = BatchSize(100_000, 2.0, 1_000_000)
    size.begins(40_000, more=True)
    size.done(0.1)
    assert size.rows == 160_000


def test_a_batch_whose_claim_was_waited_for_makes_no_batch_smaller():
    size = BatchSize(100_000, 2.0, 1_000_000)
    size.begins(40_000, more=True)
    size.done(1.0)
    assert size.rows == 100_000


def test_a_batch_grows_to_four_times_its_size_at_most():
    size = BatchSize(100_000, 10.0, 1_000_000)
    size.begins(100_000)
    size.done(1.0)
    assert size.rows == 400_000


def test_a_first_batch_that_waited_for_spark_makes_no_batch_smaller():
    size = BatchSize(100_000, 2.0, 1_000_000)
    size.begins(100_000)
    size.done(8.0, cold=True)
    assert size.rows == 100_000


def test_a_first_batch_that_was_short_all_the_same_makes_the_next_one_larger():
    size = BatchSize(100_000, 2.0, 1_000_000)
    size.begins(100_000)
    size.done(1.0, cold=True)
    assert size.rows == 200_000
