"""Two readers of one Spark program over one queue share its messages, and the second one warns of it."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.spark.readers import QueueStreamReader
from tests.support.engines import with_catalog

#: Starts one query, then another one on the same frame. Then the first one again, alone, and one that reads
#: the frame twice as one source. Last one that reads it as two.
_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

url, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false") \\
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
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
joined = orders.alias("x").join(orders.alias("y"), expr("x.Id = y.Id"))
for name, frame in (("one", orders), ("union", orders.union(orders)), ("joined", joined)):
    print(name, file=sys.stderr, flush=True)
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
            f"queue_shared queue={with_catalog(engine, 'orders')}: a second reader of this Spark program "
            "takes from it (another query, or one that uses its stream twice, as in a join with itself). "
            "Each message goes to one of them alone, and a join loses what finds no partner; let one query "
            "read the queue once, and write to both places, or join, in its foreachBatch, or drain the queue "
            "into a Delta table that others read"
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
def test_each_source_of_a_program_has_a_reader_that_is_noticed(postgresql, tmp_path):
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
    told = [each for each in lines if each in ("one", "two", "union", "joined", "queue_shared")]
    assert told == ["one", "two", "queue_shared", "one", "union", "joined", "queue_shared"]
