"""``spark.read``: a look at the rows a stream would receive. Nothing is locked, nothing is deleted."""

from datetime import datetime

from chispa import assert_df_equality

from tests.support.messages import body, headers, row_id
from tests.support.streams import free

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


def peek(spark, engine, queue, **options):
    given = {"url": engine.url, "queue": queue.address, **options}
    return spark.read.format("sqlqueue").options(**given).load()


def test_a_peek_shows_rows_in_order_and_leaves_them(spark, engine, queue):
    queue.insert(400)
    queue.insert(1, start=400, expires=PAST)
    queue.take(7)
    queue.take(300)
    frame = peek(spark, engine, queue, minMessagesPerPartition=100, maxConcurrency=3)
    there = [number for number in range(400) if number not in {6, 299}]
    recoverable = None if engine.name == "postgresql" else True
    expected = [
        (str(row_id(number)), None, None, recoverable, None, headers(number), body(number), number + 1)
        for number in there
    ]
    assert frame.rdd.getNumPartitions() == 3
    assert_df_equality(frame, spark.createDataFrame(expected, frame.schema))
    assert (queue.count(), free(queue)) == (399, 398)


def test_a_peek_shows_rows_that_a_receiver_holds(spark, postgresql):
    """It does not wait for it."""
    queue = postgresql.create_queue()
    queue.insert(3)
    with queue.locked(2):
        rows = peek(spark, postgresql, queue).select("RowVersion").collect()
    assert [row.RowVersion for row in rows] == [1, 2, 3]


def test_an_empty_queue_is_an_empty_frame(spark, engine, queue):
    frame = peek(spark, engine, queue)
    assert (frame.columns, frame.collect()) == (
        ["Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body", "RowVersion"],
        [],
    )
