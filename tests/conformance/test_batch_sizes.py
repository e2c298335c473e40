"""Batches follow the time that they take, up to the limits, on every engine."""

import pytest

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.receive.claiming import scanner
from sqlqueue_spark.receive.claiming.claim_ahead import ClaimAhead
from tests.support.clock import Clock
from tests.support.driver import streaming


def sizes(engine, queue, seconds, **options):
    """How many rows each batch has, when the batches last so many seconds."""
    clock = Clock()
    given = {"claimAhead": "false", "maxMessagesPerTrigger": "1000", "neighbourHeadroom": "0", **options}
    with streaming(engine, queue, **given) as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        for each in seconds:
            assert stream.trigger()
            clock.now += each
        return [len(batch) for batch in stream.batches()]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A stream begins with ten rows."""
    monkeypatch.setattr(scanner, "_FIRST_ROWS", 10)
    monkeypatch.setattr("sqlqueue_spark.receive.claiming.batch_size.LEAST", 4)


def test_batches_grow_while_they_are_short(engine, queue):
    """The first one makes the next no smaller: Spark's own start makes it longer."""
    queue.insert(300)
    assert sizes(engine, queue, [9, 0.5, 1, 2, 2]) == [10, 10, 40, 80, 80]


def test_batches_shrink_when_they_take_long(engine, queue):
    queue.insert(300)
    assert sizes(engine, queue, [0.1, 1, 4, 3, 2.5, 1]) == [10, 40, 80, 40, 26, 20]


def test_a_claim_ahead_follows_one_batch_later(engine, queue):
    """It begins before the batch shows how large the next one may be."""
    queue.insert(500)
    assert sizes(engine, queue, [0.1, 1, 1, 1, 1, 1], claimAhead="true") == [10, 10, 40, 40, 80, 80]


def test_a_claim_ahead_that_spark_waits_for_ends_with_the_rows_of_the_present_batch(
    engine, queue, monkeypatch
):
    """Each statement locks four rows, so there are up to three more."""

    class WaitedFor(ClaimAhead):
        def _make(self, claim):
            super()._make(lambda _: claim(lambda: True))

    monkeypatch.setattr(scanner, "ClaimAhead", WaitedFor)
    monkeypatch.setattr(Target(url=engine.url).dialect, "chunk", 4)
    queue.insert(150)
    assert sizes(engine, queue, [0.1, 1, 1, 1, 0.1, 1], claimAhead="true") == [10, 10, 12, 12, 12, 12]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"maxMessagesPerTrigger": "15"}, [10, 15, 15, 15]),
        ({"maxMessagesPerTrigger": "15", "adaptiveBatch": "false"}, [15, 15, 15, 15]),
        ({"targetBatchDuration": "250ms"}, [10, 10, 10, 10]),
    ],
)
def test_the_options_bound_it(engine, queue, options, expected):
    queue.insert(100)
    assert sizes(engine, queue, [0.25] * 4, **options) == expected


def test_what_a_stopped_stream_has_learned_is_learned_anew(engine, queue):
    queue.insert(300)
    assert sizes(engine, queue, [0.1, 0.1, 0.1]) == [10, 40, 160]
    assert sizes(engine, queue, [0.1]) == [10]
