"""Beside neighbours a stream leaves them the oldest rows, whatever they do; each message is handled once,
and none is left.

Most tests have a time of their own, which only they and the receiver's sleep move. PostgreSQL only: there the
look that counts the headroom is told who holds a row.
"""

import contextlib
import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from unittest import mock

import psycopg
import pytest

from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import NO_TRANSACTION
from sqlqueue_spark.tables.queues import Queue
from tests.support.clock import Clock
from tests.support.driver import OFFSET_NOT_LOGGED, at_step, crash, streaming
from tests.support.forwarding import forwarding
from tests.support.messages import message_ids, number_of, row_id, row_ids
from tests.support.neighbour import Habits, Neighbour
from tests.support.sending import ids_in
from tests.support.streams import free
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")

#: Neighbours that look again soon.
SOON = timedelta(milliseconds=10)
PAST = datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(postgresql):
    return postgresql.create_queue()


@contextlib.contextmanager
def timed(engine, queue, clock, *, start=streaming, rows=100, **options):
    """A stream of batches of this number of rows, in a time of the test's own."""
    options = {"maxMessagesPerTrigger": str(rows), "claimAhead": "false", **options}
    with start(engine, queue, **options) as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        yield stream


class OneByOne:
    """Neighbours who take the oldest free rows, and what they have taken."""

    def __init__(self, queue):
        self._queue = queue
        self.handled = []

    def take(self, count):
        with self._queue.session() as session:
            for _ in range(count):
                row = session.take()
                assert row is not None
                self.handled.append(row.id)
            session.commit()


def batch_after(clock, seconds, stream):
    """The first and the last row of the next batch, this many seconds later."""
    clock.now += seconds
    assert stream.trigger()
    batch = stream.batches()[-1]
    assert batch == sorted(batch)
    return batch[0], batch[-1]


def left(stream):
    """How many rows the stream has left to neighbours when it looked last."""
    return (stream.receiver.waiting() or {"leftToNeighbours": 0})["leftToNeighbours"]


def drain(stream):
    """Drain the queue in the test's own time; returns how many rows were left to
    neighbours after each batch.
    """
    seen = []
    while stream.table.count() > 0:
        stream.trigger()
        seen.append(left(stream))
    return seen


def handled_once(queue, total, *parties):
    """All messages in the hands of those who have handled them, and what is left."""
    everything = [each for party in parties for each in party]
    return (sorted(everything), queue.count()) == (row_ids(range(total)), 0)


# They come, stop, die, roll back, are slow.


def test_neighbours_that_appear_in_the_middle_of_a_backlog_get_the_oldest_rows(postgresql, queue, clock):
    queue.insert(1000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock) as stream:
        assert batch_after(clock, 1, stream) == (1, 100)
        assert (left(stream), batch_after(clock, 1, stream)) == (0, (101, 200))
        neighbours.take(10)  # 201 to 210
        assert (batch_after(clock, 1, stream), left(stream)) == ((311, 410), 100)
        neighbours.take(
            40
        )  # 211 to 250; so fewer are left than they take in two seconds, and it is filled up for eight
        assert (batch_after(clock, 1, stream), left(stream)) == ((607, 706), 256)
        # They take none: it stays as it is.
        assert (batch_after(clock, 1, stream), left(stream)) == ((707, 806), 256)
        drain(stream)
    assert neighbours.handled == row_ids(range(200, 250))
    assert handled_once(queue, 1000, stream.ids(), neighbours.handled)


def test_an_endpoint_that_appears_beside_a_claim_ahead_gets_the_oldest_rows(postgresql, queue):
    queue.insert(20_000)  # quick endpoints have all of them: the headroom is two seconds of their pace
    habits = Habits(concurrency=8, rest=SOON)
    with streaming(postgresql, queue, maxMessagesPerTrigger="100") as stream:

        def leaves_some():
            stream.trigger()
            return left(stream) > 0

        for _ in range(5):
            assert stream.trigger()
        assert stream.batches() == [list(range(n, n + 100)) for n in range(1, 501, 100)]
        with Neighbour(postgresql, queue, habits).running() as neighbour:
            eventually(lambda: neighbour.counts().handled > 0)
            eventually(leaves_some)
            stream.drain()
        stream.drain()
        assert handled_once(queue, 20_000, stream.ids(), neighbour.handled)


def test_a_neighbour_that_still_looks_behind_all_that_a_stream_holds_gets_the_oldest_rows(
    postgresql, queue, clock
):
    """A fast stream holds many rows, so that the neighbour may look for seconds.
    The stream claims the next rows before the neighbour is there.
    """
    queue.insert(1000)
    with timed(postgresql, queue, clock) as stream, queue.session() as neighbour:
        assert batch_after(clock, 1, stream) == (1, 100)
        neighbour.lock()  # no row, but the table, as his statement does from its beginning
        assert (batch_after(clock, 1, stream), left(stream)) == ((201, 300), 100)
        assert neighbour.take().row_version == 101
        neighbour.commit()
        drain(stream)
    assert handled_once(queue, 1000, stream.ids(), [row_id(100)])


def test_workers_that_take_rows_are_no_neighbours_of_their_own_stream(postgresql, queue, clock):
    queue.insert(300)
    with (
        timed(postgresql, queue, clock, transactionMode=NO_TRANSACTION) as stream,
        queue.session() as worker,
    ):
        assert batch_after(clock, 1, stream) == (1, 100)
        worker.lock()  # no row, but the table, as its statement does from its beginning
        assert (batch_after(clock, 1, stream), left(stream)) == ((101, 200), 0)


def test_a_claim_ahead_is_given_back_when_neighbours_appear(postgresql, queue, clock):
    """It holds the rows that they come to next: they need not wait until its batch is done."""
    queue.insert(1000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock, claimAhead="true") as stream:
        assert batch_after(clock, 1, stream) == (1, 100)
        eventually(lambda: free(queue) == 800)  # 101 to 200 are claimed ahead
        neighbours.take(10)  # 201 to 210
        assert (batch_after(clock, 1, stream), left(stream)) == ((211, 310), 100)
        neighbours.take(10)  # 101 to 110
        drain(stream)
    taken = [*range(200, 210), *range(100, 110)]
    assert [number_of(each) for each in neighbours.handled] == taken
    assert handled_once(queue, 1000, stream.ids(), neighbours.handled)


def test_when_neighbours_stop_the_stream_takes_what_was_left(postgresql, queue, clock):
    """Two looks and five seconds later, from the oldest row on, and in strict order from then on."""
    queue.insert(1000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbours.take(10)
        seen = [(batch_after(clock, 1, stream), left(stream)) for _ in range(8)]
        assert seen == [
            *(((first, first + 99), 100) for first in range(211, 711, 100)),
            ((111, 210), 0),
            ((711, 810), 0),
            ((811, 910), 0),
        ]
        drain(stream)
    assert handled_once(queue, 1000, stream.ids(), neighbours.handled)


def test_looks_in_quick_succession_do_not_take_neighbours_for_gone(postgresql, queue, clock):
    queue.insert(2000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbours.take(10)
        for _ in range(10):
            batch_after(clock, 0.1, stream)
        assert (left(stream), queue.row_versions()[:100]) == (100, list(range(111, 211)))
        drain(stream)
    assert handled_once(queue, 2000, stream.ids(), neighbours.handled)


def test_rows_of_neighbours_that_die_come_when_the_server_has_freed_them(postgresql, queue, clock):
    queue.insert(1000)
    neighbour = Neighbour(postgresql, queue, Habits(concurrency=4, rest=SOON))
    neighbour.hang()
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbour.start()
        held = eventually(lambda: neighbour.holding() if len(neighbour.holding()) == 4 else None)
        assert held == [101, 102, 103, 104]
        assert (batch_after(clock, 1, stream), left(stream)) == ((205, 304), 100)
        neighbour.die()
        drain(stream)
        assert (neighbour.handled, neighbour.troubles, stream.crashes) == ([], [], 0)
    assert handled_once(queue, 1000, stream.ids())


@pytest.mark.tier("all")
def test_neighbours_that_roll_back_a_tenth_get_their_headroom_and_each_message_is_handled_once(
    postgresql, queue
):
    queue.insert(30_000)
    habits = Habits(concurrency=4, rolls_back=0.1, rest=SOON)
    most = 0
    with (
        streaming(postgresql, queue, maxMessagesPerTrigger="200") as stream,
        Neighbour(postgresql, queue, habits).running() as neighbour,
    ):
        eventually(lambda: neighbour.counts().rolled_back > 0)
        while queue.count():
            stream.trigger()
            most = max(most, left(stream))
        assert min(most, neighbour.counts().rolled_back, len(stream.sink)) > 0
    assert handled_once(queue, 30_000, stream.ids(), neighbour.handled)


@pytest.mark.tier("all")
def test_a_neighbour_that_handles_each_message_for_long_keeps_what_it_holds(postgresql, queue, clock):
    """It hangs, which lasts as long as the test wants.

    It is known from then on, and seen again when it takes more.
    """
    queue.insert(1000)
    neighbour = Neighbour(postgresql, queue, Habits(concurrency=4, rest=SOON))
    neighbour.hang()
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbour.start()
        eventually(lambda: len(neighbour.holding()) == 4)
        seen = [(batch_after(clock, 1, stream), left(stream)) for _ in range(5)]
        assert seen == [
            ((205, 304), 100),
            ((305, 404), 100),
            ((105, 204), 0),
            ((405, 504), 0),
            ((505, 604), 0),
        ]
        neighbour.go_on()
        eventually(lambda: len(neighbour.handled) > 50)
        clock.now += 1
        assert not stream.trigger() or stream.batches()[-1][0] > 605
        neighbour.stop()
        drain(stream)
    first = {number_of(each) + 1 for each in neighbour.handled if number_of(each) < 204}
    assert first == {101, 102, 103, 104}
    assert handled_once(queue, 1000, stream.ids(), neighbour.handled)


# Several streams.


def test_two_streams_and_eight_neighbours_handle_each_message_once(postgresql, queue):
    queue.insert(8000)
    options = {"maxMessagesPerTrigger": "200", "minMessagesPerPartition": "100", "maxConcurrency": "2"}
    habits = Habits(concurrency=8, rest=SOON)
    most: dict[str, int] = {}

    def run(stream):
        while queue.count():
            stream.trigger()
            most[stream.name] = max(most.get(stream.name, 0), left(stream))

    with (
        streaming(postgresql, queue, commit=True, **options) as one,
        streaming(postgresql, queue, commit=False, **options) as other,
        Neighbour(postgresql, queue, habits).running() as neighbour,
        ThreadPoolExecutor(2) as executor,
    ):
        for each in [executor.submit(run, stream) for stream in (one, other)]:
            each.result()
    assert handled_once(queue, 8000, one.ids(), other.ids(), neighbour.handled)
    assert min(len(neighbour.handled), *most.values()) > 0
    assert (len(most), one.crashes, other.crashes) == (2, 0, 0)


@pytest.mark.parametrize("mode", ["receiveOnly", NO_TRANSACTION])
@pytest.mark.parametrize("ahead", ["true", "false"])
def test_two_streams_alone_leave_each_other_nothing(postgresql, queue, mode, ahead):
    queue.insert(3000)
    options = {"maxMessagesPerTrigger": "200", "claimAhead": ahead, "transactionMode": mode}
    seen = set()

    def run(stream):
        while queue.count():
            stream.trigger()
            seen.add(left(stream))

    with (
        streaming(postgresql, queue, **options) as one,
        streaming(postgresql, queue, **options) as other,
        ThreadPoolExecutor(2) as executor,
    ):
        for each in [executor.submit(run, stream) for stream in (one, other)]:
            each.result()
    assert handled_once(queue, 3000, one.ids(), other.ids())
    assert (seen, min(len(one.sink), len(other.sink)) > 0) == ({0}, True)


def test_a_stream_that_crashes_is_no_neighbour_to_the_other(postgresql, queue, clock):
    """What it held is free again, and its session is gone with it."""
    queue.insert(1000)
    with timed(postgresql, queue, clock) as one, timed(postgresql, queue, clock) as other:
        assert [batch_after(clock, 1, stream) for stream in (one, other)] == [(1, 100), (101, 200)]
        with at_step(OFFSET_NOT_LOGGED, crash):
            other.drain(left=1000)
        seen = drain(one)
        other.drain()
        assert (set(seen), other.crashes) == ({0}, 1)
        assert handled_once(queue, 1000, one.ids(), other.ids())


# Time.


@pytest.mark.tier("all")
def test_the_headroom_grows_with_the_time_that_a_batch_lasts(postgresql, queue, clock):
    """A sink that takes a minute: twice what the neighbours take in it."""
    queue.insert(4000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbours.take(10)
        batch_after(clock, 1, stream)
        sizes = []
        for taken in (100, 300, 400):
            neighbours.take(taken)
            batch_after(clock, 60, stream)
            sizes.append(left(stream))
        assert sizes == [400, 600, 800]
        drain(stream)
    assert handled_once(queue, 4000, stream.ids(), neighbours.handled)


@pytest.mark.tier("all")
def test_an_hourly_trigger_leaves_enough_for_an_hour(postgresql, queue, clock):
    queue.insert(6000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock) as stream:
        batch_after(clock, 1, stream)
        neighbours.take(10)
        firsts = [batch_after(clock, 3600, stream)[0]]
        for taken in (100, 400, 900):
            neighbours.take(taken)
            firsts.append(batch_after(clock, 3600, stream)[0])
        assert (firsts, left(stream)) == ([211, 711, 2336, 3536], 1800)
        drain(stream)
    assert handled_once(queue, 6000, stream.ids(), neighbours.handled)


# What may become of its rows.


def seen_neighbours(stream, queue, clock):
    """Rows 111 to 210 are left to neighbours, who have taken ten."""
    neighbours = OneByOne(queue)
    assert batch_after(clock, 1, stream) == (1, 100)
    neighbours.take(10)
    assert (batch_after(clock, 1, stream), left(stream)) == ((211, 310), 100)
    return neighbours


@contextlib.contextmanager
def each_handled_once(engine, queue, clock, rows):
    """A stream, and neighbours that it has seen.

    At the end of the block the rest is drained; each message was handled once.
    """
    queue.insert(rows)
    with timed(engine, queue, clock) as stream:
        neighbours = seen_neighbours(stream, queue, clock)
        yield stream, neighbours
        drain(stream)
    assert handled_once(queue, rows, stream.ids(), neighbours.handled)


def test_a_headroom_whose_rows_are_all_locked_is_left_to_who_holds_them(postgresql, queue, clock):
    with (
        each_handled_once(postgresql, queue, clock, 2000) as (stream, _),
        queue.locked(*range(111, 211)),
    ):
        while stream.trigger():
            clock.now += 1
        assert queue.row_versions() == list(range(111, 211))


@pytest.mark.tier("all")
def test_a_headroom_whose_rows_are_all_gone_grows(postgresql, queue, clock):
    with each_handled_once(postgresql, queue, clock, 2000) as (stream, neighbours):
        neighbours.take(100)
        assert (batch_after(clock, 1, stream), left(stream)) == ((711, 810), 400)


def test_a_headroom_of_expired_rows_is_cleared_when_no_receiver_takes_them(postgresql, queue, clock):
    """They are dropped, as everybody drops them, and the neighbours are seen anew."""
    queue.insert(1000)
    with timed(postgresql, queue, clock) as stream:
        neighbours = seen_neighbours(stream, queue, clock)
        queue.execute(f"UPDATE {{table}} SET expires = '{PAST:%Y-%m-%d}' WHERE seq BETWEEN 111 AND 210")
        drain(stream)
        assert stream.batches()[2:4] == [list(range(311, 411)), list(range(411, 511))]
    everything = sorted([*stream.ids(), *neighbours.handled])
    assert (everything, queue.count()) == (row_ids([*range(110), *range(210, 1000)]), 0)


def test_a_message_in_transit_stays_in_the_headroom_until_the_neighbours_are_gone(postgresql, queue, clock):
    billing = postgresql.create_queue("billing")
    queue.insert(149)
    transit = json.dumps({"NServiceBus.MessageId": "x", FORWARD_DESTINATION: '"public"."billing"'})
    assert queue.insert_row(id=row_id(149), headers=transit, body=b"x") == 150
    queue.insert(850, start=150)
    with timed(postgresql, queue, clock) as stream:
        neighbours = seen_neighbours(stream, queue, clock)
        for _ in range(3):
            neighbours.take(5)
            batch_after(clock, 1, stream)
            assert (billing.count(), 150 in queue.row_versions()) == (0, True)
        drain(stream)
    everything = sorted([*stream.ids(), *neighbours.handled])
    assert (everything, queue.count()) == (row_ids([*range(149), *range(150, 1000)]), 0)
    assert ids_in(billing) == ["x"]


def test_rows_with_numbers_far_ahead_hide_none_of_the_others(postgresql, queue, clock):
    """On PostgreSQL a sender may choose the number of his row."""
    queue.insert(1000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock, rows=400) as stream:
        assert stream.trigger()
        neighbours.take(10)
        pauses = 0
        for second in range(20):
            clock.now += 1
            queue.insert(100, start=1000 + 100 * second)
            if second in (5, 10):
                queue.execute(
                    "INSERT INTO {table} (id, headers, body, seq) "
                    f"VALUES (gen_random_uuid(), '{{{{}}}}', '', {(1 << 40) + second})"
                )
            neighbours.take(20)
            pauses += not stream.trigger()
    assert pauses == 0


def test_a_claim_that_is_given_back_is_claimed_again_above_the_headroom(postgresql, queue, clock):
    """Spark ran a batch without rows of ours, so the claim was not logged.

    Its rows count as free ones again.
    """
    queue.insert(1000)
    neighbours = OneByOne(queue)
    with timed(postgresql, queue, clock, neighbourHeadroom="100") as stream:
        assert batch_after(clock, 1, stream) == (101, 200)
        neighbours.take(5)
        assert stream.construct()  # above 6 to 100 and 201 to 205
        stream.offsets.pop()
        assert queue.row_versions()[95] == 201
        stream.receiver.finish(stream.end(stream.done), rows=True)
        neighbours.take(5)
        assert (batch_after(clock, 1, stream), left(stream)) == ((211, 310), 100)
        drain(stream)
    assert handled_once(queue, 1000, stream.ids(), neighbours.handled)


def test_a_claim_whose_connection_is_lost_beside_neighbours_loses_nothing(postgresql, queue, clock):
    with each_handled_once(postgresql, queue, clock, 1000) as (stream, neighbours):
        clock.now += 0.1
        assert stream.construct()
        stream.offsets.pop()
        postgresql.cut_connections()
        neighbours.take(5)


# Runs.


def test_a_restart_with_another_headroom_begins_with_that(postgresql, queue, clock):
    queue.insert(1000)
    with timed(postgresql, queue, clock, neighbourHeadroom="50") as stream:
        firsts = [(batch_after(clock, 1, stream)[0], left(stream))]
        for headroom in (20, 30, 0, None):
            stream.stop()
            stream.options = dataclasses.replace(stream.options, neighbour_headroom=headroom)
            firsts.append((batch_after(clock, 1, stream)[0], left(stream)))
        # 51 to 150 were handled first; then 21 to 50 and 151 to 220; then 231 to 330,
        # because 1 to 20 and 221 to 230 were left.
        assert firsts == [(51, 50), (21, 20), (231, 30), (1, 0), (401, 0)]
        drain(stream)
    assert handled_once(queue, 1000, stream.ids())


def test_a_run_that_ends_by_itself_ends_although_a_neighbour_holds_the_head(postgresql, queue, clock):
    """It takes all that is free, also what was left; what is held stays with who holds it,
    and so does what came later.
    """
    queue.insert(1000)
    neighbour = Neighbour(postgresql, queue, Habits(concurrency=4, rest=SOON))
    neighbour.hang()
    with timed(postgresql, queue, clock) as stream:
        stream.receiver.stop_at_present_end()
        assert batch_after(clock, 1, stream) == (1, 100)
        neighbour.start()
        held = eventually(lambda: neighbour.holding() if len(neighbour.holding()) == 4 else None)
        queue.insert(50, start=1000)
        seen = []
        while stream.trigger():
            seen.append(left(stream))
        assert (seen[0], held, queue.row_versions()) == (
            100,
            [101, 102, 103, 104],
            [101, 102, 103, 104, *range(1001, 1051)],
        )
        neighbour.die()
        stream.crash()
        drain(stream)
    assert handled_once(queue, 1050, stream.ids(), neighbour.handled)


def test_a_run_that_ends_by_itself_beside_busy_neighbours_leaves_nothing(postgresql, queue):
    queue.insert(4000)
    with (
        Neighbour(postgresql, queue, Habits(concurrency=4, rest=SOON)).running() as neighbour,
        streaming(postgresql, queue, maxMessagesPerTrigger="200") as stream,
    ):
        stream.receiver.stop_at_present_end()
        while stream.trigger():
            pass
        eventually(lambda: queue.count() == 0)
    assert handled_once(queue, 4000, stream.ids(), neighbour.handled)


def test_a_pipeline_beside_neighbours_sends_each_message_once(postgresql, queue, clock):
    """An atomic one; what the neighbours take is theirs."""
    billing = postgresql.create_queue("billing")
    queue.insert(600)
    with timed(postgresql, queue, clock, start=forwarding) as stream:
        neighbours = seen_neighbours(stream, queue, clock)
        drain(stream)
        stream.trigger()
        theirs = {number_of(each) for each in neighbours.handled}
        ours = [number for number in range(600) if number not in theirs]
        eventually(lambda: stream.trigger() or billing.count() == len(ours))
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(ours), 0)


# The cleanup of indexes.


def test_a_vacuum_does_not_wait_until_a_batch_is_done(postgresql, queue):
    """It would, while a statement of the open transaction still had a page of the index in its hands."""
    queue.insert(300)
    queue.execute("DELETE FROM {table} WHERE seq > 250")
    with streaming(postgresql, queue, maxMessagesPerTrigger="100", claimAhead="false") as stream:
        assert stream.trigger()
        assert stream.receiver.waiting() is not None
        with psycopg.connect(
            postgresql.url, autocommit=True, options="-c statement_timeout=5000"
        ) as connection:
            connection.execute("VACUUM (TRUNCATE FALSE, INDEX_CLEANUP ON) orders")
        stream.drain()
    assert stream.ids() == row_ids(range(250))


@contextlib.contextmanager
def cleanups():
    """The answers of all cleanups within the block."""
    done, clean = [], Queue.clean_indexes

    def clean_and_note(queue):
        done.append(clean(queue))
        return done[-1]

    with mock.patch.object(Queue, "clean_indexes", clean_and_note):
        yield done


def cleanup_ended():
    return not [each for each in threading.enumerate() if each.name == "sqlqueue-index-cleanup"]


def buffers_of_first_row(postgresql, above):
    """How many pages it takes to find the oldest row above one."""
    explain = (
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT seq FROM orders WHERE seq > {} ORDER BY seq LIMIT 1"
    )
    postgresql.fetch(explain.format(above))  # the first to look marks what is dead
    ((found,),) = postgresql.fetch(explain.format(above))
    return found[0]["Plan"]["Shared Hit Blocks"] + found[0]["Plan"]["Shared Read Blocks"]


def drain_twenty_thousand(stream, queue, clock, headroom):
    """Batches of 5,000 rows at most until 20,000 are settled, beside neighbours who take one row a batch.

    Rows 51 to 350 go with the first batch, which is small. Row 351 is left, because the neighbours have taken
    the first one meanwhile.
    """
    neighbours = OneByOne(queue)
    for _ in range(8 if headroom else 6):
        batch_after(clock, 1, stream)
        eventually(cleanup_ended)
        if headroom:
            neighbours.take(1)
    return neighbours


@pytest.fixture
def large(queue):
    queue.execute("ALTER TABLE {table} SET (autovacuum_enabled = false)")
    queue.insert(31_000)
    return queue


@pytest.mark.tier("all")
@pytest.mark.parametrize("headroom, oldest", [("50", 9), ("auto", 5_009)])
def test_drained_rows_leave_no_pages_for_neighbours_to_walk_through(
    postgresql, large, clock, headroom, oldest
):
    with (
        cleanups() as done,
        timed(postgresql, large, clock, rows=5000, neighbourHeadroom=headroom) as stream,
    ):
        neighbours = drain_twenty_thousand(stream, large, clock, 50)
        assert (done, large.row_versions()[:2]) == ([True], [oldest, oldest + 1])
        assert buffers_of_first_row(postgresql, 2_000) <= 8
        drain(stream)
    assert handled_once(large, 31_000, stream.ids(), neighbours.handled)


def test_without_neighbours_no_index_is_cleaned(postgresql, large, clock):
    with cleanups() as done, timed(postgresql, large, clock, rows=5000) as stream:
        drain_twenty_thousand(stream, large, clock, 0)
        assert (done, left(stream)) == ([], 0)
        drain(stream)
    assert handled_once(large, 31_000, stream.ids())


@pytest.mark.tier("all")
def test_a_login_without_the_right_to_clean_indexes_only_gets_a_warning(
    postgresql, guarded_url, large, clock
):
    postgresql.execute("GRANT SELECT, DELETE, UPDATE ON orders TO guarded")
    with (
        cleanups() as done,
        timed(postgresql, large, clock, rows=5000, neighbourHeadroom="50", url=guarded_url) as stream,
    ):
        neighbours = drain_twenty_thousand(stream, large, clock, 50)
        assert (done, stream.crashes) == ([True], 0)
        assert buffers_of_first_row(postgresql, 2_000) > 12
        drain(stream)
    assert handled_once(large, 31_000, stream.ids(), neighbours.handled)
