"""The next batch, claimed while Spark works on this one: given back when Spark does not ask for it,
and when the stream stops.
"""

import threading
from typing import Any

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.claiming import claim_ahead
from sqlqueue_spark.receive.claiming.claim import claim
from sqlqueue_spark.receive.reading import slice_reader
from tests.support.driver import streaming, told
from tests.support.messages import row_ids
from tests.support.streams import free
from tests.support.waiting import eventually


@pytest.mark.parametrize("known", [True, False], ids=["batch known to be done", "no trigger for long"])
def test_a_claim_ahead_not_asked_for_is_given_back(engine, queue, tmp_path, monkeypatch, known):
    monkeypatch.setattr(
        "sqlqueue_spark.receive.claiming.stream_scanner.IDLE_SECONDS"
        if known
        else claim_ahead.__name__ + ".UNASKED_SECONDS",
        0.1,
    )
    queue.insert(30)
    done = tmp_path / "done"
    given: dict[str, Any] = {"doneFile": str(done)} if known else {}
    with streaming(engine, queue, maxMessagesPerTrigger="10", neighbourHeadroom="0", **given) as stream:
        assert stream.trigger()
        if known:
            told(done, stream.end(1))
        eventually(lambda: free(queue) == 20)
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(30)), 0)


@pytest.mark.parametrize("batches", range(3))
def test_a_stream_that_stops_leaves_no_session_behind(postgresql, batches):
    queue = postgresql.create_queue()
    queue.insert(2000)
    sessions = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = '{}'"
    )
    with streaming(postgresql, queue, maxMessagesPerTrigger="500") as stream:
        for _ in range(batches):
            assert stream.trigger()
        assert stream.construct()
        stream.plan()  # which begins to claim ahead
        assert len(postgresql.fetch(sessions.format(stream.name))) > 0
        stream.receiver.close()
        slice_reader._KEPT._keep(None)  # the worker's, which would end by itself
        eventually(lambda: not postgresql.fetch(sessions.format(stream.name)))
        assert queue.take().row_version == 500 * batches + 1


def test_a_stop_during_a_claim_ahead_leaves_no_session(postgresql, monkeypatch):
    queue = postgresql.create_queue()
    queue.insert(20)
    begun, closed = threading.Event(), threading.Event()

    def claim_when_closed(*arguments, **named):
        if threading.current_thread().name == "sqlqueue-claim-ahead":
            begun.set()
            assert closed.wait(10)
            queue.execute("DELETE FROM {table}")
        return claim(*arguments, **named)

    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ahead' AND state IS NOT NULL"
    url = f"{postgresql.url}?application_name=ahead"
    monkeypatch.setattr("sqlqueue_spark.receive.claiming.claimed_batch.claim", claim_when_closed)
    receiver = Receiver(
        SourceOptions.parse({"url": url, "queue": queue.address, "maxMessagesPerTrigger": "10"})
    )
    end = receiver.latest(None, 10)
    receiver.plan(None, end)
    assert begun.wait(10)
    receiver.close()
    closed.set()
    slice_reader._KEPT._keep(None)
    eventually(lambda: not postgresql.fetch(sessions))
