"""What is in the queue is what comes out of the stream: the same rows, byte for byte,
in order, and only those.
"""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from chispa import assert_df_equality
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.support.messages import HEADERS, row_id, row_ids
from tests.support.streams import drain, ids_in_delta, logged, read_delta, running, stream, to_delta, to_each
from tests.support.waiting import eventually

SCHEMA = StructType(
    [
        StructField("Id", StringType()),
        StructField("CorrelationId", StringType()),
        StructField("ReplyToAddress", StringType()),
        StructField("Recoverable", BooleanType()),
        StructField("Expires", TimestampType()),
        StructField("Headers", StringType()),
        StructField("Body", BinaryType()),
        StructField("RowVersion", LongType()),
    ]
)
FAR = datetime(2999, 12, 31, 23, 59, 58, 760000)  # noqa: DTZ001 -- the column has no zone; it means UTC
PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- likewise
SECOND = timedelta(seconds=1)
ODD_ROWS = [
    # headers, body, expires
    (HEADERS, b'{"order":1}', None),
    (HEADERS, None, FAR),
    ("", b"", None),
    ("not JSON", bytes(range(256)) * 3, None),
    ("[]", b"\xef\xbb\xbf{}", None),
    ('{ "spaced" : "\\/ \\u00e9 é 漢 \\ud83d\\ude00 😀" }', "é漢😀".encode(), None),
    ('{"zero width":"\u200b", "quotes":"\\"\'`$%?"}', b"\x00", None),
]


@pytest.fixture
def new_york(spark):
    """A session time zone that is neither UTC nor the server's, with summer time."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_rows_arrive_in_delta_as_they_are_stored(spark, engine, queue, tmp_path, new_york):
    for number, (headers, body, expires) in enumerate(ODD_ROWS):
        queue.insert_row(id=row_id(number), headers=headers, body=body, expires=expires)
    expected = [
        (
            str(row_id(number)),
            None,
            None,
            None if engine.name == "postgresql" else True,
            expires and expires.replace(tzinfo=UTC),
            headers,
            body,
            number + 1,
        )
        for number, (headers, body, expires) in enumerate(ODD_ROWS)
    ]
    drain(to_delta(stream(spark, engine, queue), tmp_path))
    frame = read_delta(spark, tmp_path)
    assert frame.schema == SCHEMA
    assert_df_equality(frame, spark.createDataFrame(expected, SCHEMA), ignore_row_order=True)
    assert queue.count() == 0


def test_a_body_of_50_mb_arrives_whole(spark, engine, queue, tmp_path):
    large = b"0123456789abcdef" * (50 << 16)
    queue.insert(1)
    queue.insert_row(id=UUID(int=7), headers="{}", body=large)
    queue.insert(1, start=1)
    seen = []
    drain(to_each(stream(spark, engine, queue), tmp_path, lambda batch, _: seen.extend(batch.collect())))
    assert [(row.Id, len(row.Body)) for row in seen] == [
        (str(row_id(0)), 64),
        (str(UUID(int=7)), 50 << 20),
        (str(row_id(1)), 64),
    ]
    assert seen[1].Body == large
    assert queue.count() == 0


def test_batches_and_slices_are_as_large_as_allowed(spark, engine, queue, tmp_path):
    """Their rows come in the order of RowVersion."""
    queue.insert(2500)
    batches = []

    def handle(batch, number):
        rows = [row.RowVersion for row in batch.select("RowVersion").collect()]
        batches.append((number, batch.rdd.getNumPartitions(), rows))

    options = {"maxMessagesPerTrigger": 1000, "minMessagesPerPartition": 300, "maxConcurrency": 2}
    drain(to_each(stream(spark, engine, queue, **options), tmp_path, handle))
    assert batches == [
        (0, 2, list(range(1, 1001))),
        (1, 2, list(range(1001, 2001))),
        (2, 1, list(range(2001, 2501))),
    ]


def test_one_slice_a_batch_keeps_strict_order(spark, engine, queue, tmp_path):
    """In a queue full of gaps."""
    queue.insert(1200)
    queue.execute(
        "DELETE FROM {table} WHERE " + ("seq" if engine.name == "postgresql" else "RowVersion") + " % 3 = 0"
    )
    batches = []

    def handle(batch, number):
        rows = [row.RowVersion for row in batch.select("RowVersion").collect()]
        batches.append((batch.rdd.getNumPartitions(), rows))

    options = {"maxMessagesPerTrigger": 500, "minMessagesPerPartition": 1, "maxConcurrency": 1}
    drain(to_each(stream(spark, engine, queue, **options), tmp_path, handle))
    left = [number for number in range(1, 1201) if number % 3]
    assert batches == [(1, left[:500]), (1, left[500:])]


def test_batches_end_at_the_limit_of_bytes(spark, engine, queue, tmp_path):
    queue.insert(10, size=100_000)
    sizes = []
    writer = to_each(stream(spark, engine, queue, maxBytesPerTrigger="400k"), tmp_path,
                     lambda batch, _: sizes.append(batch.count()))  # fmt: skip
    drain(writer)
    assert sizes == [4, 4, 2]


def test_available_now_ends_and_leaves_what_came_later(spark, engine, queue, tmp_path):
    queue.insert(30)
    later: list[int] = []
    seen: list[str] = []

    def handle(batch, number):
        if number == 0:
            later.extend(queue.insert(5, start=30))
        seen.extend(row.Id for row in batch.select("Id").collect())

    drain(to_each(stream(spark, engine, queue, maxMessagesPerTrigger=20), tmp_path, handle))
    assert seen == [str(each) for each in row_ids(range(30))]
    assert queue.ids() == row_ids(later)


def test_expired_rows_are_deleted_and_never_emitted(spark, engine, queue, tmp_path):
    queue.insert(2, expires=PAST)
    queue.insert(2, start=2)
    queue.insert(1, start=4, expires=PAST)
    queue.insert(1, start=5, expires=FAR)
    queue.insert(3, start=6, expires=PAST)
    drain(to_delta(stream(spark, engine, queue, maxMessagesPerTrigger=3), tmp_path))
    assert ids_in_delta(spark, tmp_path) == [str(row_id(number)) for number in (2, 3, 5)]
    assert queue.count() == 0


def test_an_odd_name_is_just_a_name(spark, postgresql, tmp_path):
    postgresql.create_queue("plain", schema="plain").insert(3)
    postgresql.execute('ALTER SCHEMA plain RENAME TO "a]b""c{d}? %s"')
    postgresql.execute("""ALTER TABLE "a]b""c{d}? %s".plain RENAME TO "my]od""d ?q'ueue%s {y};--" """)
    queue = postgresql.queue("my]od\"d ?q'ueue%s {y};--", schema='a]b"c{d}? %s')
    drain(to_delta(stream(spark, postgresql, queue, minMessagesPerPartition=1), tmp_path))
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(3))]
    assert queue.count() == 0


def test_a_running_stream_takes_what_comes_and_rests(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()

    def looks():
        return postgresql.fetch("SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes")[0][0]

    with running(to_delta(stream(spark, postgresql, queue), tmp_path)):
        queue.insert(10)
        eventually(lambda: queue.count() == 0)
        before = looks()
        eventually(lambda: looks() > before + 3)  # it has looked at the empty queue again and again
        assert (logged(tmp_path, "offsets"), logged(tmp_path, "commits")) == ([0], [0])
        queue.insert(5, start=10)
        eventually(lambda: queue.count() == 0)
    assert (logged(tmp_path, "offsets"), logged(tmp_path, "commits")) == ([0, 1], [0, 1])
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(15))]


def test_progress_says_what_waits_and_for_how_long(spark, postgresql, tmp_path):
    """How many rows, and how old the oldest is."""
    queue = postgresql.create_queue()
    queue.insert(30)
    sent = datetime(2025, 11, 20, 8, 15, 30, tzinfo=UTC)  # by the headers
    before = datetime.now(UTC)
    query = drain(to_delta(stream(spark, postgresql, queue, maxMessagesPerTrigger=10), tmp_path))
    first, *_, last = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
    assert first == {"rows": 20, "oldestSeconds": first["oldestSeconds"], "leftToNeighbours": 0}
    assert (
        before - sent - SECOND
        <= timedelta(seconds=first["oldestSeconds"])
        <= datetime.now(UTC) - sent + SECOND
    )
    assert last == {"rows": 0, "oldestSeconds": 0, "leftToNeighbours": 0}


def test_an_offset_takes_at_most_three_bytes_a_row(spark, postgresql, tmp_path):
    """In the checkpoint, of a queue that is full of gaps at random, which no compression foresees."""
    queue = postgresql.create_queue()
    queue.insert(40_000)
    queue.execute("DELETE FROM {table} WHERE hashint8(seq) % 2 = 0")
    rows = queue.count()
    drain(to_each(stream(spark, postgresql, queue), tmp_path, lambda *_: None))
    size = (tmp_path / "checkpoint" / "offsets" / "0").stat().st_size
    assert (queue.count(), logged(tmp_path, "offsets")) == (0, [0])
    assert size <= 3 * rows, f"{size} bytes for {rows} rows"
