"""The proof of a soak finds what is lost, doubled, left or never sent,
and excuses only what befell a batch.
"""

import json
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import RowSet
from tests.machine.soak_proof import (
    TWICE,
    Disturbance,
    Known,
    Outcome,
    drained,
    forwarded,
    log_of,
)
from tests.support.messages import row_id


def known(sent, *, handled=(), left=0):
    """Message n has RowVersion 100 + n."""
    return Known(
        sent=set(sent), handled=Counter(handled), row_versions={n: 100 + n for n in handled}, left=left
    )


def logged(folder, *batches):
    """Spark's log of offsets: at which second each batch was logged, and its first and last RowVersion."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for number, (at, first, last) in enumerate(batches):
        offset = Offset(queue="q", identity="1", live=RowSet([(first, last)]), expired=RowSet())
        file = offsets / str(number)
        file.write_text("\n".join(["v1", "{}", json.dumps(offset.to_json())]))
        os.utime(file, (at, at))
    return folder / "checkpoint"


def written(table, *batches):
    """A Delta table into which one query has written the messages of each batch."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for number, messages in enumerate(batches):
        pq.write_table(pa.table({"Id": [str(row_id(n)) for n in messages]}), table / f"{number}.parquet")
        actions = [
            {"txn": {"appId": "query", "version": number}},
            {"add": {"path": f"{number}.parquet"}},
        ]
        (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_a_batch_is_disturbed_until_it_is_settled(tmp_path):
    """By what befalls between its claim and its settling."""
    checkpoint = logged(tmp_path, (10, 1, 1), (20, 2, 2), (30, 3, 3), (40, 4, 4))
    assert [log_of(checkpoint, [Disturbance(at, at)]).disturbed for at in (1, 15, 25, 35, 99)] == [
        {0}, {0, 1}, {1, 2}, {2, 3}, {3},
    ]  # fmt: skip
    assert log_of(checkpoint, []).disturbed == set()


def test_messages_sent_on_are_in_one_place(tmp_path):
    checkpoint = logged(tmp_path, (10, 101, 103), (20, 104, 106))
    quiet = log_of(checkpoint, [])
    assert forwarded("q", known([1, 2, 3, 4], handled=[4]), quiet, {1: 1, 2: 1, 3: 1}) == Outcome(
        queue="q",
        sent=4,
        ended=Counter({"in billing": 3, "with a receiver": 1}),
        failures=[],
        batches=2,
        disturbed=0,
    )


def test_faults_of_messages_sent_on_are_told(tmp_path):
    """Those that are lost, doubled or left in the queue."""
    checkpoint = logged(tmp_path, (10, 101, 103), (20, 104, 106), (30, 107, 109), (40, 110, 112))
    quiet, disturbed = log_of(checkpoint, []), log_of(checkpoint, [Disturbance(35, 35)])
    assert forwarded("q", known([1, 2]), quiet, {2: 2}).failures == [
        "q: 1 messages are LOST: 1",
        "q: 1 messages are in billing more than once: 2",
    ]
    assert forwarded("q", known([1, 2], left=1), quiet, {2: 1}).failures == [
        "q: 1 rows are still in the queue"
    ]
    assert forwarded("q", known([1], handled=[1, 1]), quiet, {}).failures == [
        "q: 1 messages are with receivers more than once: 1"
    ]
    # Message 1 was in batch 0, which was settled long before; message 10 was in batch 3.
    both = forwarded("q", known([1, 10], handled=[1, 10]), disturbed, {1: 1, 10: 1})
    assert both.failures == [
        "q: 1 messages are both in billing and with a receiver, and nothing befell their batches: 1"
    ]
    assert (both.ended, both.batches, both.disturbed) == (Counter({TWICE: 2}), 4, 2)


def test_drained_messages_are_counted_by_place(tmp_path):
    """In one of two tables, with a receiver, or nowhere."""
    for name, *batches in (("one", [1, 2], [3]), ("two", [4], [5, 3])):
        written(tmp_path / name / "delta", *batches)
        logged(tmp_path / name, (10, 101, 102), (20, 103, 104), (30, 105, 106))
    quiet = {name: log_of(tmp_path / name / "checkpoint", []) for name in ("one", "two")}
    late = {name: log_of(tmp_path / name / "checkpoint", [Disturbance(25, 25)]) for name in ("one", "two")}
    assert drained(tmp_path, known(range(1, 7), handled=[6]), late) == Outcome(
        queue="orders",
        sent=6,
        ended=Counter(
            {"in the Delta table one": 2, "in the Delta table two": 2, "with a receiver": 1, TWICE: 1}
        ),
        failures=[],
        batches=6,
        disturbed=4,
    )
    assert drained(tmp_path, known(range(2, 9), handled=[6, 6, 8]), quiet).failures == [
        "orders: 1 messages are LOST: 7",
        "orders: 1 messages are from nobody: 1",
        "orders: 1 messages are in one place more than once: 6",
        "orders: 2 messages are in two places, and nothing befell their batches: 3, 6",
    ]
