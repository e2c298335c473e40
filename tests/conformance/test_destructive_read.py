"""Mode ``none``: workers take rows at most once, nothing is held meanwhile,
and what was not taken comes later.
"""

import dataclasses
import itertools
from datetime import UTC, datetime

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.claiming import destructive_look
from sqlqueue_spark.receive.offset import INITIAL, Offset
from sqlqueue_spark.row_set import RowSet
from tests.support import death_steps, tampering
from tests.support.driver import at_step, crash, streaming
from tests.support.messages import row_id, row_ids
from tests.support.waiting import eventually

pytestmark = [pytest.mark.tier("all", variants="nightly"), pytest.mark.needs("deletes_through_cte")]

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def taking(engine, queue, **options):
    return streaming(engine, queue, transactionMode="none", **options)


def switch(stream, mode):
    """Start the stream again, in another mode."""
    stream.stop()
    stream.options = dataclasses.replace(stream.options, transaction_mode=mode)


def test_rows_that_their_table_keeps_end_the_stream_with_the_reason(postgresql):
    """Else it would plan them again and again, and a run would never end."""
    queue = postgresql.create_queue()
    queue.insert(10)
    postgresql.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF OLD.seq = 4 THEN RETURN NULL; END IF; RETURN OLD; END $$; "
        "CREATE TRIGGER keep BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION keep()"
    )
    with taking(postgresql, queue) as stream:
        stream.receiver.stop_at_present_end()
        with pytest.raises(QueueError, match=r"RowVersion 4 .* is free, but a delete leaves it there"):
            stream.drain()
    assert queue.row_versions() == [4]


def test_a_run_ends_whose_query_never_reads_its_batch(engine, queue, monkeypatch):
    monkeypatch.setattr(destructive_look, "_MOST_TIMES", 3)
    queue.insert(10)
    with taking(engine, queue) as stream:
        stream.receiver.stop_at_present_end()
        monkeypatch.setattr(stream, "read", lambda _: [])
        with pytest.raises(
            QueueError, match=r"^10 free rows of .* were planned 3 times, and no task took one: "
        ):
            stream.drain()
    assert queue.count() == 10


# -- what is taken --------------------------------------------------------------------------------


def test_an_offset_says_its_mode_and_the_seen_rows(engine, queue):
    queue.insert(3)
    tampering.delete(engine, queue, 2, 2)
    with taking(engine, queue) as stream:
        assert stream.construct()
        offset = Offset.from_json(stream.end(1))
        assert offset is not None
        assert offset == Offset(
            queue=offset.queue,
            identity=offset.identity,
            live=RowSet([(1, 1), (3, 3)]),
            expired=RowSet(),
        ).saying(mode="none", serial=1)
        assert offset.queue.startswith(f"orders@[{queue.schema}]@[")


def test_messages_arrive_with_every_column_unchanged(engine, queue):
    expires = datetime(2999, 12, 31, 23, 59, 58)  # noqa: DTZ001 -- the column has no zone
    queue.insert_row(id=row_id(7), headers='{"a":"ü \\/ \\ud83d\\ude00"}', body=b"\x00\xff", expires=expires)
    queue.insert_row(id=row_id(8), headers="", body=None)
    with taking(engine, queue) as stream:
        assert stream.trigger()
        same = {
            "CorrelationId": None,
            "ReplyToAddress": None,
            "Recoverable": None if engine.name == "postgresql" else True,
        }
        assert stream.messages() == [
            {
                "Id": str(row_id(7)),
                **same,
                "Expires": expires.replace(tzinfo=UTC),
                "Headers": '{"a":"ü \\/ \\ud83d\\ude00"}',
                "Body": b"\x00\xff",
                "RowVersion": 1,
            },
            {"Id": str(row_id(8)), **same, "Expires": None, "Headers": "", "Body": None, "RowVersion": 2},
        ]
        assert queue.count() == 0


def test_one_consumer_receives_in_strict_order(engine, queue):
    """Over slices, statements and batches."""
    queue.insert(1000)
    with taking(engine, queue, maxMessagesPerTrigger="300", minMessagesPerPartition="50") as stream:
        stream.drain()
        assert stream.ids() == row_ids(range(1000))
        assert [len(batch) for batch in stream.batches()] == [300, 300, 300, 100]


def test_rows_are_taken_in_order_however_they_lie(postgresql):
    """In the order of their numbers."""
    queue = postgresql.create_queue()
    queue.insert(100)
    tampering.delete(postgresql, queue, 1, 50)
    postgresql.execute("VACUUM orders")
    queue.insert(50, start=100)  # into the room of those that went
    assert postgresql.fetch("SELECT seq FROM orders ORDER BY ctid")[0] == (101,)
    with taking(postgresql, queue) as stream:
        stream.drain()
        assert stream.batches() == [list(range(51, 151))]


def test_expired_rows_are_deleted_and_never_emitted(engine, queue):
    queue.insert(2, expires=PAST)
    queue.insert(2, start=2)
    queue.insert(2, start=4, expires=PAST)
    queue.insert(1, start=6)
    with taking(engine, queue) as stream:
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[3, 4, 7]], 0)


def test_a_queue_of_nothing_but_expired_rows_is_emptied(engine, queue):
    queue.insert(250, expires=PAST)
    with taking(engine, queue, maxMessagesPerTrigger="100") as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == ([], 0)


def test_a_planned_row_that_expires_is_not_emitted(engine, queue):
    queue.insert(3)
    with taking(engine, queue) as stream:
        assert stream.construct()
        tampering.expire(engine, queue, 2, 2)
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 3]], 0)


def test_rows_that_come_up_late_enlarge_no_statement(engine, queue):
    """Rows between those that were seen."""
    queue.insert(1)
    with queue.session() as late, taking(engine, queue) as stream:
        late.insert(50, start=100)
        queue.insert(1, start=1)
        assert stream.construct()
        late.commit()
        stream.drain()
        assert stream.batches() == [[1, 2], list(range(3, 53))]
        assert queue.count() == 0


# -- beside others --------------------------------------------------------------------------------


def test_a_running_batch_holds_no_lock_or_transaction(engine, queue):
    queue.insert(10)
    with taking(engine, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.construct()  # after which the look ahead, which is a transaction, may last a moment
        slices = stream.plan()
        assert eventually(lambda: not tampering.holds_a_transaction(engine, stream.name))
        assert queue.take().row_version == 1
        stream.write(stream.read(slices))
        assert eventually(lambda: not tampering.holds_a_transaction(engine, stream.name))
        assert queue.row_versions() == [5, 6, 7, 8, 9, 10]
        assert [message["RowVersion"] for message in stream.messages()] == [2, 3, 4]


def test_a_row_that_another_holds_comes_when_free(engine, queue):
    """The stream does not wait for it."""
    queue.insert(10)
    with taking(engine, queue, lockTimeout="1ms", neighbourHeadroom="0") as stream, queue.session() as other:
        other.lock(3, 4)
        assert stream.trigger()
        queue.insert(2, start=10)
        assert stream.trigger()
        other.rollback()
        stream.drain()
        assert stream.batches() == [[1, 2, 5, 6, 7, 8, 9, 10], [11, 12], [3, 4]]
        assert queue.count() == 0


def test_rows_that_stay_held_are_planned_only_once(engine, queue):
    queue.insert(10)
    with taking(engine, queue) as stream, queue.locked(3, 4):
        assert stream.trigger()
        assert [stream.trigger() for _ in range(20)] == [False] * 20
        assert stream.batches() == [[1, 2, 5, 6, 7, 8, 9, 10]]


def test_a_row_that_another_gives_back_comes_later(engine, queue):
    queue.insert(5)
    with taking(engine, queue) as stream, queue.session() as other:
        assert other.take(2).row_version == 2
        assert stream.trigger()
        assert not stream.trigger()
        other.rollback()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 3, 4, 5], [2]], 0)


def test_a_backlog_leaves_no_freed_row_behind(engine, queue):
    """When that is depends on how long a look takes here, so the backlog grows as fast as it is taken."""
    queue.insert(300)
    sent = itertools.count(300, 20)
    with taking(engine, queue, maxMessagesPerTrigger="20") as stream, queue.session() as other:
        other.lock(3)
        for _ in range(5):
            assert stream.trigger()
        other.rollback()
        while 3 not in stream.batches()[-1]:
            queue.insert(20, start=next(sent))
            assert stream.trigger()
        assert queue.count() > 100


def test_the_same_row_in_two_batches_makes_two_offsets(engine, queue):
    queue.insert(1)
    with taking(engine, queue) as stream, queue.session() as other:
        other.lock(1)
        assert stream.trigger()
        other.rollback()
        stream.drain()
        assert stream.batches() == [[], [1]]
        assert stream.end(1) != stream.end(2)


def test_two_streams_take_each_message_once(engine, queue):
    """From one queue."""
    queue.insert(2000)
    options = {"maxMessagesPerTrigger": "150", "minMessagesPerPartition": "50"}
    with taking(engine, queue, **options) as one, taking(engine, queue, **options) as other:
        assert one.construct()
        assert other.construct()
        while one.trigger() | other.trigger():
            pass
        one.drain()
        assert sorted([*one.ids(), *other.ids()]) == row_ids(range(2000))
        assert min(len(one.sink), len(other.sink)) > 1


@pytest.mark.tier("all")
def test_a_stream_that_claims_may_share_the_queue(engine, queue):
    """Each message comes once."""
    queue.insert(2000)
    with (
        taking(engine, queue, maxMessagesPerTrigger="150") as one,
        streaming(engine, queue, maxMessagesPerTrigger="100") as other,
    ):
        assert other.construct()
        while one.trigger() | other.trigger():
            pass
        other.stop()
        one.drain()
        assert sorted([*one.ids(), *other.ids()]) == row_ids(range(2000))
        assert min(len(one.ids()), len(other.ids())) > 0


# -- when it ends -----------------------------------------------------------------------------------


def test_a_bounded_run_takes_what_was_there_and_ends(engine, queue):
    """What was there when it began."""
    queue.insert(25)
    with taking(engine, queue, maxMessagesPerTrigger="10") as stream, queue.locked(7):
        stream.receiver.stop_at_present_end()
        assert stream.trigger()
        queue.insert(20, start=100)
        while stream.trigger():
            pass
        assert stream.ids() == row_ids(row for row in range(25) if row != 6)
        assert len(stream.sink) == 3
    assert queue.row_versions() == [7, *range(26, 46)]


def test_how_many_wait_is_said(engine, queue):
    queue.insert(30)
    with taking(engine, queue, maxMessagesPerTrigger="10") as stream:
        assert stream.receiver.waiting() is None
        assert stream.trigger()
        assert stream.receiver.waiting()["rows"] == 20
        stream.drain()
        assert stream.receiver.waiting() == {"rows": 0, "oldestSeconds": 0, "leftToNeighbours": 0}


# -- Spark's odd calls, and crashes -----------------------------------------------------------------


def test_an_offset_asked_for_again_is_the_same(engine, queue):
    """As long as the batch has not run."""
    queue.insert(5)
    with taking(engine, queue) as stream:
        first = stream.receiver.latest(dict(INITIAL), 3)
        queue.insert(5, start=5)
        assert stream.receiver.latest(dict(INITIAL), 10) == first
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_plan_asked_for_twice_is_refused_and_the_next_start_has_every_row(engine, queue):
    """The query reads the stream twice, and a row can be taken once."""
    queue.insert(5)
    with taking(engine, queue) as stream:
        assert stream.construct()
        (first,) = stream.plan()
        with pytest.raises(ConfigurationError, match=r"reads orders@\[.*\] twice in one batch"):
            stream.plan()
        assert (len(first.rows), queue.count()) == (5, 5)
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(5)), 0)


def test_a_commit_touches_nothing(engine, queue):
    queue.insert(5)
    with taking(engine, queue) as stream, queue.locked(2):
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        stream.receiver.settle(dict(INITIAL))
    assert queue.row_versions() == [2]


def test_a_retried_task_takes_what_the_first_try_left(engine, queue):
    queue.insert(1000)
    with taking(engine, queue, maxConcurrency="1") as stream:
        assert stream.construct()
        (part,) = stream.plan()
        part = dataclasses.replace(part, counts=(400, 600))
        first = SliceReader(Target.of(stream.options)).take(part)
        assert next(first)["RowVersion"].to_pylist() == list(range(1, 401))
        first.close()
        assert [message["RowVersion"] for message in stream.read([part])] == list(range(401, 1001))


def test_a_batch_that_was_not_taken_comes_in_the_next(engine, queue, caplog):
    """Whole, after a crash."""
    queue.insert(10)
    with taking(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        assert stream.plan() == []
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[], list(range(1, 11))], 0)
    assert "not_taken_again queue=orders@" in caplog.text


def test_a_repeated_batch_swallows_nothing(engine, queue):
    """The sink has it already."""
    queue.insert(10)
    with taking(engine, queue) as stream, queue.session() as other:
        other.lock(4)
        assert stream.construct()
        stream.write(stream.read(stream.plan()))
        stream.crash()  # before Spark logged the batch as done
        other.rollback()
        stream.drain()
        assert stream.batches() == [[row for row in range(1, 11) if row != 4], [4]]


@pytest.mark.parametrize("step", death_steps.TAKING_STEPS)
def test_a_crash_loses_at_most_what_its_batch_took(engine, queue, step):
    """It doubles nothing."""
    queue.insert(300)
    options = {"maxMessagesPerTrigger": "70", "minMessagesPerPartition": "20", "maxConcurrency": "3"}
    with taking(engine, queue, **options) as stream, at_step(step, crash, on={1, 3, 7}) as crashes:
        stream.drain()
    numbers = [row for batch in stream.batches() for row in batch]
    assert len(crashes) == stream.crashes == 3
    assert len(set(numbers)) == len(numbers)
    assert len(numbers) == 300 if step == fail_points.OFFSET_LOGGED else 300 - 3 * 70 <= len(numbers) < 300
    assert queue.count() == 0


def test_connections_cut_between_batches_cost_nothing(engine, queue):
    queue.insert(100)
    with taking(engine, queue, maxMessagesPerTrigger="30") as stream:
        while stream.trigger():
            engine.cut_connections()
        stream.drain()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


# -- one checkpoint, two modes ----------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["in good order", "crash"])
def test_a_stream_that_claims_receives_what_none_left(engine, queue, gone):
    """Rows that mode none has left are not deleted unread."""
    queue.insert(10)
    with taking(engine, queue) as stream, queue.session() as other:
        other.lock(3, 4)
        assert stream.trigger()
        stream.crash() if gone == "crash" else None
        other.rollback()
        switch(stream, "receiveOnly")
        stream.drain()
        assert stream.batches() == [[1, 2, 5, 6, 7, 8, 9, 10], [3, 4]]
        assert queue.count() == 0


@pytest.mark.parametrize("written", [True, False], ids=["written", "not written"])
def test_an_unfinished_batch_of_none_becomes_empty(engine, queue, written, caplog):
    """To a stream that claims."""
    queue.insert(10)
    with taking(engine, queue) as stream, queue.session() as other:
        other.lock(3)
        assert stream.construct()
        messages = stream.read(stream.plan()) if written else []
        if written:
            stream.write(messages)
        stream.crash()
        other.rollback()
        switch(stream, "receiveOnly")
        stream.drain()
        rest = [3] if written else list(range(1, 11))
        assert stream.batches() == [[m["RowVersion"] for m in messages], rest]
        assert queue.count() == 0
    assert "not_taken_again queue=orders@" in caplog.text


@pytest.mark.parametrize("done", [True, False], ids=["done", "unfinished"])
def test_a_claim_does_not_wait_for_held_rows_of_none(engine, queue, done):
    queue.insert(10)
    with taking(engine, queue, lockTimeout="1ms") as stream, queue.session() as other:
        other.lock(3, 4)
        assert stream.construct()
        if done:
            stream.run()
        stream.crash()
        switch(stream, "receiveOnly")
        assert stream.trigger() is (not done)
        other.rollback()
        stream.drain()
        assert (sorted(stream.ids()), queue.count()) == (row_ids(range(10)), 0)


def test_a_claimed_batch_that_is_done_is_deleted_first(engine, queue):
    """Before rows are taken."""
    queue.insert(10)
    with streaming(engine, queue, maxMessagesPerTrigger="6") as stream:
        assert stream.trigger()
        stream.crash()  # which leaves rows 1 to 6 in the table
        switch(stream, "none")
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]], 0)


@pytest.mark.parametrize("written", [True, False], ids=["written", "not written"])
def test_an_unfinished_claim_is_finished_as_a_claim(engine, queue, written):
    """Before rows are taken."""
    queue.insert(10)
    with streaming(engine, queue, maxMessagesPerTrigger="6") as stream:
        assert stream.construct()
        messages = stream.read(stream.plan())
        if written:
            stream.write(messages)
        stream.crash()
        switch(stream, "none")
        stream.trigger()
        assert tampering.holds_a_transaction(engine, stream.name)
        assert queue.take().row_version == 7
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 2, 3, 4, 5, 6], [8, 9, 10]], 0)
        assert not tampering.holds_a_transaction(engine, stream.name)


def test_modes_may_change_with_every_start(engine, queue):
    queue.insert(100)
    with streaming(engine, queue, maxMessagesPerTrigger="10") as stream:
        for number in range(10):
            stream.trigger()
            stream.crash() if number % 3 else None
            switch(stream, ("none", "receiveOnly")[number % 2])
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(100)), 0)
