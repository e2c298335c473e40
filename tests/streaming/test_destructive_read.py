"""``transactionMode=none`` under Spark: every row is taken once, whatever Spark calls and when."""

from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.messages import row_id, row_ids
from tests.support.streams import drain, ids_in_delta, logged, running, stream, to_delta, to_each
from tests.support.waiting import eventually

SECOND = (
    r"A slice of orders@\[public\]\S* is read a second time, .*; call persist\(\) on the batch .*receiveOnly"
)


@contextmanager
def shuffled(spark):
    """Within the block a shuffle has four partitions: with one, a sort need not sample."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_everything_is_drained_once_and_in_order(spark, engine, queue, tmp_path):
    """Beside a row that is held."""
    queue.insert(2500)
    options = {"maxMessagesPerTrigger": 1000, "minMessagesPerPartition": 300, "maxConcurrency": 2}
    with queue.locked(7):
        drain(to_delta(stream(spark, engine, queue, transactionMode="none", **options), tmp_path))
        assert ids_in_delta(spark, tmp_path) == [str(row_id(row)) for row in range(2500) if row != 6]
        assert logged(tmp_path, "commits") == [0, 1, 2]
    assert queue.row_versions() == [7]
    drain(to_delta(stream(spark, engine, queue, transactionMode="none", **options), tmp_path))
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(2500))]
    assert queue.count() == 0


def test_modes_may_take_turns_on_one_checkpoint(spark, engine, queue, tmp_path):
    """A running stream takes what comes in either."""

    def done():
        return queue.count() == 0 and logged(tmp_path, "offsets") == logged(tmp_path, "commits")

    for number, mode in enumerate(("none", "receiveOnly", "none")):
        queue.insert(10, start=100 * number)
        with running(to_delta(stream(spark, engine, queue, transactionMode=mode), tmp_path)):
            eventually(done)
            queue.insert(10, start=100 * number + 10)
            eventually(done)
    sent = [row for number in range(3) for row in range(100 * number, 100 * number + 20)]
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(sent)]


@pytest.mark.parametrize("reading_twice", ["sort", "union", "two actions"])
def test_a_batch_that_is_read_twice_fails_and_says_why(spark, postgresql, tmp_path, reading_twice):
    """A sort samples its input first. What was read is lost, and no batch is done without it."""
    queue = postgresql.create_queue()
    queue.insert(40)
    done = []

    def handle(batch, number):
        if reading_twice == "sort":
            batch.sort("RowVersion").collect()
        elif reading_twice == "union":
            batch.where("RowVersion % 2 = 0").union(batch.where("RowVersion % 2 = 1")).collect()
        else:
            batch.count()
            batch.count()
        done.append(number)

    frame = stream(spark, postgresql, queue, transactionMode="none", minMessagesPerPartition=10)
    with shuffled(spark), pytest.raises(StreamingQueryException, match=SECOND):
        drain(to_each(frame, tmp_path, handle))
    assert (done, logged(tmp_path, "commits")) == ([], [])


def test_a_function_that_persists_a_batch_may_read_it_twice(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    queue.insert(40)
    read = []

    def handle(batch, _):
        batch.persist()
        read.append([row.RowVersion for row in batch.sort("RowVersion").collect()])
        read.append(batch.count())
        batch.unpersist()

    frame = stream(spark, postgresql, queue, transactionMode="none", minMessagesPerPartition=10)
    with shuffled(spark):
        drain(to_each(frame, tmp_path, handle))
    assert read == [list(range(1, 41)), 40]


def test_a_query_that_reads_the_stream_twice_takes_nothing(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    queue.insert(40)
    frame = stream(spark, postgresql, queue, transactionMode="none")
    with pytest.raises(
        StreamingQueryException, match=r"reads orders@\[public\] twice in one batch .*receiveOnly"
    ):
        drain(to_each(frame.where("Id < 'b'").union(frame), tmp_path, lambda batch, _: batch.foreach(print)))
    assert queue.count() == 40


def test_nothing_is_taken_where_spark_may_run_a_task_twice_at_once(spark, postgresql, tmp_path):
    """Spark's own ``conf`` does not change this setting, so the test goes past it."""
    queue = postgresql.create_queue()
    queue.insert(40)
    frame = stream(spark, postgresql, queue, transactionMode="none")
    settings = spark._jsparkSession.sessionState().conf()
    settings.setConfString("spark.speculation", "true")
    try:
        with pytest.raises(StreamingQueryException, match=r"No row of orders@\[public\]\S* is taken: "):
            drain(to_each(frame, tmp_path, lambda batch, _: batch.foreach(print)))
    finally:
        settings.unsetConf("spark.speculation")
    assert (queue.count(), logged(tmp_path, "commits")) == (40, [])
