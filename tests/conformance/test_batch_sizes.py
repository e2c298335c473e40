"""Batches follow the time that they take, up to the limits, on every engine."""

import pytest

from sqlqueue_spark.receive.claiming import stream_scanner
from sqlqueue_spark.receive.claiming.claim_ahead import ClaimAhead
from tests.support.clock import Clock
from tests.support.driver import streaming


def sizes(engine, queue, seconds, **options):
    """How many rows each batch has, when the batches last these seconds."""
    clock = Clock()
    given = {"claimAhead": "false", "maxMessagesPerTrigger": "1000", "neighbourHeadroom": "0", **options}
    with streaming(engine, queue, **given) as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        for each in seconds:
            assert stream.trigger()
            clock.now += each
        return [len(batch) for batch in stream.batches()]


def test_batches_follow_what_they_cost(engine, queue):
    """The first one makes the next no smaller: Spark's own start makes it longer. It has few rows."""
    queue.insert(900)
    assert sizes(engine, queue, [9, 0.4, 1.4, 1.4, 1.4], firstMessagesPerTrigger="10") == [
        10,
        22,
        88,
        152,
        212,
    ]


def test_a_batch_that_lasts_too_long_is_followed_by_a_small_one(engine, queue):
    queue.insert(900)
    assert sizes(engine, queue, [9, 30, 8, 8], firstMessagesPerTrigger="100") == [100, 222, 55, 55]


@pytest.fixture
def claims_ahead(monkeypatch):
    """The claims ahead that are made."""
    made = []

    class Counted(ClaimAhead):
        def _make(self, claim):
            made.append(claim)
            super()._make(claim)

    monkeypatch.setattr(stream_scanner, "ClaimAhead", Counted)
    return made


def test_as_many_rows_are_claimed_ahead_as_a_batch_of_unknown_size_may_have(engine, queue, claims_ahead):
    queue.insert(900)
    times = [0.1, 0.1, 0.1, 0.1]
    assert sizes(engine, queue, times, claimAhead="true", firstMessagesPerTrigger="10") == [10, 40, 160, 640]
    assert len(claims_ahead) == 4


def test_a_claim_ahead_that_is_much_too_large_is_given_back(engine, queue, caplog):
    caplog.set_level("INFO")
    queue.insert(2_500)
    given = {"claimAhead": "true", "firstMessagesPerTrigger": "100", "maxMessagesPerTrigger": "2000"}
    assert sizes(engine, queue, [9, 30, 8, 8], **given) == [100, 400, 100, 100]
    given_back = [each.args[1] for each in caplog.records if "claim_ahead_given_back" in each.msg]
    assert given_back == ["batches are smaller now", "batches are smaller now"]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"maxMessagesPerTrigger": "15"}, [10, 15, 15, 15]),
        ({"maxMessagesPerTrigger": "15", "adaptiveBatch": "false"}, [15, 15, 15, 15]),
        ({"maxBatchDuration": "250ms"}, [10, 10, 10, 10]),
    ],
)
def test_the_options_bound_it(engine, queue, options, expected):
    queue.insert(200)
    assert sizes(engine, queue, [0.25] * 4, firstMessagesPerTrigger="10", **options) == expected


def test_what_a_stopped_stream_has_learned_is_learned_anew(engine, queue):
    queue.insert(300)
    assert sizes(engine, queue, [0.1, 0.1, 0.1], firstMessagesPerTrigger="10") == [10, 40, 160]
    assert sizes(engine, queue, [0.1], firstMessagesPerTrigger="10") == [10]
