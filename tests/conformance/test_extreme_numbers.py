"""RowVersions at both ends of what a bigint holds: reseeded identities and negative ones are legal,
and so is their span.
"""

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import queue_peek, queue_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from tests.support import tampering
from tests.support.driver import at_step, crash, streaming
from tests.support.messages import row_ids

FURTHEST = (LOWEST + 1, LOWEST + 2, -1, 0, 1, HIGHEST - 1, HIGHEST)


@pytest.fixture
def filled(engine, queue):
    tampering.insert_at(engine, queue, *FURTHEST)
    return queue


@pytest.mark.parametrize("claim_ahead", ["true", "false"])
@pytest.mark.parametrize("most", [1, 2, 100])
def test_every_row_is_received_once_and_in_order(engine, filled, most, claim_ahead):
    given = {"maxMessagesPerTrigger": str(most), "claimAhead": claim_ahead, "minMessagesPerPartition": "1"}
    with streaming(engine, filled, **given) as stream:
        stream.drain()
        expected = [list(FURTHEST[at : at + most]) for at in range(0, len(FURTHEST), most)]
        assert (stream.batches(), stream.ids()) == (expected, row_ids(range(len(FURTHEST))))
        assert filled.count() == 0


@pytest.mark.needs("deletes_through_cte")
def test_workers_take_every_row_once_and_in_order(engine, filled):
    with streaming(engine, filled, transactionMode="none", maxMessagesPerTrigger="3") as stream:
        stream.drain()
        assert [row for batch in stream.batches() for row in batch] == list(FURTHEST)
        assert filled.count() == 0


@pytest.mark.parametrize(
    "step", [fail_points.OFFSET_LOGGED, fail_points.COMMIT_LOGGED, fail_points.COMMITTED]
)
def test_a_batch_is_replayed_and_settled_after_a_crash(engine, filled, step):
    with streaming(engine, filled, maxMessagesPerTrigger="4") as stream, at_step(step, crash) as crashes:
        stream.drain()
        assert crashes
        assert (stream.ids(), filled.count()) == (row_ids(range(len(FURTHEST))), 0)


def test_how_much_waits_is_said_up_to_a_bigint(engine, filled):
    with streaming(engine, filled, claimAhead="false") as stream:
        receiver = stream.receiver
        assert isinstance(receiver.source, Receiver)
        receiver.latest({"version": 1}, 1)
        waiting = receiver.waiting()
        assert waiting is not None
        assert waiting["rows"] == HIGHEST


@pytest.mark.needs("deletes_through_cte")
def test_every_row_is_shown_and_purged(engine, filled):
    given = ConnectionOptions.parse({"url": engine.url})
    assert [each.row_version for each in queue_peek.look(given, filled.address, count=10)] == list(FURTHEST)
    assert (queue_tables.purge(given, filled.address), filled.count()) == (len(FURTHEST), 0)


def test_a_run_that_ends_at_what_is_there_now_ends(engine, filled):
    with streaming(engine, filled, maxMessagesPerTrigger="3") as stream:
        stream.receiver.stop_at_present_end()
        stream.drain()
        assert (stream.ids(), filled.count()) == (row_ids(range(len(FURTHEST))), 0)
