"""Whatever dies, whenever: every message is in the sink exactly once and the queue is empty."""

import dataclasses
import itertools
from datetime import datetime
from typing import Any

import pytest

from tests.support.driver import STEPS, at_step, crash, streaming
from tests.support.messages import row_ids

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
SMALL: dict[str, Any] = {
    "maxMessagesPerTrigger": "70",
    "minMessagesPerPartition": "20",
    "maxConcurrency": "3",
}


def fill(queue):
    """300 live messages, ten expired ones after each fifty; returns the ids of the live ones."""
    for start in range(0, 300, 50):
        queue.insert(50, start=start)
        queue.insert(10, start=9000 + start, expires=PAST)
    return row_ids(range(300))


def die_and_come_back_with(stream, *limits):
    """A crash, after which the stream is started with other limits:
    it would not claim the same rows again.
    """
    following = itertools.cycle(limits)

    def die():
        stream.options = dataclasses.replace(stream.options, max_messages_per_trigger=next(following))
        crash()

    return die


@pytest.mark.parametrize("step", STEPS)
def test_each_message_arrives_once_whatever_the_crash(engine, queue, step):
    ids = fill(queue)
    with (
        streaming(engine, queue, **SMALL) as stream,
        at_step(step, die_and_come_back_with(stream, 40, 100), on={1, 2, 4}),
    ):
        stream.drain()
    assert stream.crashes == 3
    assert (sorted(stream.ids()), queue.count()) == (ids, 0)


@pytest.mark.parametrize(
    "step",
    [
        *STEPS[:2],
        *(pytest.param(step, marks=pytest.mark.tier("nightly")) for step in STEPS[2:]),
    ],
)
def test_each_row_of_a_fragmented_claim_arrives_once(engine, queue, step):
    """Whatever the crash."""
    ids = fill(queue)
    third = range(3, 361, 3)
    with (
        streaming(engine, queue, commit=False, **SMALL) as stream,
        at_step(step, die_and_come_back_with(stream, 50, 30), on={1, 3, 5}),
    ):
        with queue.locked(*third):
            stream.drain(left=len(third))
            assert not {row for batch in stream.batches() for row in batch} & set(third)
        stream.drain()
    assert stream.crashes >= 2
    assert (sorted(stream.ids()), queue.count()) == (ids, 0)
