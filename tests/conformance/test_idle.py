"""An idle stream costs one look per pollInterval, and stops gently when it is asked to."""

import contextlib
import errno
import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver, SliceReader
from sqlqueue_spark.receive.claiming.backlog import Backlog
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues
from tests.support.driver import each_mode, streaming, watched_connections
from tests.support.messages import row_ids


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds <= 0.25, "stopping is not to be held up"
        self.now += seconds


@contextlib.contextmanager
def counting():
    """The time and the task of every statement on the driver's connections."""
    clock, said = Clock(), []

    def opened(_, connection):
        execute = connection.execute

        def execute_and_count(statement, parameters=(), *, doing=""):
            said.append((clock.now, " ".join(doing.split()[:2])))
            return execute(statement, parameters, doing=doing)

        mock.patch.object(connection, "execute", execute_and_count).start()

    with watched_connections(opened):
        yield clock, said


def idle(receiver, clock, seconds, start):
    """Call as Spark does, again and again, for so long."""
    end = clock.now + seconds
    while clock.now < end:
        assert receiver.latest(start, 10) == start
        clock.now += 0.01


#: How a stream that claims looks, and one whose workers take.
LOOKS = [("receiveOnly", "claiming from"), ("none", "looking at")]


@pytest.mark.parametrize("mode, look", LOOKS)
@pytest.mark.parametrize("interval", [timedelta(seconds=1), timedelta(seconds=10)], ids=str)
def test_an_idle_stream_looks_once_per_poll_interval(engine, queue, interval, mode, look):
    """With one statement."""
    options = SourceOptions.parse(
        {
            "url": engine.url,
            "queue": queue.address,
            "pollInterval": f"{interval.seconds}s",
            "transactionMode": mode,
        }
    )
    with counting() as (clock, said):
        receiver = Receiver(options, clock=clock, sleep=clock.sleep)
        idle(receiver, clock, 60, None)
        said.clear()
        idle(receiver, clock, 600, None)
        receiver.close()
    assert {what for _, what in said} == {look}
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(said)]
    assert min(pauses) >= interval.total_seconds()
    assert max(pauses) <= interval.total_seconds() * 1.1 + 0.3


@pytest.mark.parametrize("mode, look", LOOKS)
def test_looks_at_an_empty_queue_back_off(engine, queue, mode, look):
    """From 50 milliseconds to pollInterval. Before the first one the stream looks for neighbours."""
    given = {"url": engine.url, "queue": queue.address, "pollInterval": "1s", "transactionMode": mode}
    options = SourceOptions.parse(given)
    with counting() as (clock, said):
        receiver = Receiver(options, clock=clock, sleep=clock.sleep)
        idle(receiver, clock, 5, None)
        looks = [time for time, what in said if what == look]
        receiver.close()
    looks = sorted(set(looks))
    pauses = [round(later - earlier, 2) for earlier, later in itertools.pairwise(looks)]
    assert pauses[:6] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0], abs=0.02)


def test_a_message_ends_a_long_idle_time(engine, queue):
    """It is claimed at the next look, and the pace is quick again."""
    options = SourceOptions.parse({"url": engine.url, "queue": queue.address, "pollInterval": "10s"})
    with counting() as (clock, said):
        receiver = Receiver(options, clock=clock, sleep=clock.sleep)
        idle(receiver, clock, 100, None)
        queue.insert(1)
        sent = clock.now
        while (end := receiver.latest(None, 10)) is None:
            clock.now += 0.01
        assert clock.now - sent <= 10.1
        assert receiver.plan(None, end) != []
        said.clear()
        idle(receiver, clock, 1, end)
        assert len([what for _, what in said if what == "claiming from"]) >= 3
        receiver.close()


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
@pytest.mark.parametrize("several", [False, True], ids=["one queue", "a list of one"])
def test_only_beside_others_does_a_queue_not_wait_long_for_a_lock(engine, queue, mode, several):
    """A stream with the option queue waits for locks as long as its options say."""
    named = {"queues": json.dumps([queue.address])} if several else {"queue": queue.address}
    queue.insert(1)
    with counting() as (clock, said):
        options = SourceOptions.parse(
            {"url": engine.url, "pollInterval": "1s", "transactionMode": mode, **named}
        )
        receiver = Receiver(options, clock=clock, sleep=clock.sleep)
        assert receiver.latest(None, 10) is not None
        receiver.close()
    assert ("setting how" in {what for _, what in said}) is several


class Taking:
    """A stream of mode none as Spark runs it, by a clock that only sleeping moves."""

    def __init__(self, engine, queue, **more):
        self.clock = Clock()
        given = {"url": engine.url, "queue": queue.address, "transactionMode": "none", **more}
        self.options = SourceOptions.parse(given)
        self.queue = queue
        self.taker = Receiver(self.options, clock=self.clock, sleep=self.clock.sleep)
        self.start = None

    def taken(self, task):
        (part,) = task
        assert part.counts
        return SliceReader(Target.of(self.options)).take(part)

    def run(self, seconds, *locked):
        """The batches of this number of seconds, with the time of each,
        while another session holds these rows whenever workers take.
        """
        batches, end_time = [], self.clock.now + seconds
        while self.clock.now < end_time:
            end = self.taker.latest(self.start, 10)
            self.clock.now += 0.01
            if end != self.start:
                with self.queue.session() as other:
                    other.lock(*locked)
                    parts = self.taker.plan(self.start, end)
                    rows = [
                        row
                        for task in parts
                        for each in self.taken(task)
                        for row in each["RowVersion"].to_pylist()
                    ]
                    other.rollback()
                batches.append((self.clock.now, rows))
                self.start = end
        return batches


@pytest.mark.needs("deletes_through_cte")
def test_rows_locked_again_and_again_make_few_batches(engine, queue):
    """One per pollInterval, while another session locks them and gives them back."""
    queue.insert(3)
    stream = Taking(engine, queue, pollInterval="1s")
    batches = stream.run(60, 1, 2, 3)
    assert [rows for _, rows in batches] == [[]] * len(batches)
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(batches)]
    assert pauses[0] < 0.1
    assert min(pauses[7:]) >= 0.99, pauses
    assert max(pauses) <= 2  # and they are still tried
    queue.insert(2, start=3)
    assert [rows for _, rows in stream.run(1.1, 1, 2, 3) if rows] == [
        [4, 5]
    ]  # what is new does not wait for them
    assert [rows for _, rows in stream.run(2.5)] == [[1, 2, 3]]
    queue.insert(2, start=5)
    assert [rows for _, rows in stream.run(1.1, 6)] == [[7], [], []]  # and the pauses begin anew
    stream.taker.close()


@pytest.mark.needs("deletes_through_cte")
def test_a_bounded_run_waits_for_rows_given_back(engine, queue):
    """By a session that has locked them again and again."""
    queue.insert(3)
    stream = Taking(engine, queue, pollInterval="1s")
    stream.taker.stop_at_present_end()
    assert [rows for _, rows in stream.run(10, 1, 2, 3) if rows] == []
    end, batches = stream.taker.latest(stream.start, 10), []
    while end != stream.start:  # Spark ends the run when nothing new is found
        parts = stream.taker.plan(stream.start, end)
        batches += [each for part in parts for each in stream.taken(part)]
        stream.start, end = end, stream.taker.latest(end, 10)
    assert [row for each in batches for row in each["RowVersion"].to_pylist()] == [1, 2, 3]
    stream.taker.close()


def test_how_many_wait_is_told_without_a_statement(engine, queue):
    queue.insert(30)
    options = SourceOptions.parse({"url": engine.url, "queue": queue.address, "pollInterval": "1s"})
    with counting() as (clock, said):
        receiver = Receiver(options, clock=clock, sleep=clock.sleep)
        assert receiver.waiting() is None
        first = receiver.latest(None, 10)
        said.clear()
        waiting = [receiver.waiting() or {} for _ in range(5)]
        assert [each["rows"] for each in waiting] == [20] * 5
        assert all(each["oldestSeconds"] > 0 for each in waiting)  # the messages were sent in 2025
        assert said == []
        looks = 0
        for _ in range(4):
            second = receiver.latest(first, 5)
            looks += len([what for _, what in said if what == "looking at"])
            said.clear()
            first = second
        assert looks == 0  # within one pollInterval
        clock.now += 1
        receiver.latest(first, 5)
        assert receiver.waiting() == {"rows": 0, "oldestSeconds": 0, "leftToNeighbours": 0}
        receiver.close()


def test_what_is_claimed_after_a_look_no_longer_waits(engine, queue):
    """Batches come faster than looks, and the last of them leaves nothing."""
    queue.insert(30)
    with streaming(engine, queue, pollInterval="1m", maxMessagesPerTrigger="8") as stream:
        clock = Clock()
        stream.time = {"clock": clock, "sleep": clock.sleep}
        waiting = []
        before = datetime.now(UTC).replace(microsecond=0)
        while stream.trigger():
            waiting.append(stream.receiver.waiting() or {})
            clock.now += 1
    assert [each["rows"] for each in waiting] == [22, 14, 6, 0]
    assert [each["oldestSeconds"] > 0 for each in waiting] == [True, True, True, False]
    assert "lookedAt" not in waiting[0]  # it was looked in that batch
    (looked,) = {each["lookedAt"] for each in waiting[1:]}
    assert before <= datetime.fromisoformat(looked) <= datetime.now(UTC)


def test_a_late_row_did_not_wait_behind_the_look(postgresql):
    backlog, queue = Backlog(timedelta(minutes=1), Clock()), postgresql.create_queue()
    queue.insert(10)
    with connect(Target.of(SourceOptions.parse({"url": postgresql.url, "queue": "orders"}))) as connection:
        found = queues.get(connection, "orders", Naming(default_schema="public"))
        backlog.look(found, 4)
    backlog.claimed(QueueRows(queue=found, live=RowSet([(2, 3)])))
    assert backlog.seen is not None
    assert backlog.seen["rows"] == 6
    backlog.claimed(QueueRows(queue=found, live=RowSet([(4, 5)]), expired=RowSet([(6, 7)])))
    assert backlog.seen["rows"] == 3


@each_mode
def test_while_the_stop_file_is_there_nothing_is_claimed(engine, queue, tmp_path, mode):
    """The last batch is settled."""
    stop = tmp_path / "stop"
    queue.insert(20)
    given = {"transactionMode": mode, "maxMessagesPerTrigger": "5", "stopFile": str(stop)}
    with streaming(engine, queue, **given) as stream:
        assert stream.trigger()
        stop.touch()
        assert [stream.trigger() for _ in range(5)] == [False] * 5
        assert (stream.batches(), queue.row_versions()) == ([[1, 2, 3, 4, 5]], list(range(6, 21)))
        stop.unlink()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(20)), 0)


def test_while_the_stop_file_is_there_spark_is_made_to_wait(tmp_path):
    """Spark asks for a batch again at once, and a stop file may stand there for hours."""
    stop, clock = tmp_path / "stop", Clock()
    stop.touch()
    given = {"url": "postgresql://nowhere/", "queue": "orders", "stopFile": str(stop)}
    receiver = Receiver(SourceOptions.parse(given), clock=clock, sleep=clock.sleep)
    assert [receiver.latest(None, 10) for _ in range(4)] == [None] * 4
    assert clock.now == 1001.0
    receiver.close()


def test_a_stop_file_in_a_folder_into_which_the_source_may_not_look_is_none(engine, queue, tmp_path):
    """Through Spark Connect the folder may be another user's. Root may look into all, so the system lies."""
    stop, look = tmp_path / "stop", os.stat
    queue.insert(20)

    def stat(path, *more, **named):
        if path in (stop, str(stop)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *more, **named)

    with streaming(engine, queue, stopFile=str(stop)) as stream, mock.patch("os.stat", stat):
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(20)), 0)


def test_a_stream_that_is_idle_holds_no_transaction_open(engine, queue):
    with streaming(engine, queue) as stream:
        assert not stream.trigger()
        queue.execute(
            "ALTER TABLE {table} ADD extra int"
        )  # waits for every transaction that has used the table
        queue.insert(3)
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)
