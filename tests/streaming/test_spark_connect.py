"""Through Spark Connect each message arrives once, and a mistake is one sentence.

It needs packages that the tests' environment lacks. So it gets the wheel in an environment of its own.
"""

import json
import subprocess
import textwrap

import pytest

from tests.streaming.test_pipelines_and_notebooks import ran
from tests.support.messages import message_ids
from tests.support.sending import ids_in

pytestmark = [pytest.mark.tier("nightly"), pytest.mark.timeout(600)]

#: Sends what is in the queue ``orders`` by each of these sinks, then asks for a queue that is not there.
PROGRAM = textwrap.dedent("""
    import json, os, sys
    from pyspark.sql import SparkSession
    from sqlqueue_spark import SqlQueueSink, why
    from sqlqueue_spark.handling import Send, each_message
    from sqlqueue_spark.pipeline import as_outgoing, read_queue

    url, folder = sys.argv[1:]
    os.environ["SPARK_TESTING"] = "1"  # the server takes any port that is free
    spark = SparkSession.builder.remote("local[2]").getOrCreate()

    def run(frame, name, **options):
        sink = SqlQueueSink(url=url, errorQueue="error", **options)
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/{name}")
        writer.trigger(availableNow=True).start().awaitTermination()

    def read(queue, **options):
        return read_queue(spark, {"url": url, "queue": queue, "maxMessagesPerTrigger": "15", **options})

    def handle(message):
        if message.json()["order"] == 7:
            raise ValueError("There is no order 7.")
        return Send("handled", "Shop.Handled, Shop", message.json())

    run(as_outgoing(read("orders"), "orders"), "once", queue="sent", endpoint="Shop.Spark")
    atomic = {"transactionMode": "sendsAtomicWithReceive", "stream": "Shop.Atomic"}
    run(as_outgoing(read("sent", **atomic), "sent"), "atomic", queue="Billing", outbox="none", **atomic)
    run(read("Billing").transform(each_message(handle, queue="Billing")), "handled", endpoint="Shop.Handler")
    try:
        read("ordres").columns
    except Exception as error:
        print("####", json.dumps(why(error)))
    spark.stop()
""")


def test_each_message_arrives_once_and_a_mistake_is_one_sentence(doors, postgresql, tmp_path):
    """By an outbox, then atomically, then through a handler that fails one of them."""
    names = ("orders", "sent", "Billing", "handled", "error")
    queues = {name: postgresql.create_queue(name) for name in names}
    queues["orders"].insert(40)
    environment = doors.environment(SQLQUEUE_URL=postgresql.url)
    for endpoint in ("Shop.Spark", "Shop.Handler"):
        subprocess.run([doors.sqlqueue, "outbox", "create", endpoint], env=environment, check=True)
    done = ran(doors, tmp_path, doors.python, "-c", PROGRAM, postgresql.url, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.rpartition("####")[2]) == (
        "There is no queue table ordres@[public] in this database; create it with: sqlqueue create 'ordres', "
        "or correct the queue name or its schema."
    )
    handled = sorted(json.loads(row.body)["order"] for row in queues["handled"].rows())
    assert handled == [each for each in range(40) if each != 7]
    assert ids_in(queues["error"]) == message_ids([7])
    assert [queues[name].count() for name in names] == [0, 0, 0, 39, 1]
