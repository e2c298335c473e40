"""Two queries of one Spark program over one queue share its messages, and the second one warns of it."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.spark.readers import QueueStreamReader
from tests.support.engines import with_catalog

#: Starts one query, then another one on the same frame. Then the first one again, alone, and one that reads
#: the frame twice.
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
given = {"url": url, "queue": "orders", "pollInterval": "100ms"}
orders = spark.readStream.format("sqlqueue").options(**given).load()


def begun(name, frame=orders):
    begun = []
    writer = frame.writeStream.foreachBatch(lambda batch, number: begun.append(batch.count()))
    query = writer.option("checkpointLocation", f"{folder}/{name}").start()
    while "Waiting for data" not in query.status["message"] and not begun:
        query.awaitTermination(0.1)
    return query


print("one", file=sys.stderr, flush=True)
both = [begun("one")]
print("two", file=sys.stderr, flush=True)
both.append(begun("two"))
query = None
for each in both:
    each.awaitTermination(2)
    each.stop()
print("alone", file=sys.stderr, flush=True)
for name, frame in (("one", orders), ("union", orders.union(orders))):
    query = begun(name, frame)
    query.awaitTermination(2)
    query.stop()
"""


def reader(engine, **more):
    return QueueStreamReader(SourceOptions.parse({"url": engine.url, "queue": "orders", **more}))


def said(caplog):
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    return [each for each in found if each.startswith("queue_shared")]


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_the_second_reader_of_a_queue_warns_once_and_does_not_fail(engine, queue, caplog, mode):
    queue.insert(2)
    one, two = reader(engine, transactionMode=mode), reader(engine, transactionMode=mode)
    try:
        assert one._source.latest(None, 1) is not None
        assert said(caplog) == []
        two._source.latest(None, 1)
        two._source.latest(None, 1)
        (told,) = said(caplog)
        assert told == (
            f"queue_shared queue={with_catalog(engine, 'orders')}: another query of this Spark program "
            "reads it too, and each message goes to one of them; to have all messages in both places, let "
            "one query write to both in its foreachBatch"
        )
    finally:
        for each in (one, two):
            each.stop()


def test_readers_of_two_queues_say_nothing(engine, queue, caplog):
    engine.create_queue("billing")
    one, two = reader(engine), reader(engine, queue="billing")
    try:
        for each in (one, two):
            each._source.latest(None, 1)
        assert said(caplog) == []
    finally:
        for each in (one, two):
            each.stop()


@pytest.mark.tier("nightly")
def test_each_query_of_a_program_has_a_reader_that_is_noticed(postgresql, tmp_path):
    postgresql.create_queue().insert(20)
    program = Path(tmp_path / "program.py")
    program.write_text(_PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), postgresql.url, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [each.partition(" queue=")[0] for each in done.stderr.splitlines()]
    assert [each for each in lines if each in ("one", "two", "alone", "queue_shared")] == [
        "one",
        "two",
        "queue_shared",
        "alone",
    ]
