"""A reader as Spark before 4.2 wants it, run by this Spark, which still speaks with these readers."""

from datetime import timedelta

import pytest

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.spark.datasource import SqlQueueDataSource
from sqlqueue_spark.spark.readers import StreamReaderBeforeSpark42
from tests.support.messages import message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.streams import drain, ids_in_delta, running, to_delta, to_each
from tests.support.waiting import eventually

LONG = timedelta(seconds=60)


@pytest.fixture
def following(spark):
    """The format of a source that follows."""

    class Following(SqlQueueDataSource):  # here, so that it travels to the workers by value
        @classmethod
        def name(cls):
            return "sqlqueue_following"

        def streamReader(self, schema):  # noqa: ARG002, N802 -- Spark's names
            return StreamReaderBeforeSpark42(SourceOptions.parse(self.options))

    spark.dataSource.register(Following)
    return "sqlqueue_following"


def test_a_restarted_stream_delivers_each_message_once(spark, postgresql, following, tmp_path):
    queue = postgresql.create_queue()
    options = {"url": postgresql.url, "queue": queue.address, "maxMessagesPerTrigger": "100"}
    writer = to_delta(spark.readStream.format(following).options(**options).load(), tmp_path)
    for messages in (150, 300):
        queue.insert(150, start=messages - 150)
        with running(writer):
            eventually(lambda: queue.count() == 0, within=LONG)
        assert ids_in_delta(spark, tmp_path) == sent(messages)

    # Trigger.AvailableNow is one micro-batch there. The next run finds what the last one has delivered,
    # and what is new.
    queue.insert(150, start=300)
    drain(writer)
    assert ids_in_delta(spark, tmp_path) == sent(400)
    for _ in range(2):
        drain(writer)
    assert (ids_in_delta(spark, tmp_path), queue.count()) == (sent(450), 0)


def test_a_restarted_atomic_stream_sends_messages_once(spark, postgresql, following, tmp_path):
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    atomic = {"transactionMode": "sendsAtomicWithReceive", "stream": "Forward"}
    options = {"url": postgresql.url, "queue": queue.address, "maxMessagesPerTrigger": "100", **atomic}
    sink = SqlQueueSink(url=postgresql.url, queue="billing", options=atomic)
    frame = spark.readStream.format(following).options(**options).load().select("Headers", "Body")
    writer = to_each(frame, tmp_path, sink)
    for messages in (150, 300):
        queue.insert(150, start=messages - 150)
        with running(writer):
            eventually(lambda: queue.count() == 0, within=LONG)
        assert sorted(ids_in(billing)) == message_ids(range(messages))


def sent(messages):
    return [str(each) for each in row_ids(range(messages))]
