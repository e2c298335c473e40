"""Connections that break: what was claimed is read, counted and settled all the same, or the batch fails."""

import itertools
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.embedded import GUARDED_ROLE
from sqlqueue_spark.errors import ClaimLost, ConnectionLost, RowsHeld
from tests.support import tampering
from tests.support.driver import STEPS, at_step, streaming
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.proxy import proxied
from tests.support.waiting import eventually


@pytest.fixture
def beside():
    """A thread beside the test's own."""
    with ThreadPoolExecutor(1) as executor:
        yield executor.submit


def warnings(caplog):
    """The first word of every warning and what it says of numbers."""
    return [
        tuple(word for word in record.getMessage().split(":")[0].split() if "queue=" not in word)
        for record in caplog.records
        if record.name.startswith("sqlqueue_spark") and record.levelname == "WARNING"
    ]


def test_a_stream_outlives_its_token_for_the_provider_is_asked_before_each_new_connection(
    postgresql, guarded_url, monkeypatch
):
    """The token is the password here, which changes each time after it was asked for; connections are cut meanwhile."""
    queue = postgresql.create_queue()
    queue.execute(f"GRANT SELECT, UPDATE, DELETE ON {{table}} TO {GUARDED_ROLE}")
    queue.insert(60)
    given: list[str] = []
    one_at_a_time = threading.Lock()

    def get():
        with one_at_a_time:  # a claim ahead asks on a thread of its own
            given.append(f"token {len(given)}")
            postgresql.execute(f"ALTER ROLE {GUARDED_ROLE} PASSWORD '{given[-1]}'")
            return given[-1]

    vault = types.ModuleType("vault")
    vault.get = get  # type: ignore[attr-defined] # a module of this test
    monkeypatch.setitem(sys.modules, "vault", vault)
    alone = PostgresEngine(guarded_url.replace(":open%20sesame", ""))
    with streaming(alone, queue, accessTokenProvider="vault:get", maxMessagesPerTrigger="20") as stream:
        while len(stream.ids()) < 60:
            stream.trigger()
            postgresql.cut_connections()
        stream.drain()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(60)), 0, 0)
    assert len(given) > 3


# -- cut, and nobody interferes -------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_connections_that_are_cut_at_any_step_cost_no_message_and_no_restart(engine, queue, step):
    queue.insert(100)
    with streaming(engine, queue, maxMessagesPerTrigger="30", minMessagesPerPartition="10") as stream:
        with at_step(step, engine.cut_connections, on={1, 3}) as cuts:
            stream.drain()
        assert cuts == [1, 3]
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


def test_a_cut_after_the_rows_were_locked_is_noticed_when_settling_and_said_once(engine, queue, caplog):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        assert engine.cut_connections() > 0
        assert not stream.trigger()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("claim_lost", "rows=10"), ("settled_after_loss", "deleted=10", "gone=0")]


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_connection_that_breaks_at_commit_settles_the_batch_all_the_same(postgresql, caplog, deliver):
    queue = postgresql.create_queue()
    queue.insert(50)
    with (
        proxied(postgresql.url) as proxy,
        streaming(PostgresEngine(proxy.url), queue, maxMessagesPerTrigger="20") as stream,
        at_step(fail_points.DELETED, lambda: proxy.cut_at(b"COMMIT", deliver=deliver)),
    ):
        stream.drain()
        assert proxy.cuts == 1
        assert stream.batches() == [list(range(1, 21)), list(range(21, 41)), list(range(41, 51))]
        assert (queue.count(), stream.crashes) == (0, 0)
    deleted, gone = (0, 20) if deliver else (20, 0)
    assert warnings(caplog) == [
        ("claim_lost", "rows=20"),
        ("settled_after_loss", f"deleted={deleted}", f"gone={gone}"),
    ]


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_process_that_dies_with_its_commit_on_the_way_leaves_nothing_twice(postgresql, deliver):
    queue = postgresql.create_queue()
    queue.insert(50)
    with (
        proxied(postgresql.url) as proxy,
        streaming(PostgresEngine(proxy.url), queue, maxMessagesPerTrigger="20") as stream,
    ):
        assert stream.trigger()
        with at_step(fail_points.DELETED, lambda: proxy.cut_at(b"COMMIT", deliver=deliver)):
            connection = stream._connections[0]
            with pytest.raises(ConnectionError, match=r"^the process dies$"):
                _die_of_the_first_error(stream, connection)
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(50)), 0)


def _die_of_the_first_error(stream, connection):
    commit = connection.commit

    def commit_or_die():
        try:
            commit()
        except ConnectionLost:
            raise ConnectionError("the process dies") from None

    connection.commit = commit_or_die
    stream.trigger()


@pytest.mark.parametrize("immediate", [True, False], ids=["immediate", "fast"])
@pytest.mark.parametrize("step", [fail_points.OFFSET_LOGGED, fail_points.DELETED])
def test_a_server_that_is_restarted_within_a_batch_costs_no_message(server, postgresql, step, immediate):
    queue = postgresql.create_queue()
    queue.insert(100)
    with streaming(postgresql, queue, maxMessagesPerTrigger="40") as stream:
        with at_step(step, lambda: server.restart(immediate=immediate)) as restarts:
            stream.drain()
        assert restarts == [1]
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


# -- cut, and another consumer comes --------------------------------------------------------------


def test_a_row_that_another_consumer_took_and_gave_back_after_the_cut_is_waited_for(
    engine, queue, beside, caplog
):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        engine.cut_connections()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            settled = beside(stream.trigger)
            eventually(lambda: tampering.somebody_waits(engine))
            other.rollback()
            assert settled.result() is False
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("claim_lost", "rows=10"), ("settled_after_loss", "deleted=10", "gone=0")]


def test_a_row_that_another_consumer_took_for_good_after_the_cut_is_said_once_with_the_number(
    engine, queue, beside, caplog
):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        engine.cut_connections()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            assert other.take(7).row_version == 7
            settled = beside(stream.trigger)
            eventually(lambda: tampering.somebody_waits(engine))
            other.commit()
            assert settled.result() is False
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("claim_lost", "rows=10"), ("settled_after_loss", "deleted=8", "gone=2")]


def test_a_row_that_another_consumer_took_before_it_was_read_fails_the_batch(engine, queue):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        slices = stream.plan()
        engine.cut_connections()
        assert queue.take(5).row_version == 5
        with pytest.raises(ClaimLost) as caught:
            stream.read(slices)
        assert str(caught.value) == (
            f"A slice of {slices[0].queue} has 9 of the 10 rows that were claimed: the claim's transaction was "
            "lost and another consumer took rows, so this batch fails; start the stream again to replay it."
        )
        stream.crash()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4, 6, 7, 8, 9, 10]], 0)


@pytest.mark.needs("numbers_lock_timeouts", "tells_who_holds_locks")
def test_a_row_that_another_consumer_holds_too_long_after_the_cut_fails_the_stream_and_loses_nothing(
    engine, queue
):
    queue.insert(10)
    with streaming(engine, queue, lockTimeout="200ms") as stream:
        assert stream.trigger()
        engine.cut_connections()
        with queue.locked(5):
            with pytest.raises(RowsHeld, match=HELD):
                stream.trigger()
            stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_rows_that_vanish_under_their_locks_stop_the_stream_before_anything_is_deleted(postgresql):
    queue = postgresql.create_queue()
    queue.insert(10)
    queue.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    queue.execute(
        "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW WHEN (old.seq = 4) EXECUTE FUNCTION keep()"
    )
    with streaming(postgresql, queue) as stream:
        lost = (
            r"found 9 of 10 locked rows, so nothing was deleted; somebody changes rows without locking them: "
        )
        with pytest.raises(ClaimLost, match=lost):
            stream.trigger() and stream.trigger()
        assert queue.row_versions() == list(range(1, 11))


# -- a new process, and another consumer has come -------------------------------------------------

HELD = (
    r"^Rows of an unfinished batch of orders@\[\w+\]@\[\w+\] are still held by session \d+ "
    r"\(somebody else, \w+@[^)]+\) after waiting lockTimeout; end that session if it is a stopped stream, "
    r"or raise lockTimeout\.$"
)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
def test_a_replay_waits_for_a_row_that_another_receiver_holds(engine, queue, beside, caplog, taken):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            planned = beside(stream.plan)
            eventually(lambda: tampering.somebody_waits(engine))
            other.commit() if taken else other.rollback()
            stream.write(stream.read(planned.result()))
        stream.drain()
        expected = [row for row in range(1, 11) if row != 5 or not taken]
        assert (stream.batches(), queue.count()) == ([expected], 0)
    assert ("replaying", f"rows={len(expected)}", f"taken_by_others={10 - len(expected)}") in warnings(caplog)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
def test_a_recovery_waits_for_a_row_that_another_receiver_holds(engine, queue, beside, caplog, taken):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.crash()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            recovered = beside(stream.trigger)
            eventually(lambda: tampering.somebody_waits(engine))
            other.commit() if taken else other.rollback()
            assert recovered.result() is False
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("recovered", f"deleted={9 if taken else 10}")]


def test_a_replay_of_rows_that_are_held_on_says_who_holds_them(engine, queue):
    queue.insert(10)
    with streaming(engine, queue, lockTimeout="200ms") as stream:
        assert stream.construct()
        stream.crash()
        with queue.locked(5), pytest.raises(RowsHeld, match=HELD):
            stream.plan()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_recovery_of_rows_that_are_held_on_says_who_holds_them(engine, queue):
    queue.insert(10)
    with streaming(engine, queue, lockTimeout="200ms") as stream:
        assert stream.trigger()
        stream.crash()
        with queue.locked(5), pytest.raises(RowsHeld, match=HELD):
            stream.trigger()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.needs("numbers_lock_timeouts", "tells_who_holds_locks")
def test_a_second_stream_on_the_checkpoint_of_a_live_one_is_told_who_lives(engine, queue):
    queue.insert(10)
    with (
        streaming(engine, queue) as first,
        streaming(engine, queue, lockTimeout="200ms") as second,
    ):
        assert first.construct()
        second.offsets = first.offsets
        with pytest.raises(RowsHeld, match=rf" are still held by session \d+ \({first.name}, "):
            second.plan()
        first.drain()
        assert (first.ids(), second.sink, queue.count()) == (row_ids(range(10)), {}, 0)


# -- senders that commit late ---------------------------------------------------------------------


MOMENTS = ["claimed", "replayed", "planned", "written", "recovered", "cut", "settled"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_lower_row_version_that_is_committed_late_is_a_message_of_a_later_batch(engine, queue, moment):
    with queue.session() as late, streaming(engine, queue) as stream:
        queue.insert(5)
        late.insert(1, start=100)
        queue.insert(5, start=5)

        def now(reached, before=lambda: None):
            if reached == moment:
                before()
                late.commit()

        assert stream.construct()
        now("claimed")
        now("replayed", stream.crash)
        slices = stream.plan()
        now("planned")
        stream.write(stream.read(slices))
        now("written")
        stream.done += 1
        now("recovered", stream.crash)
        now("cut", stream.cut)
        now("settled", stream.trigger)
        stream.drain()
        assert stream.batches() == [[1, 2, 3, 4, 5, 7, 8, 9, 10, 11], [6]]
        assert (stream.ids(), queue.count()) == (
            [*row_ids(range(5)), *row_ids(range(5, 10)), *row_ids([100])],
            0,
        )


@pytest.mark.parametrize("comes", ["late commit", "rollback"])
def test_a_row_that_comes_up_below_the_head_is_claimed_also_under_load(engine, queue, comes):
    queue.insert(1, start=9000)
    starts = itertools.count(0, 20)
    with queue.session() as other, streaming(engine, queue, maxMessagesPerTrigger="20") as stream:
        other.insert(1, start=9001) if comes == "late commit" else other.lock(1)
        low = 2 if comes == "late commit" else 1
        for _ in range(5):
            queue.insert(20, start=next(starts))
            assert stream.trigger()
        assert low not in {row for batch in stream.batches() for row in batch}
        other.commit() if comes == "late commit" else other.rollback()

        def claimed():
            queue.insert(20, start=next(starts))
            assert stream.trigger()
            return low in stream.batches()[-1]

        queue.insert(200, start=next(starts) + 10_000)  # so that there is always more than is claimed
        assert eventually(claimed)
        assert queue.count() > 100
