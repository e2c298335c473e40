"""Which received messages have their outcome now: the short way, where nothing is known, decides as the long one does."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.send.composed import FailedMessage
from sqlqueue_spark.send.outcomes import TIMES, Keys, Outcomes

IDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)


def outcomes_of(ids, failing=()):
    texts = pa.array(ids, pa.string())
    found = Outcomes(
        queues=pa.array(["orders"] * len(ids)), origins=texts, ids=texts, row_ids=texts, headers=texts, bodies=texts.cast(pa.binary()),
        times=pa.RecordBatch.from_pylist([{}] * len(ids), TIMES), sends=None, owners=(), failed={},
    )  # fmt: skip
    failed = FailedMessage(
        failure=Failure(exception_type="ValueError", message=""),
        to=None,
        queue="orders",
        endpoint="orders",
        id="a",
    )
    return replace(found, failed=dict.fromkeys(failing, failed))


@given(ids=IDS, by_id=st.booleans(), data=st.data())
def test_the_short_way_decides_as_the_long_one(ids, by_id, data):
    """That something else is known changes nothing, but takes the long way."""
    failing = data.draw(st.sets(st.sampled_from(range(len(ids)))))
    outcomes = replace(outcomes_of(ids, failing), by_id=by_id)
    keys = Keys([f"origin {at}" for at in range(len(ids))], [f"id {each}" for each in ids])
    short, long = (outcomes.decide(keys, known) for known in (set(), {"another"}))
    assert list(map(list, short)) == list(map(list, long))
