"""Drains queues into Delta until nothing is left, as a user's own program does.

A pipeline is called after its queue and by what it is like: its sink is Delta's own (three of them,
``delta_a`` and so on), also in transaction mode none (``none``), or a function called for each batch which
writes two tables, each of them idempotent by the batch's number (``foreach_batch``); then ``half`` holds the
first table. All pipelines run at once, or one after the other, on this machine or on a cluster of two
executors.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.spark.datasource import SqlQueueDataSource
from sqlqueue_spark.spark.stream_reader import SqlQueueStreamReader
from tests.support.drivers.death import PIPELINE, at_step
from tests.support.drivers.pipelines import run
from tests.support.sparks import start_spark

DELTAS = ("delta_a", "delta_b", "delta_c")
NONE, FOREACH_BATCH = "none", "foreach_batch"
PIPELINES = (*DELTAS, NONE, FOREACH_BATCH)
HALF_WRITTEN = "batch half written"
WRITTEN = "batch written"


class Reader(SqlQueueStreamReader):
    """Names the pipeline to the process that works for it now, and whose steps these are then."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        os.environ[PIPELINE] = str(options.queue)  # a worker gets a new reader for each task


class Source(SqlQueueDataSource):
    """Our source under another name, because Spark registers ``sqlqueue`` by itself."""

    @classmethod
    def name(cls) -> str:
        return "sqlqueue_of_a_pipeline"

    def streamReader(self, schema: StructType) -> Reader:  # noqa: ARG002, N802 -- Spark's signature and name
        return Reader(self._source_options())


def main(url: str, folder: Path, pipelines: list[str], limit: int, in_turn: bool, cluster: bool) -> None:
    # A task is tried four times.
    master = "local-cluster[2,1,1024]" if cluster else "local[4,4]"
    spark = start_spark(folder, master=master, events=folder / "events")
    spark.dataSource.register(Source)
    run([partial(drain, spark, url, folder / name, name, limit) for name in pipelines], in_turn=in_turn)
    spark.stop()


def drain(spark: SparkSession, url: str, folder: Path, name: str, limit: int) -> StreamingQuery:
    rows = (
        spark.readStream.format(Source.name())
        .options(**login_of(name, url))
        .options(
            queue=name,
            maxMessagesPerTrigger=limit,
            minMessagesPerPartition=40,
            lockTimeout="20s",
            transactionMode="none" if name == NONE else "receiveOnly",
        )
        .load()
    )
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))

    def write_both(batch: DataFrame, number: int) -> None:
        for table, step in (("half", HALF_WRITTEN), ("delta", WRITTEN)):
            once = {"txnAppId": f"drain to {table}", "txnVersion": str(number)}
            batch.write.format("delta").mode("append").options(**once).save(str(folder / table))
            at_step(step, name)

    if name == FOREACH_BATCH:
        writer = writer.foreachBatch(write_both)
    else:
        writer = writer.format("delta").option("path", str(folder / "delta"))
    return writer.trigger(availableNow=True).start()


def login_of(pipeline: str, url: str) -> dict[str, str]:
    """The password of the environment in each way in which it can be given: left there,
    as an option, and in the url.
    """
    password = os.environ["SQLQUEUE_PASSWORD"]
    if pipeline == NONE:
        return {"url": url, "password": password}
    if pipeline == FOREACH_BATCH:
        return {"url": url.replace("@", f":{quote(password)}@", 1)}
    return {"url": url}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--limit", required=True, type=int)
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("pipelines", nargs="+", choices=PIPELINES)
    main(url=os.environ["SQLQUEUE_URL"], **vars(parser.parse_args()))
