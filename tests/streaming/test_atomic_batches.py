"""Batches that Spark runs without rows of an atomic source: for a watermark,
and for another source's rows.
"""

from collections import Counter
from unittest import mock

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.pipeline import as_outgoing
from sqlqueue_spark.send.deliver.stage_writer import seal
from tests.support.logins import logins
from tests.support.messages import message_ids
from tests.support.sending import ids_in
from tests.support.streams import drain, end, logged, running, start, stream, to_each
from tests.support.waiting import eventually

ATOMIC = {"transactionMode": "sendsAtomicWithReceive", "stream": "Atomic"}


@pytest.fixture
def billing(postgresql):
    return postgresql.create_queue("billing")


def on_stage(postgresql):
    """How many chunks are on the stage, the mark left aside."""
    return postgresql.fetch("""SELECT count(*) FROM "Atomic.Outgoing" WHERE task <> ''""")[0][0]


def sink(postgresql, **more):
    return SqlQueueSink(**{"url": postgresql.url, "queue": "billing", **ATOMIC, **more})


def deduplicated(spark, postgresql, queue):
    rows = stream(spark, postgresql, queue, **ATOMIC, maxMessagesPerTrigger="4")
    at = F.timestamp_seconds(F.col("RowVersion") * 100)
    return (
        rows.withColumn("at", at)
        .withWatermark("at", "1 second")
        .dropDuplicatesWithinWatermark(["Id"])
        .select("Headers", "Body")
    )


def counted(spark, postgresql, queue):
    """A message for each window of 200 s, which goes out when the watermark has passed it:
    in a batch without rows.
    """
    rows = stream(spark, postgresql, queue, **ATOMIC)
    at = F.timestamp_seconds(F.col("RowVersion") * 100)
    window = F.window("at", "200 seconds")
    per_window = rows.withColumn("at", at).withWatermark("at", "0 seconds").groupBy(window).count()
    return per_window.select(F.lit("{}").alias("Headers"), F.col("count").cast("string").alias("Body"))


def test_messages_are_deduplicated_within_a_watermark(spark, postgresql, billing, tmp_path):
    """Each time the watermark moves Spark runs a batch without rows, which has nothing to send."""
    queue = postgresql.create_queue()
    for number in range(2):
        queue.insert(10, start=10 * number)
        drain(to_each(deduplicated(spark, postgresql, queue), tmp_path, sink(postgresql)))
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(range(20)), 0)
    assert len(logged(tmp_path, "commits")) > 6, "no batch was without rows"


def bodies(queue):
    """Of all messages, sorted: a shuffle has mixed them."""
    return sorted(row.body for row in queue.rows())


def test_what_a_watermark_lets_go_is_sent_once(spark, postgresql, billing, tmp_path):
    """The queue has no rows then."""
    queue = postgresql.create_queue()
    queue.insert(10)  # at 100 s to 1000 s: all windows but the last are over
    drain(to_each(counted(spark, postgresql, queue), tmp_path, sink(postgresql)))
    assert (bodies(billing), queue.count(), on_stage(postgresql)) == ([b"1", b"2", b"2", b"2", b"2"], 0, 0)


def test_what_a_watermark_lets_go_arrives_after_a_stop(spark, postgresql, billing, tmp_path):
    """Whether Spark has asked the source once more by then is a matter of luck; the next start sees to it."""
    queue = postgresql.create_queue()
    queue.insert(10)
    query = start(to_each(counted(spark, postgresql, queue), tmp_path, sink(postgresql)))
    try:
        eventually(lambda: logged(tmp_path, "commits") == [0, 1])
    finally:
        end(query)
    drain(to_each(counted(spark, postgresql, queue), tmp_path, sink(postgresql)))
    assert (bodies(billing), queue.count(), on_stage(postgresql)) == ([b"1", b"2", b"2", b"2", b"2"], 0, 0)


class DiedError(Exception):
    pass


def test_a_failed_batch_without_rows_is_run_again(spark, postgresql, billing, tmp_path):
    """A restart runs it, and what it sends is sent once."""
    queue = postgresql.create_queue()
    queue.insert(10)
    send = sink(postgresql)

    def die_in_the_second(frame, number):
        send(frame, number)
        if number == 1:
            raise DiedError

    with pytest.raises(Exception, match="DiedError"):
        drain(to_each(counted(spark, postgresql, queue), tmp_path, die_in_the_second))
    assert (bodies(billing), queue.count(), logged(tmp_path, "commits")) == ([], 0, [0])
    drain(to_each(counted(spark, postgresql, queue), tmp_path, sink(postgresql)))
    assert (bodies(billing), on_stage(postgresql)) == ([b"1", b"2", b"2", b"2", b"2"], 0)


def test_a_program_that_names_its_jobs_sends_a_batch_without_rows_once(spark, postgresql, billing, tmp_path):
    """Spark names a query's jobs by its run, and a name of the program's is the same after a restart."""
    queue = postgresql.create_queue()
    queue.insert(10)

    def sending(send, number_of_death):
        def call(frame, number):
            spark.sparkContext.setJobGroup("billing", "what goes to billing")
            send(frame, number)
            if number == number_of_death:
                raise DiedError

        return call

    with pytest.raises(Exception, match="DiedError"):
        drain(to_each(counted(spark, postgresql, queue), tmp_path, sending(sink(postgresql), 1)))
    assert (bodies(billing), queue.count(), logged(tmp_path, "commits")) == ([], 0, [0])
    drain(to_each(counted(spark, postgresql, queue), tmp_path, sending(sink(postgresql), None)))
    assert (bodies(billing), on_stage(postgresql)) == ([b"1", b"2", b"2", b"2", b"2"], 0)


def test_two_frames_of_a_batch_may_have_jobs_of_two_names(spark, postgresql, billing, tmp_path):
    """The batch after, which the watermark lets go, has no rows of the queue."""
    queue, shipping = postgresql.create_queue(), postgresql.create_queue("shipping")
    queue.insert(10)
    send = sink(postgresql, queue=None)

    def both(frame, number):
        for name in ("billing", "shipping"):
            spark.sparkContext.setJobGroup(name, f"what goes to {name}")
            send(frame.withColumn("Destination", F.lit(name)), number)

    drain(to_each(counted(spark, postgresql, queue), tmp_path, both))
    arrived = [b"1", b"2", b"2", b"2", b"2"]
    assert (bodies(billing), bodies(shipping), on_stage(postgresql)) == (arrived, arrived, 0)


def united(spark, postgresql, queue, folder):
    folder.mkdir(exist_ok=True)
    rows = stream(spark, postgresql, queue, **ATOMIC).select("Headers", "Body")
    lines = spark.readStream.text(str(folder))
    others = lines.select(F.lit("{}").alias("Headers"), F.col("value").cast("binary").alias("Body"))
    return rows.unionByName(others)


def test_rows_of_another_source_are_sent_on_an_idle_queue(spark, postgresql, billing, tmp_path):
    queue = postgresql.create_queue()
    lines = tmp_path / "lines"
    frame = united(spark, postgresql, queue, lines)

    def write(number):
        (tmp_path / "part").write_text(f"line {number}\n")
        (tmp_path / "part").rename(lines / f"{number}.txt")

    write(0)
    with running(to_each(frame, tmp_path, sink(postgresql))):
        eventually(lambda: bodies(billing) == [b"line 0"])
        write(1)
        eventually(lambda: bodies(billing) == [b"line 0", b"line 1"])
        queue.insert(2)
        eventually(lambda: billing.count() == 4)
    assert queue.count() == 0
    write(2)
    drain(to_each(united(spark, postgresql, queue, lines), tmp_path, sink(postgresql)))
    lines_sent = [each for each in bodies(billing) if each.startswith(b"line")]
    assert lines_sent == [b"line 0", b"line 1", b"line 2"]
    assert (billing.count(), on_stage(postgresql)) == (5, 0)


def test_a_failed_batch_of_another_source_is_run_again(spark, postgresql, tmp_path):
    """The first batch: Spark runs it again without asking the queue's source;
    the destination was missing at first.
    """
    queue = postgresql.create_queue()
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "0.txt").write_text("line 0\n")
    with pytest.raises(Exception, match="There is no queue table billing"):
        drain(to_each(united(spark, postgresql, queue, lines), tmp_path, sink(postgresql)))
    billing = postgresql.create_queue("billing")
    drain(to_each(united(spark, postgresql, queue, lines), tmp_path, sink(postgresql)))
    assert bodies(billing) == [b"line 0"]


def test_a_frame_counts_once_however_often_its_sink_is_called(spark, postgresql, billing, tmp_path, caplog):
    """A loop may try again. Frames of other rows or columns count, and those that may answer otherwise."""
    queue = postgresql.create_queue()
    queue.insert(4)
    send = sink(postgresql)

    def send_again(batch, number):
        def half(left):
            return batch.where(F.col("RowVersion") % 2 == left).select("Headers", "Body")

        odd, even = half(1), half(0)
        frames = [odd, even, odd, half(1)]
        frames += [odd.withColumn(name, F.lit("billing")) for name in ("Destination", "CorrelationId")]
        for each in frames:
            send(each, number)
        for each in odd, even:
            each.write.mode("overwrite").parquet(str(tmp_path / "kept"))
            send(spark.read.parquet(str(tmp_path / "kept")), number)
        batch.createOrReplaceTempView("batch")
        told_in_file = F.udf(lambda row_version: row_version % 2 == int(file.read_text()), "boolean")
        for left in (0, 1):
            batch.where(F.col("RowVersion") % 2 == left).write.mode("overwrite").parquet(
                str(tmp_path / "due")
            )
            batch.sparkSession.read.parquet(str(tmp_path / "due")).createOrReplaceTempView("due")
            due = "SELECT Headers, Body FROM batch WHERE Id IN (SELECT Id FROM due)"
            send(batch.sparkSession.sql(due), number)
            file.write_text(str(left))
            send(batch.where(told_in_file("RowVersion")).select("Headers", "Body"), number)

    file = tmp_path / "left"
    with caplog.at_level("INFO"):
        drain(to_each(stream(spark, postgresql, queue, **ATOMIC), tmp_path, send_again))
    told = [each for each in caplog.messages if each.startswith("staged")]
    assert told == [
        f"staged batch=0 staged={2 - repeated} repeated={repeated}" for repeated in (0, 0, 2, 2, *[0] * 8)
    ]
    assert (Counter(ids_in(billing)), queue.count()) == (
        dict(zip(message_ids(range(4)), (6, 4, 6, 4), strict=True)),
        0,
    )


def test_a_call_whose_seal_is_in_doubt_counts_once_when_it_is_called_again(
    spark, postgresql, billing, tmp_path
):
    """It was committed, and the answer was lost. After a stop the stage is empty, and all is staged again."""
    queue = postgresql.create_queue()
    queue.insert(4)
    send = sink(postgresql)

    def sealed(*given, **more):
        seal(*given, **more)
        raise QueueError("The answer was lost.")

    def send_again(batch, number):
        rows = batch.select("Headers", "Body")
        try:
            with mock.patch("sqlqueue_spark.spark.sink.seal", sealed):
                send(rows, number)
        except QueueError as error:
            lost.append(str(error))
        send(rows, number)
        if len(lost) == 1:
            raise DiedError

    lost: list[str] = []
    with pytest.raises(Exception, match="DiedError"):
        drain(to_each(stream(spark, postgresql, queue, **ATOMIC), tmp_path, send_again))
    assert (billing.count(), queue.count()) == (0, 4)
    drain(to_each(stream(spark, postgresql, queue, **ATOMIC), tmp_path, send_again))
    assert (sorted(ids_in(billing)), queue.count(), lost) == (
        message_ids(range(4)),
        0,
        ["The answer was lost."] * 2,
    )


def test_two_sources_of_one_stream_are_refused(spark, postgresql, billing, tmp_path):
    """They are in one query."""
    queues = [postgresql.create_queue(name) for name in ("orders", "invoices")]
    for each in queues:
        each.insert(3)
    first, second = (stream(spark, postgresql, each, **ATOMIC, lockTimeout="500ms") for each in queues)
    frame = first.unionByName(second).select("Headers", "Body")
    with pytest.raises(Exception, match="Two sources use the stage "):
        drain(to_each(frame, tmp_path, sink(postgresql)))
    assert ([each.count() for each in queues], billing.count(), logged(tmp_path, "offsets")) == (
        [3, 3],
        0,
        [],
    )


def test_code_that_a_stranger_adds_between_staging_and_settling_does_not_run(
    spark, server, postgresql, billing, tmp_path
):
    """What a task finds out of its destinations reaches the transaction that writes into them."""
    queue, error = postgresql.create_queue(), postgresql.create_queue("error")
    queue.insert(3)
    send = sink(postgresql, queue=None, errorQueue="error")

    def staged(frame, number):
        send(frame, number)
        trap.execute("CREATE OR REPLACE RULE evil AS ON INSERT TO {table} DO ALSO DELETE FROM billing")

    with logins(server, "stranger"):
        trap = postgresql.create_queue("trap")
        trap.execute("ALTER TABLE {table} OWNER TO stranger")
        named = F.when(F.col("RowVersion") == 2, "trap").otherwise("billing")
        frame = stream(spark, postgresql, queue, **ATOMIC, errorQueue="error").withColumn(
            "Destination", named
        )
        drain(to_each(as_outgoing(frame), tmp_path, staged))
        left = queue.count(), ids_in(trap), ids_in(error), sorted(ids_in(billing))
        postgresql.execute("DROP TABLE trap")
    assert left == (0, [], message_ids([1]), message_ids([0, 2]))
