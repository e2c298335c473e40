"""A claim whose locks a cut or a death has freed: its rows are settled, replayed or recovered,
and what others took is said.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import ClaimLost, QueueError, RowsHeld
from tests.support import tampering
from tests.support.driver import at_step, streaming
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.proxy import proxied
from tests.support.waiting import eventually

HELD = (
    r"^Rows of an unfinished batch of orders@\[\w+\]@\[\w+\] are still held by session \d+ "
    r"\(another program, \w+@[^)]+\) after waiting lockTimeout; end that session if it is a stopped stream, "
    r"or raise lockTimeout\.$"
)


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


# -- cut, and no other session interferes --------------------------------------------------------


def test_a_lost_claim_is_settled_and_said_once(engine, queue, caplog):
    """The connection is cut after the rows were locked, which is noticed when settling."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        assert engine.cut_connections() > 0
        assert not stream.trigger()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("claim_lost", "rows=10"), ("settled_after_loss", "deleted=10", "gone=0")]


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_batch_is_settled_though_its_commit_breaks(postgresql, caplog, deliver):
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


# -- cut, and another consumer comes --------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
def test_settling_waits_for_rows_that_others_hold(engine, queue, beside, caplog, taken):
    """Another consumer took them after the cut; how many are gone is said once."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        engine.cut_connections()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            assert other.take(7).row_version == 7
            settled = beside(stream.trigger)
            eventually(lambda: tampering.a_session_waits(engine))
            other.commit() if taken else other.rollback()
            assert settled.result() is False
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    gone = 2 if taken else 0
    assert warnings(caplog) == [
        ("claim_lost", "rows=10"),
        ("settled_after_loss", f"deleted={10 - gone}", f"gone={gone}"),
    ]


def test_a_row_taken_before_it_was_read_fails_the_batch(engine, queue):
    """Another consumer took it after the cut."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        slices = stream.plan()
        engine.cut_connections()
        assert queue.take(5).row_version == 5
        with pytest.raises(ClaimLost) as caught:
            stream.read(slices)
        assert str(caught.value) == (
            f"A slice of {slices[0].queue} has 9 of the 10 rows that were claimed: "
            "the claim's transaction was lost and another consumer took rows, so this batch fails; start the "
            "stream again to replay it."
        )
        stream.crash()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4, 6, 7, 8, 9, 10]], 0)


# -- a new process, and another consumer has come -------------------------------------------------


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
def test_a_replay_waits_for_a_row_that_others_hold(engine, queue, beside, caplog, taken):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            planned = beside(stream.plan)
            eventually(lambda: tampering.a_session_waits(engine))
            other.commit() if taken else other.rollback()
            stream.write(stream.read(planned.result()))
        stream.drain()
        expected = [row for row in range(1, 11) if row != 5 or not taken]
        assert (stream.batches(), queue.count()) == ([expected], 0)
    assert ("replaying", f"rows={len(expected)}", f"taken_by_others={10 - len(expected)}") in warnings(caplog)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "given back"])
def test_a_recovery_waits_for_a_row_that_others_hold(engine, queue, beside, caplog, taken):
    queue.insert(10)
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        stream.crash()
        with queue.session() as other:
            assert other.take(5).row_version == 5
            recovered = beside(stream.trigger)
            eventually(lambda: tampering.a_session_waits(engine))
            other.commit() if taken else other.rollback()
            assert recovered.result() is False
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)
    assert warnings(caplog) == [("recovered", f"deleted={9 if taken else 10}")]


@pytest.mark.parametrize(
    "when",
    [
        "replayed",
        "recovered",
        pytest.param("cut", marks=pytest.mark.needs("numbers_lock_timeouts", "tells_who_holds_locks")),
    ],
)
@pytest.mark.provokes("lock timeout")
def test_a_row_held_too_long_is_said_with_its_holder(engine, queue, when):
    """After lockTimeout; nothing is lost."""
    queue.insert(10)
    with streaming(engine, queue, lockTimeout="200ms") as stream:
        assert stream.construct()
        if when != "replayed":
            stream.run()
        engine.cut_connections() if when == "cut" else stream.crash()
        with queue.locked(5):
            with pytest.raises(RowsHeld, match=HELD):
                stream.trigger()
            stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.provokes("lock timeout")
def test_the_holder_is_said_though_other_statements_may_take_less_time(engine, queue):
    queue.insert(10)
    with streaming(engine, queue, lockTimeout="1500ms", commandTimeout="1s") as stream:
        assert stream.construct()
        stream.crash()
        with queue.locked(5), pytest.raises(RowsHeld, match=HELD):
            stream.trigger()
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.needs("numbers_lock_timeouts", "tells_who_holds_locks")
@pytest.mark.provokes("lock timeout")
def test_a_second_stream_is_told_which_stream_lives(engine, queue):
    """Both run on the same checkpoint."""
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


# -- rows that are not what was locked ------------------------------------------------------------


def test_a_locked_row_that_vanishes_stops_the_stream(postgresql):
    """Before anything is deleted."""
    queue = postgresql.create_queue()
    queue.insert(10)
    queue.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    queue.execute(
        "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW WHEN (old.seq = 4) EXECUTE FUNCTION keep()"
    )
    with streaming(postgresql, queue) as stream:
        lost = (
            "found 9 of 10 locked rows, so nothing was deleted; "
            r"stop what keeps rows \(a trigger, a rule\) or changes them without locking them\."
        )
        with pytest.raises(ClaimLost, match=lost):
            stream.trigger() and stream.trigger()
        assert queue.row_versions() == list(range(1, 11))


@pytest.mark.parametrize("after", ["crash", "cut"])
def test_settling_again_deletes_all_its_rows_or_none(postgresql, after):
    """Those that were locked again; the database keeps back one of them."""
    queue = postgresql.create_queue()
    queue.insert(10)
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash() if after == "crash" else postgresql.cut_connections()
        queue.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        queue.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW WHEN (old.seq = 4) "
            "EXECUTE FUNCTION keep()"
        )
        with pytest.raises(
            ClaimLost, match=r" found 9 of 10 locked rows, so nothing was deleted; stop what keeps rows "
        ):
            stream.trigger()
        assert queue.row_versions() == list(range(1, 11))
        stream.crash()


def test_a_recovery_refuses_a_number_that_stands_twice(postgresql):
    """Nothing is deleted."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.insert(5)
    with streaming(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash()
        queue.execute("ALTER SEQUENCE orders_seq_seq RESTART")
        queue.insert(1, start=100)
        with pytest.raises(QueueError, match=r"^A RowVersion of an unfinished batch occurs twice in orders@"):
            stream.trigger()
        stream.crash()
        assert queue.count() == 6
