"""Four pipelines of one program that go on until a file ``stop`` is there:
what ends with an error is started again.

Two streams drain the queue ``orders``, each into a Delta table of its own; the queues ``atomic`` and
``optimistic`` are forwarded to ``billing``, each in the way of its name. Errors go into ``errors.jsonl``; the
file ``up-<process id>`` says that all have been started.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark.spark.sink import SqlQueueSink
from tests.support.drivers.death import at_step
from tests.support.sparks import start_spark

ORDERS, BILLING = "orders", "billing"
DRAINING = ("one", "two")
FORWARDING = ATOMIC, OPTIMISTIC = ("atomic", "optimistic")
#: A step that this program adds to those of the package.
SENT = "batch sent"
_LIMIT = 500


def main(url: str, folder: Path) -> None:
    spark = start_spark(folder, master="local[4,4]")  # a task is tried four times
    spark.conf.set(
        "spark.sql.streaming.minBatchesToRetain", "1000000"
    )  # the proof looks later at all batches
    starts: dict[str, Callable[[], StreamingQuery]] = {
        **{name: partial(drain, spark, url, folder / name) for name in DRAINING},
        **{name: partial(forward, spark, url, folder / name, name) for name in FORWARDING},
    }
    queries: dict[str, StreamingQuery] = {}
    while not (folder / "stop").exists():
        for name, start in starts.items():
            query = queries.get(name)
            if query is not None and query.isActive:
                continue
            if query is not None:
                _note(folder, name, query)
            queries[name] = start()
            _let_begin(queries[name])
        (folder / f"up-{os.getpid()}").touch()
        time.sleep(0.2)
    for query in queries.values():
        query.stop()
    spark.stop()


def drain(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    writer = _queue(spark, url, ORDERS).writeStream.format("delta").option("path", str(folder / "delta"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def forward(spark: SparkSession, url: str, folder: Path, name: str) -> StreamingQuery:
    mode = "sendsAtomicWithReceive" if name == ATOMIC else "receiveOnly"
    same = {"stream": name, "transactionMode": mode}
    outbox = {} if name == ATOMIC else {"outbox": name}
    sink = SqlQueueSink(url=url, queue=BILLING, options={**same, **outbox})

    def send(batch: DataFrame, number: int) -> None:
        sink(batch.select("Headers", "Body"), number)
        at_step(SENT, name)

    writer = _queue(spark, url, name, **same).writeStream.foreachBatch(send)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _queue(spark: SparkSession, url: str, queue: str, **options: str) -> DataFrame:
    given: dict[str, str | int] = {
        "url": url,
        "queue": queue,
        "maxMessagesPerTrigger": _LIMIT,
        "minMessagesPerPartition": _LIMIT // 2,
        "lockTimeout": "20s",
        "pollInterval": "200ms",
        **options,
    }
    return spark.readStream.format("sqlqueue").options(**given).load()


def _let_begin(query: StreamingQuery) -> None:
    """Wait until a query has begun: Spark gives up a Python process that has not
    started after ten seconds.
    """
    until = time.monotonic() + 5
    while query.isActive and not query.status["isDataAvailable"] and time.monotonic() < until:
        time.sleep(0.05)


def _note(folder: Path, name: str, query: StreamingQuery) -> None:
    line = {"at": time.time(), "pipeline": name, "error": str(query.exception())}
    with (folder / "errors.jsonl").open("a") as errors:
        errors.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--folder", required=True, type=Path)
    main(url=os.environ["SQLQUEUE_URL"], **vars(parser.parse_args()))
