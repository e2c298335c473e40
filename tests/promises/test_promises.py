"""Each promise of the README on real Spark: something is killed at the worst moment, and the promise is kept.

What Spark starts beside Java is killed by ``kill -9``: the reader process, which holds the rows of a batch,
or a worker. Deaths of the whole program, at every step, are in tests/streaming/test_kills.py and
test_killed_sends.py.
"""

import itertools
import os
import signal
from typing import Any

import psutil
import pytest

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.messages import message_ids, row_ids
from tests.support.neighbour import Habits, Neighbour
from tests.support.pages import ROOT
from tests.support.sending import ids_in
from tests.support.streams import (
    drain,
    free,
    ids_in_delta,
    logged,
    once_into_delta,
    stream,
    to_delta,
    to_each,
)
from tests.support.waiting import eventually

#: The promises of the README's table, each with the test that shows it.
PROMISES = {
    "Nothing is lost": "test_what_a_killed_reader_held_is_not_lost",
    "Nothing arrives twice": "test_a_batch_that_delta_has_does_not_arrive_twice",
    "Nothing is sent twice": "test_a_batch_that_was_sent_is_not_sent_twice",
    "All or nothing": "test_an_atomic_batch_is_at_its_destination_as_a_whole_or_not_at_all",
    "Order": "test_batches_follow_the_row_versions_also_after_a_kill",
    "A good neighbour": "test_a_neighbour_goes_on_beside_a_stream_and_after_its_death",
    "With `transactionMode=none`": "test_a_killed_worker_loses_its_rows_and_doubles_none",
}

ATOMIC: dict[str, Any] = {"transactionMode": "sendsAtomicWithReceive", "stream": "Atomic"}


class KilledError(Exception):
    """The batch ends here, as the process does that holds its rows."""


def kill_reader():
    """Kill the process in which Spark runs the stream's reader; its session frees its locks."""
    readers = [
        each
        for each in psutil.Process().children(recursive=True)
        if each.status() != psutil.STATUS_ZOMBIE
        and any("streaming_source_runner" in word for word in each.cmdline())
    ]
    assert len(readers) == 1, readers
    readers[0].kill()


def killing(write, *, in_batch, after):
    """A function for ``foreachBatch`` that kills the reader in one batch, before or after it writes."""

    def handle(batch, number):
        if number == in_batch and not after:
            kill_reader()
            raise KilledError
        write(batch, number)
        if number == in_batch:
            kill_reader()
            raise KilledError

    return handle


def dies(writer):
    """Run a query that is killed."""
    with pytest.raises(Exception, match="KilledError"):
        drain(writer)


def texts(count):
    return [str(each) for each in row_ids(range(count))]


def test_each_promise_of_the_readme_has_a_test():
    rows = (ROOT / "README.md").read_text().partition("## What it promises")[2].splitlines()
    table = itertools.takewhile(lambda line: not line.startswith("#"), rows)
    promised = [line.split("|")[1].strip() for line in table if line.startswith("|")][2:]
    assert (promised, [each for each in PROMISES.values() if each not in globals()]) == ([*PROMISES], [])


def test_what_a_killed_reader_held_is_not_lost(spark, postgresql, tmp_path):
    """It dies before its second batch is written: the rows of that batch are free again,
    and come once more.
    """
    queue = postgresql.create_queue()
    queue.insert(250)
    frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=100)
    write = once_into_delta(tmp_path)
    dies(to_each(frame, tmp_path, killing(write, in_batch=1, after=False)))
    eventually(lambda: free(queue) == 150)
    assert (ids_in_delta(spark, tmp_path), logged(tmp_path, "commits")) == (texts(100), [0])

    drain(to_each(frame, tmp_path, write))
    assert (ids_in_delta(spark, tmp_path), queue.count()) == (texts(250), 0)


def test_a_batch_that_delta_has_does_not_arrive_twice(spark, postgresql, tmp_path):
    """The reader dies when Delta has the batch and Spark's log does not.

    The next run reads the same rows, and no others.
    """
    queue = postgresql.create_queue()
    queue.insert(60)
    frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=60)
    write = once_into_delta(tmp_path)
    dies(to_each(frame, tmp_path, killing(write, in_batch=0, after=True)))
    eventually(lambda: free(queue) == 60)
    queue.insert(40, start=60)

    seen = []

    def write_again(batch, number):
        seen.append((number, batch.count()))
        write(batch, number)

    drain(to_each(frame, tmp_path, write_again))
    assert (seen, ids_in_delta(spark, tmp_path), queue.count()) == ([(0, 60), (1, 40)], texts(100), 0)


def test_a_batch_that_was_sent_is_not_sent_twice(spark, postgresql, tmp_path):
    """The reader dies when the batch is sent and not logged; Spark runs it again, with other tasks."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Shop")
    queue.insert(60)
    frame = stream(spark, postgresql, queue, minMessagesPerPartition=20).select("Headers", "Body")
    sink = SqlQueueSink(url=postgresql.url, queue="billing", endpoint="Shop")
    dies(to_each(frame, tmp_path, killing(sink, in_batch=0, after=True)))
    assert (sorted(ids_in(billing)), logged(tmp_path, "commits")) == (message_ids(range(60)), [])

    drain(to_each(frame, tmp_path, sink))
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(range(60)), 0)


@pytest.mark.parametrize("after", [False, True])
def test_an_atomic_batch_is_at_its_destination_as_a_whole_or_not_at_all(spark, postgresql, tmp_path, after):
    """The reader dies before the batch is staged, or when it is staged, sealed and not logged."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(60)
    frame = stream(spark, postgresql, queue, **ATOMIC).select("Headers", "Body")
    sink = SqlQueueSink(url=postgresql.url, queue="billing", **ATOMIC)
    dies(to_each(frame, tmp_path, killing(sink, in_batch=0, after=after)))
    eventually(lambda: free(queue) == 60)
    assert billing.count() == 0

    drain(to_each(frame, tmp_path, sink))
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(range(60)), 0)


def test_batches_follow_the_row_versions_also_after_a_kill(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    queue.insert(250)
    frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=100, maxConcurrency=1, claimAhead=False)
    seen = []

    def write(batch, number):
        seen.append((number, [row.RowVersion for row in batch.select("RowVersion").collect()]))

    dies(to_each(frame, tmp_path, killing(write, in_batch=1, after=True)))
    eventually(lambda: free(queue) == 150)
    drain(to_each(frame, tmp_path, write))
    rows = [range(1, 101), range(101, 201), range(101, 201), range(201, 251)]
    assert seen == [(number, [*rows[at]]) for at, number in enumerate((0, 1, 1, 2))]


def test_a_neighbour_goes_on_beside_a_stream_and_after_its_death(spark, postgresql, tmp_path):
    """It has rows while the stream holds its batch.

    What the stream held is free at once when its reader is killed.
    """
    queue = postgresql.create_queue()
    queue.insert(150)
    held = []

    def hold_and_die(batch, number):
        with Neighbour(postgresql, queue, Habits(concurrency=2)).running() as beside:
            eventually(lambda: len(beside.handled) == 90)
            held.extend(beside.handled)
        kill_reader()
        raise KilledError

    frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=60, claimAhead=False)
    dies(to_each(frame, tmp_path, hold_and_die))
    with Neighbour(postgresql, queue, Habits(concurrency=2)).running() as after:
        eventually(lambda: queue.count() == 0)
    assert sorted(map(str, held)) == texts(150)[60:]
    assert sorted(map(str, after.handled)) == texts(60)


def test_a_killed_worker_loses_its_rows_and_doubles_none(spark, postgresql, tmp_path):
    """In mode ``none`` its rows have left the table when it dies; those of the other slice come, once."""
    queue = postgresql.create_queue()
    queue.insert(100)
    dead = tmp_path / "dead"

    def die_once(batches):
        for batch in batches:
            if not dead.exists():
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    frame = stream(spark, postgresql, queue, transactionMode="none", maxMessagesPerTrigger=50)
    writer = to_delta(frame.mapInArrow(die_once, frame.schema), tmp_path)
    with pytest.raises(Exception, match="TASK_WRITE_FAILED"):
        drain(writer)
    assert dead.exists()
    drain(writer)
    ids = ids_in_delta(spark, tmp_path)
    assert (len(ids), sorted(set(ids)), queue.count()) == (50, texts(100)[50:], 0)
