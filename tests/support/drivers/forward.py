"""Forwards queues to the queue ``billing`` until nothing is left, as a user's own program does.

A pipeline is called after its queue and what makes its sends safe: the outbox's mode, or ``atomic``. All
pipelines run at once, or one after the other.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark.spark.sink import SqlQueueSink
from tests.support.drivers.pipelines import run
from tests.support.sparks import start_spark

#: Most rows of a batch. A batch is one slice and one task.
LIMIT = 40


def main(url: str, folder: Path, pipelines: list[str], in_turn: bool) -> None:
    spark = start_spark(folder, master="local[4,4]")  # a task is tried four times
    run([partial(forward, spark, url, folder / name, name) for name in pipelines], in_turn=in_turn)
    spark.stop()


def forward(spark: SparkSession, url: str, checkpoint: Path, name: str) -> StreamingQuery:
    mode = "sendsAtomicWithReceive" if name == "atomic" else "receiveOnly"
    same = {"url": url, "stream": name, "transactionMode": mode}
    rows = (
        spark.readStream.format("sqlqueue")
        .options(**same, queue=name, maxMessagesPerTrigger=LIMIT, lockTimeout="20s")
        .load()
    )
    outbox = {} if name == "atomic" else {"outbox": name}
    sink = SqlQueueSink(queue="billing", options={**same, **outbox})

    def send(batch: DataFrame, number: int) -> None:
        sink(batch.select("Headers", "Body"), number)

    writer = rows.writeStream.foreachBatch(send).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("pipelines", nargs="+")
    main(url=os.environ["SQLQUEUE_URL"], **vars(parser.parse_args()))
