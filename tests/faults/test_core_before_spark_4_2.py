"""A Spark that does not say how far it is, as before 4.2: every message arrives once all the same."""

import dataclasses
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.receive import Receiver, ReceiverBeforeSpark42
from sqlqueue_spark.receive.offset import INITIAL, Offset, to_json
from tests.support.driver import (
    BATCH_WRITTEN,
    STEPS,
    Crash,
    Stream,
    at_step,
    crash,
    streaming,
    watched_connections,
)
from tests.support.forwarding import MESSAGE_100, Forward, staged
from tests.support.messages import message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all")

BATCHES = {"maxMessagesPerTrigger": "30", "minMessagesPerPartition": "10"}


class Follower:
    """Its reader, called with offsets as they stand in Spark's logs."""

    def __init__(self, options):
        self._source = Receiver(options)
        self._core = ReceiverBeforeSpark42(self._source, options.most_rows)
        self.initial, self.close = self._core.initial, self._source.close

    def latest(self):
        return to_json(self._core.latest())

    def plan(self, start, end):
        return self._core.plan(Offset.from_json(start), Offset.from_json(end))

    def settle(self, end):
        self._source.settle(Offset.from_json(end))


class FollowedStream(Stream):
    """A query whose reader is asked for the newest offset, without another word, as Spark before 4.2 does."""

    follower: Any = None

    @property
    def receiver(self):
        if self.follower is None:
            self.follower = Follower(self.options)
            if self.done == 0:  # no batch is logged as done
                self.follower.initial()
        return self

    def latest(self, _start, _rows):
        return self.follower.latest()

    def settle(self, end):
        self.follower.settle(end)

    def tasks(self):
        self.receiver  # noqa: B018 -- a new process opens its reader
        return self.follower.plan(self.end(self.done), self.end(self.done + 1))

    def crash(self, *, noticed=True):
        self.follower = None
        super().crash(noticed=noticed)


@pytest.fixture
def followed(engine, queue):
    """Begins a stream over the queue; all end with the test."""
    streams = []

    def begin(**options):
        streams.append(FollowedStream(engine, queue, **options))
        return streams[-1]

    def opened(target, connection):
        for stream in streams:
            stream.opened(target, connection)

    with watched_connections(opened):
        yield begin
        for stream in streams:
            if stream.follower is not None:
                stream.follower.close()
            stream.cut()


def test_batches_follow_one_another_and_are_settled(queue, followed):
    """The last one is settled when Spark asks again."""
    queue.insert(100)
    stream = followed(**BATCHES)
    stream.drain()
    assert stream.batches() == [list(range(first, min(first + 30, 101))) for first in (1, 31, 61, 91)]
    assert (queue.count(), stream.crashes) == (0, 0)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_and_doubles_nothing(queue, followed, step):
    queue.insert(100)
    stream = followed(**BATCHES)
    with at_step(step, crash, on={1, 3}) as crashes:
        stream.drain()
    # Batches may change places: what the dead process held or had claimed ahead stays locked
    # until the server notices.
    assert (sorted(stream.ids()), queue.count()) == (row_ids(range(100)), 0)
    assert all(batch == sorted(batch) for batch in stream.batches())
    assert stream.crashes == len(crashes) == 2


def test_a_new_process_delivers_no_finished_batch_again(queue, followed):
    """It claims first, and learns only from its first plan which batch was the last one."""
    queue.insert(50)
    stream = followed(**BATCHES)
    assert stream.trigger()
    stream.crash()  # after the batch was logged as done, before it was deleted
    queue.insert(10, start=50)
    assert stream.construct()
    assert stream.run()
    assert stream.batches() == [list(range(1, 31)), []]  # the claim was what had been left
    stream.drain()
    assert (stream.ids(), queue.count()) == (row_ids(range(60)), 0)


def test_a_claim_of_old_and_new_rows_delivers_the_new(queue, followed, caplog):
    """The old ones are what the last batch has left: delivered, and not deleted yet."""
    queue.insert(20)
    stream = followed(**BATCHES)
    assert stream.trigger()
    stream.crash()
    queue.insert(20, start=20)
    assert stream.trigger()
    assert stream.batches() == [list(range(1, 21)), list(range(21, 31))]
    assert "recovered queue=" in caplog.text
    stream.drain()
    assert (stream.ids(), queue.count()) == (row_ids(range(40)), 0)


@pytest.mark.parametrize("more", [0, 10], ids=["nothing new", "new rows"])
def test_what_the_outbox_has_forgotten_comes_again(engine, queue, followed, more):
    """The new process claims the rows of the last batch before it hears of that batch."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Shop")
    queue.insert(10)
    stream = followed(outboxEndpoint="Shop", **BATCHES)
    assert stream.trigger()
    stream.crash()  # after the batch was logged as done, before it was deleted
    queue.insert(more, start=10)
    assert stream.trigger()
    assert stream.batches() == [list(range(1, 11)), list(range(1, 11 + more))]


def test_a_new_process_runs_one_batch_on_an_empty_queue(queue, followed):
    """An empty one, and no other."""
    queue.insert(10)
    stream = followed(**BATCHES)
    stream.drain()
    stream.crash()
    assert stream.trigger()
    assert [stream.trigger(), stream.trigger()] == [False, False]
    assert (stream.batches(), stream.end(2)) == ([list(range(1, 11)), []], INITIAL)
    queue.insert(5, start=10)
    stream.drain()
    assert (stream.ids(), queue.count()) == (row_ids(range(15)), 0)


def test_available_now_replays_an_unfinished_batch(queue, followed):
    """``Trigger.AvailableNow`` asks for the newest offset before it looks for an unfinished batch."""
    queue.insert(60)
    stream = followed(**BATCHES)
    assert stream.trigger()
    assert stream.construct()
    stream.write(stream.read(stream.plan()))
    stream.crash()  # before the second batch was logged as done
    queue.insert(10, start=60)
    newest = stream.receiver.latest(stream.end(1), 30)
    assert stream.run()  # the second batch
    third = stream.follower.plan(stream.end(2), newest)
    assert [
        row["RowVersion"] for task in third for row in stream.read(task)
    ] == []  # it was the second batch's rows
    # What was claimed ahead for it is free when the server has ended that session.
    assert eventually(lambda: stream.follower.latest() != newest)
    stream.drain()
    assert (stream.ids(), queue.count()) == (row_ids(range(70)), 0)


@pytest.mark.parametrize("step", [fail_points.ROWS_LOCKED, fail_points.OFFSET_LOGGED])
def test_a_crash_in_mode_none_doubles_nothing(queue, followed, step):
    queue.insert(100)
    stream = followed(transactionMode=NO_TRANSACTION, **BATCHES)
    with at_step(step, crash, on={2}):
        stream.drain()
    assert (stream.ids(), queue.count()) == (row_ids(range(100)), 0)


class FollowedForward(FollowedStream, Forward):
    """Likewise, with the sink of an atomic pipeline at its end."""


@pytest.mark.needs("reads_json_as_documented")
@pytest.mark.parametrize("more", [0, 10], ids=["nothing new", "new rows"])
def test_a_new_process_sends_what_was_staged_once(engine, queue, more):
    """It waits on the stage until the process knows that its batch is logged."""
    billing = engine.create_queue("billing")
    queue.insert(10)
    stream = FollowedForward(engine, queue, transactionMode=ATOMIC)
    with watched_connections(stream.opened):
        assert stream.trigger()
        stream.crash()  # after the batch was logged as done, before it was settled
        queue.insert(more, start=10)
        stream.drain()
        stream.stop()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10 + more)), 0, 0)


@pytest.mark.needs("reads_json_as_documented")
def test_a_batch_without_rows_that_died_sends_once(engine, queue):
    """On an idle queue a new process begins with a batch without rows;
    a watermark or another source may have something to send.
    """
    billing = engine.create_queue("billing")
    queue.insert(10)
    stream = FollowedForward(engine, queue, transactionMode=ATOMIC)
    with watched_connections(stream.opened):
        stream.drain()
        stream.crash()
        stream.others[stream.done] = [MESSAGE_100]
        assert stream.construct()
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            stream.run()
        stream.crash()
        stream.sink.pop(stream.done)
        stream.run()
        stream.drain()
        stream.stop()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids([*range(10), 100]), 0, 0)


def leave_a_message(stream):
    """Drain the queue; then a batch without rows of it stages message 100, which waits there."""
    stream.drain()
    stream.construct_without_rows([MESSAGE_100])
    stream.run()


@pytest.mark.needs("reads_json_as_documented")
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies behind the first batch"])
def test_another_mode_under_another_name_sends_what_a_batch_has_left(engine, queue, dies):
    """The first batch of the new process has no rows, and logs an offset that names no stage."""
    billing = engine.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Renamed")
    stream = FollowedForward(engine, queue, transactionMode=ATOMIC)
    with watched_connections(stream.opened):
        leave_a_message(stream)
        stream.crash()
        stream.options = dataclasses.replace(stream.options, transaction_mode=RECEIVE_ONLY, stream="Renamed")
        assert stream.trigger()
        if dies:
            stream.crash()
        stream.drain()
        stream.stop()
    assert (ids_in(billing), staged(engine)) == (message_ids([100]), 0)


@pytest.mark.needs("reads_json_as_documented")
@pytest.mark.parametrize(
    "between", ["nothing", "rows", "another name"], ids=lambda each: f"{each} in the first batch"
)
def test_what_a_batch_has_left_is_sent_before_the_offsets_forget_its_stage(engine, queue, between):
    """Another mode and another name at once, and the next batch is one whose offset names no stage,
    or the other name's.

    That batch may have rows. Or it was logged under the other name,
    and its process died before it was planned.
    """
    billing = engine.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Renamed")
    stream = FollowedForward(engine, queue, transactionMode=ATOMIC)
    with watched_connections(stream.opened):
        leave_a_message(stream)
        stream.crash()
        if between == "another name":
            stream.options = dataclasses.replace(stream.options, stream="Renamed")
            assert stream.construct()
            stream.crash()
        elif between == "rows":
            queue.insert(5)
        stream.options = dataclasses.replace(stream.options, transaction_mode=RECEIVE_ONLY, stream="Renamed")
        stream.drain()
        stream.crash()
        stream.drain()
        stream.stop()
    early = range(5 if between == "rows" else 0)
    assert (sorted(ids_in(billing)), staged(engine)) == (sorted(message_ids([*early, 100])), 0)


@pytest.mark.needs("reads_json_as_documented")
def test_a_stage_that_a_dead_session_holds_is_not_forgotten(engine, queue):
    """A query that goes on in another mode and under another name is refused until that session is gone."""
    billing = engine.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Renamed")
    dead = FollowedForward(engine, queue, transactionMode=ATOMIC)
    with watched_connections(dead.opened):
        leave_a_message(dead)
        stream = FollowedForward(engine, queue, transactionMode=RECEIVE_ONLY)
        stream.options = dataclasses.replace(stream.options, stream="Renamed")
        stream.offsets, stream.done, stream.sink = dead.offsets, dead.done, dead.sink
        with watched_connections(stream.opened):
            with pytest.raises(
                ConfigurationError, match=r"^Two sources use the stage .*: it is held by session \d+\."
            ):
                stream.trigger()
            assert billing.count() == 0
            dead.crash()
            stream.crash()
            stream.drain()
            stream.stop()
    assert (ids_in(billing), staged(engine)) == (message_ids([100]), 0)


def test_each_run_takes_rows_in_mode_none(queue, followed):
    """A look holds nothing, so it need not be given back when the process hears of the last batch."""
    stream = followed(transactionMode=NO_TRANSACTION, **BATCHES)
    for run in range(4):
        queue.insert(10, start=10 * run)
        assert stream.construct()  # with AvailableNow Spark asks once, and each run is a new process
        assert stream.run()
        stream.crash()
    assert (stream.ids(), queue.count()) == (row_ids(range(40)), 0)


def test_a_look_that_is_taken_is_no_lost_claim(queue, followed, caplog):
    stream = followed(transactionMode=NO_TRANSACTION, **BATCHES)
    for run in range(3):
        queue.insert(10, start=10 * run)
        stream.trigger()
        stream.trigger()
        stream.crash()
    assert [each for each in ("settled_after_loss", "not_taken_again") if each in caplog.text] == []
    assert (stream.ids(), queue.count()) == (row_ids(range(30)), 0)


def test_spark_4_2_finishes_what_an_empty_batch_of_an_older_one_had_to_settle(engine, queue, followed):
    if engine.name != "postgresql":
        pytest.skip("a session that holds rows for update is one of PostgreSQL's here")
    queue.insert(10)
    old = followed(**BATCHES)
    assert old.trigger()  # logged, and not settled
    old.crash()
    with queue.session() as neighbour:
        neighbour.lock(*range(1, 11))
        assert old.construct()  # nothing is free: an empty batch, which ends with the first offset
        old.crash()
    with streaming(engine, queue, maxMessagesPerTrigger="30") as new:
        new.offsets, new.done, new.sink = old.offsets, old.done, old.sink
        new.drain()
        assert (new.ids(), queue.count()) == (row_ids(range(10)), 0)
