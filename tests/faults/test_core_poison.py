"""One row that nobody can read, among many: it alone goes to the error queue, once, whatever dies at whichever step."""

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, NO_TRANSACTION, RECEIVE_ONLY, ConnectionOptions
from tests.support.driver import BATCH_WRITTEN, OFFSET_NOT_LOGGED, at_step, crash
from tests.support.forwarding import NAME, forwarding
from tests.support.messages import message_ids, row_id
from tests.support.outcomes import failed_in
from tests.support.sending import ids_in

pytestmark = [pytest.mark.needs("reads_json_as_documented"), pytest.mark.provokes("lock timeout")]

MANY = 240
POISON = 120
RECEIVING = (*fail_points.STEPS, OFFSET_NOT_LOGGED, BATCH_WRITTEN)
SENDING = (fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT)
STAGING = (fail_points.ROWS_STAGED, fail_points.STAGE_SEALED)
CASES = [
    *(("optimistic", step) for step in (*RECEIVING, fail_points.IDS_CHECKED, *SENDING)),
    *(("pessimistic", step) for step in SENDING),
    *(("atomic", step) for step in (*RECEIVING, *STAGING)),
]


@pytest.fixture
def tables(engine, queue):
    """Messages with a poison row among them, the queue they go to, and the error queue."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    queue.insert(POISON)
    queue.insert_row(id=row_id(10_000), headers="no JSON", body=b"{}")
    queue.insert(MANY - POISON, start=POISON)
    return queue, engine.create_queue("billing"), engine.create_queue("error")


@pytest.mark.parametrize("mode, step", CASES, ids=[f"{mode}, {step}" for mode, step in CASES])
def test_one_poison_row_is_moved_once(engine, tables, mode, step):
    queue, billing, error = tables
    with forwarding(
        engine,
        queue,
        transactionMode=ATOMIC if mode == "atomic" else RECEIVE_ONLY,
        maxMessagesPerTrigger="100",
        minMessagesPerPartition="25",
    ) as stream:
        stream.outbox = "optimistic" if mode == "atomic" else mode
        stream.sink_says = {"errorQueue": "error"}
        with at_step(step, crash, on={1, 3}) as crashes:
            stream.drain()
    assert sorted(ids_in(billing)) == message_ids(range(MANY))
    assert [failed["sqlqueue.RawHeaders"] for failed in failed_in(error)] == ["no JSON"]
    assert (queue.count(), stream.crashes, bool(crashes)) == (0, len(crashes), True)


@pytest.mark.parametrize("step", [fail_points.OFFSET_LOGGED, fail_points.ROWS_TAKEN, BATCH_WRITTEN])
def test_in_mode_none_nothing_comes_twice(engine, tables, step):
    queue, billing, error = tables
    with forwarding(engine, queue, transactionMode=NO_TRANSACTION, maxMessagesPerTrigger="100") as stream:
        stream.outbox = NO_OUTBOX
        stream.sink_says = {"errorQueue": "error"}
        with at_step(step, crash, on={2}) as crashes:
            stream.drain()
    found = ids_in(billing)
    assert (len(found), crashes) == (len(set(found)), [2])
    assert error.count() <= 1
    assert queue.count() == 0
