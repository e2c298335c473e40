"""Forwards queues to the queue ``billing`` until nothing is left, as a user's own program does.

A pipeline is called after its queue and what makes its sends safe: the outbox's mode, or ``atomic``. The one
called ``handled`` calls a function for each message. All pipelines run at once, or one after the other, on
this machine or on a cluster of two executors.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlqueue_spark.handling import ReceivedMessage, Send, each_message
from sqlqueue_spark.spark.sink import SqlQueueSink
from tests.support.drivers.death import at_step
from tests.support.drivers.pipelines import run
from tests.support.sparks import start_spark

#: Most rows of a batch. A batch is one slice and one task.
LIMIT = 40
#: The step at which the function is called for a message.
CALLED = "function called"


def main(url: str, folder: Path, pipelines: list[str], in_turn: bool, cluster: bool) -> None:
    # A task is tried four times.
    spark = start_spark(folder, master="local-cluster[2,1,1024]" if cluster else "local[4,4]")
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
    handles = name == "handled"
    own = {"atomic": {}, "handled": {"errorQueue": "error"}}.get(name, {"outbox": name})
    sink = SqlQueueSink(queue="billing", options={**same, **own})
    if handles:
        rows = rows.transform(each_message(passed_on, queue=name))

    def send(batch: DataFrame, number: int) -> None:
        sink(batch if handles else batch.select("Headers", "Body"), number)

    writer = rows.writeStream.foreachBatch(send).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def passed_on(message: ReceivedMessage) -> Send:
    at_step(CALLED)
    return Send("billing", message.type, message.body, id=message.id)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("pipelines", nargs="+")
    main(url=os.environ["SQLQUEUE_URL"], **vars(parser.parse_args()))
