"""The gentle way to stop: while ``stopFile`` exists, what runs is finished and nothing more is claimed."""

import signal
import threading

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.pipeline.running.stop import asked_to_stop
from tests.support.messages import row_ids
from tests.support.streams import free, ids_in_delta, java_says, logged, running, stream, to_delta
from tests.support.waiting import eventually

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def test_a_stop_file_settles_the_batch_and_holds_nothing(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    reached, stop = tmp_path / "reached", tmp_path / "stop"

    def wait_for_the_stop_file(batches):
        for batch in batches:
            reached.touch()
            eventually(stop.exists)
            yield batch

    frame = stream(
        spark, postgresql, queue, maxMessagesPerTrigger=40, stopFile=stop, doneFile=tmp_path / "done"
    )
    first = frame.mapInArrow(wait_for_the_stop_file, frame.schema)
    queue.insert(100)
    with running(to_delta(first, tmp_path)):
        eventually(reached.exists)
        eventually(lambda: free(queue) == 20)  # the next batch is claimed already
        stop.touch()
        eventually(lambda: (queue.count(), free(queue)) == (60, 60))
        assert logged(tmp_path, "commits") == [0]
    stop.unlink()
    with running(to_delta(frame, tmp_path)):
        eventually(lambda: queue.count() == 0)
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(100))]


def test_a_query_that_is_stopped_while_its_sink_sends_has_no_error(spark, postgresql, tmp_path):
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(10)
    reached = tmp_path / "reached"

    def wait(batches):
        reached.touch()
        threading.Event().wait(60)
        yield from batches

    send = SqlQueueSink(url=postgresql.url, queue="billing", outbox="none")
    frame = stream(spark, postgresql, queue)
    writer = frame.mapInArrow(wait, frame.schema).select("Headers", "Body").writeStream.foreachBatch(send)
    with java_says(spark) as said:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        eventually(reached.exists)
        query.stop()
    assert (query.exception(), billing.count(), said) == (None, 0, [""])


def test_behind_a_job_a_signal_does_what_it_did_before_it(spark):
    """In a program that goes on, here and in Java. Java leaves SIGINT alone, which PySpark lets it ignore."""
    java = spark._jvm.sun.misc
    its, default = java.Signal("TERM"), java.SignalHandler.SIG_DFL
    before, here = java.Signal.handle(its, default), [signal.getsignal(each) for each in SIGNALS]
    with asked_to_stop(spark):
        assert not {*here} & {signal.getsignal(each) for each in SIGNALS}
    assert java.Signal.handle(its, before).equals(default)
    assert [signal.getsignal(each) for each in SIGNALS] == here
