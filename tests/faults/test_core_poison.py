"""One row that cannot be read, among many: it alone goes to the error queue, once,
at whatever step the program dies.
"""

import pyarrow as pa
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, NO_TRANSACTION, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.receive import SliceReader
from tests.support import death_steps
from tests.support.driver import (
    BATCH_WRITTEN,
    OFFSET_NOT_LOGGED,
    at_each_step,
    at_step,
    crash,
    watched_connections,
)
from tests.support.forwarding import NAME, Forward, forwarding
from tests.support.messages import message_ids, row_id
from tests.support.outcomes import failed_in
from tests.support.sending import ids_in

pytestmark = [pytest.mark.needs("reads_json_as_documented"), pytest.mark.provokes("lock timeout")]

MANY = 240
POISON = 120
RECEIVING = (*death_steps.STEPS, OFFSET_NOT_LOGGED, BATCH_WRITTEN)
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


@pytest.mark.parametrize("mode, step", CASES)
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


# -- among 100,000 --------------------------------------------------------------------------------

BATCH = 10_000
#: Rows by the server itself, as small as messages can be.
_FILL = """
INSERT INTO {table} (id, headers, body)
SELECT gen_random_uuid(), CASE n WHEN 20001 THEN 'no JSON'
  ELSE '{{"NServiceBus.MessageId":"' || n || '"}}' END, 'b'
FROM generate_series(1, 100000) AS n ORDER BY n
"""
_ARRIVED = """SELECT count(*), count(DISTINCT headers::json ->> 'NServiceBus.MessageId') FROM billing"""


class Bulk(Forward):
    """The same pipeline, with rows as Arrow has them: as lists of Python they would take
    longer than all else.
    """

    def read(self, slices):
        reader = SliceReader(Target.of(self.options))
        taken = (reader.take(each) if each.counts else reader.read(each) for each in slices)
        return [batch for part in taken for batch in part]

    def write(self, messages):
        if messages:
            rows = pa.Table.from_batches(messages).select(["Id", "RowVersion", "Headers", "Body"])
            self.send(rows.append_column("Destination", pa.array(["billing"] * rows.num_rows)))


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "mode, steps",
    [
        ("optimistic", (*RECEIVING, fail_points.IDS_CHECKED, *SENDING)),
        pytest.param("atomic", (*RECEIVING, *STAGING), marks=pytest.mark.tier("nightly")),
        pytest.param("none", (fail_points.ROWS_TAKEN,), marks=pytest.mark.tier("nightly")),
    ],
)
def test_one_poison_row_among_100_000_is_moved_once(postgresql, mode, steps):
    """It is the first row of the third batch, so of that batch's first chunk. From there on the process dies
    at each step, one after another.
    """
    queue, error = postgresql.create_queue(), postgresql.create_queue("error")
    postgresql.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), NAME)
    queue.execute(_FILL)
    transactions = {"atomic": ATOMIC, "none": NO_TRANSACTION}.get(mode, RECEIVE_ONLY)
    more = {"transactionMode": transactions, "maxMessagesPerTrigger": str(BATCH), "adaptiveBatch": "false"}
    stream = Bulk(postgresql, queue, "billing", **more)
    stream.outbox = NO_OUTBOX if mode == "none" else "optimistic"
    stream.sink_says = {"errorQueue": "error"}
    with (
        watched_connections(stream.opened),
        at_each_step(steps, crash, when=lambda: stream.done >= 2) as crashes,
    ):
        stream.drain()
        stream.stop()
    ((rows, ids),) = postgresql.fetch(_ARRIVED)
    raw = [failed["sqlqueue.RawHeaders"] for failed in failed_in(error)]
    assert (sorted(crashes), stream.crashes, queue.count()) == (sorted(steps), len(steps), 0)
    if mode == "none":  # what the dead process had taken is gone
        assert (rows, ids, raw) == (100_000 - BATCH, 100_000 - BATCH, [])
    else:
        assert (rows, ids, raw) == (99_999, 99_999, ["no JSON"])
