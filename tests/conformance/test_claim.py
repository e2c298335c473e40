"""A claim takes the next free rows in order, waits for no session, and no session waits for it."""

from datetime import UTC, datetime, timedelta
from unittest import mock
from uuid import UUID

import pytest

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.claiming.claim import QueueRows, claim
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables import queues
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.messages import row_id, row_ids
from tests.support.streams import free
from tests.support.waiting import eventually

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def claimed(stream):
    """The offset that was logged last."""
    return Offset.from_json(stream.end(len(stream.offsets)))


def utc(**ago):
    """A time by our clock, as the column has it."""
    return (datetime.now(UTC) - timedelta(**ago)).replace(tzinfo=None)


def test_an_offset_names_queue_rows_and_witnesses(engine, queue):
    queue.insert(3)
    queue.insert(1, start=50, expires=PAST)
    queue.insert(2, start=3)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        offset = claimed(stream)
        assert offset == Offset(
            queue=offset.queue,
            identity=offset.identity,
            live=RowSet([(1, 3), (5, 6)]),
            expired=RowSet([(4, 4)]),
            witnesses={row: str(row_id(number)) for row, number in {1: 0, 2: 1, 3: 2, 5: 3, 6: 4}.items()},
        ).saying(serial=1)
        assert offset.queue.startswith(f"orders@[{queue.schema}]@[")
        assert offset.identity


def test_a_claim_of_many_rows_has_32_witnesses(engine, queue):
    """The first and the last row are among them."""
    queue.insert(1000)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        witnesses = claimed(stream).witnesses
        assert witnesses == {row: str(row_id(row - 1)) for row in witnesses}
        assert (len(witnesses), min(witnesses), max(witnesses)) == (32, 1, 1000)


def test_messages_arrive_with_every_column_unchanged(engine, queue):
    expires = datetime(2999, 12, 31, 23, 59, 58)  # noqa: DTZ001 -- the column has no zone
    queue.insert_row(
        id=UUID(int=7), headers='{"a":"ü \\/ \\ud83d\\ude00"}', body=b"\x00\xff", expires=expires
    )
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        recoverable = None if engine.name == "postgresql" else True
        assert stream.messages() == [
            {
                "Id": "00000000-0000-0000-0000-000000000007",
                "CorrelationId": None,
                "ReplyToAddress": None,
                "Recoverable": recoverable,
                "Expires": expires.replace(tzinfo=UTC),
                "Headers": '{"a":"ü \\/ \\ud83d\\ude00"}',
                "Body": b"\x00\xff",
                "RowVersion": 1,
            }
        ]


def test_one_consumer_receives_in_strict_order(engine, queue):
    """Over slices and batches."""
    queue.insert(1000)
    with streaming(engine, queue, maxMessagesPerTrigger="300", minMessagesPerPartition="50") as stream:
        stream.drain()
        assert stream.ids() == row_ids(range(1000))
        assert [len(batch) for batch in stream.batches()] == [300, 300, 300, 100]


def test_rows_that_others_hold_are_stepped_over(engine, queue):
    """The claim does not wait for them."""
    queue.insert(10)
    with queue.locked(1, 4, 5, 10), streaming(engine, queue, lockTimeout="1ms") as stream:
        assert stream.trigger()
        assert stream.batches() == [[2, 3, 6, 7, 8, 9]]
        assert not stream.trigger()
        assert queue.count() == 4
    assert queue.row_versions() == [1, 4, 5, 10]


def test_uncommitted_rows_are_stepped_over(engine, queue):
    """The claim does not wait for them; they are received once they are committed."""
    with queue.session() as sender, streaming(engine, queue, lockTimeout="1ms") as stream:
        sender.insert(3, start=100)
        queue.insert(3)
        assert stream.trigger()
        assert stream.batches() == [[4, 5, 6]]
        assert not stream.trigger()
        sender.commit()
        stream.drain()
        assert stream.batches() == [[4, 5, 6], [1, 2, 3]]


def test_a_claim_of_everything_stops_no_other_session(engine, queue):
    """Others send, and receive what was sent since."""
    queue.insert(10_000)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        with queue.session() as sender:
            sender.insert(5, start=20_000)
            sender.commit()
        assert queue.take().id == row_id(20_000)
        stream.drain()
        assert stream.ids() == row_ids([*range(10_000), *range(20_001, 20_005)])


def test_claimed_rows_are_hidden_until_given_back(engine, queue):
    queue.insert(3)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        assert queue.take() is None
        stream.receiver.close()
        eventually(lambda: free(queue) == 3)  # a server takes its time to end a session
        assert queue.take().id == row_id(0)


def test_expired_rows_are_deleted_and_never_emitted(engine, queue):
    queue.insert(2, start=0, expires=utc(hours=1))
    queue.insert(2, start=10, expires=utc(hours=-1))
    queue.insert(2, start=20, expires=utc(days=3000))
    queue.insert(2, start=30)
    with streaming(engine, queue) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids([10, 11, 30, 31]), 0)


def test_a_queue_of_expired_rows_makes_no_batch(engine, queue):
    """It is emptied all the same."""
    queue.insert(250, expires=PAST)
    with streaming(engine, queue, maxMessagesPerTrigger="100") as stream:
        stream.drain()
        assert (stream.offsets, queue.count()) == ([], 0)


def test_a_claimed_row_that_expires_is_still_emitted(engine, queue):
    queue.insert(3)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        offset = claimed(stream)
        stream.crash()
        tampering.expire(engine, queue, 2, 3)
        stream.drain()
        assert (offset.live, stream.ids(), queue.count()) == (RowSet([(1, 3)]), row_ids(range(3)), 0)


def test_an_expired_row_is_not_emitted_after_a_crash(engine, queue):
    """It had expired when it was claimed."""
    queue.insert(1)
    queue.insert(1, start=1, expires=PAST)
    queue.insert(1, start=2)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        stream.crash()
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[1, 3]], 0)


@pytest.fixture
def opened(engine, queue):
    """The queue on an open connection."""
    with connect(Target(url=engine.url)) as connection:
        yield queues.get(connection, queue.address, Naming(default_schema=engine.default_schema))


def test_a_statement_locks_only_what_the_engine_bears(engine, queue, opened):
    queue.insert(50_000)
    most = {"postgresql": 20_000, "sqlserver": 2_400}[engine.name]
    with mock.patch.object(opened.connection, "execute", wraps=opened.connection.execute) as execute:
        taken = claim(opened, LOWEST, HIGHEST, BatchLimits(rows=45_000, bytes=1 << 30), lambda *_: ())
    # Without row versions SQL Server also counts how many rows stand where the claim has looked.
    asked = [call.args[1]["count"] for call in execute.call_args_list if "count" in call.args[1]]
    assert (taken.live, taken.expired, taken.bytes) == (RowSet([(1, 45_000)]), RowSet(), sum(taken.sizes))
    assert (asked[0], max(asked), sum(asked)) == (256, most, 45_000)


@pytest.mark.parametrize("least, rows", [(256, 256), (257, 1_000)], ids=["the first statement's", "more"])
def test_a_claim_ends_with_the_statement_after_which_its_rows_are_enough(queue, opened, least, rows):
    """More rows wait then, as behind any limit, and they are free."""
    queue.insert(1_100)
    limits = BatchLimits(rows=1_000, bytes=1 << 30, enough=lambda rows: rows >= least)
    taken = claim(opened, LOWEST, HIGHEST, limits, lambda *_: ())
    assert (taken.live, taken.full, free(queue)) == (RowSet([(1, rows)]), True, 1_100 - rows)


def test_a_claim_of_nothing_is_nothing(opened):
    assert claim(opened, LOWEST, HIGHEST, BatchLimits(rows=10, bytes=10), lambda *_: ()) == QueueRows(
        queue=opened
    )


@pytest.mark.parametrize(
    "numbers",
    [[3, 2, 1], [1, 1 << 40, (1 << 63) - 1], [-(1 << 62), -1, 0, 1]],
    ids=["backwards", "huge", "negative"],
)
def test_any_row_version_is_read_and_settled(postgresql, numbers):
    queue = postgresql.create_queue()
    for number in numbers:
        values = f"VALUES (gen_random_uuid(), '', {number})"
        queue.execute(f"INSERT INTO {{table}} (id, headers, seq) {values}")
    with streaming(postgresql, queue) as stream:
        stream.drain()
        assert (stream.batches(), queue.count()) == ([sorted(numbers)], 0)
