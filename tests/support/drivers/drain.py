"""Drains a queue into Delta until nothing is left, as a user's own program does.

The sink is Delta's own (``delta``), or a function called for each batch which writes two tables, each of them
idempotent by the batch's number (``foreach_batch``); then ``half`` holds the first table.
"""

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from tests.support.drivers.death import at_step
from tests.support.sparks import start_spark

HALF_WRITTEN = "batch half written"
WRITTEN = "batch written"


def main(url: str, queue: str, folder: Path, sink: str, limit: int, mode: str) -> None:
    spark = start_spark(folder, master="local[2,4]", events=folder / "events")  # a task is tried four times
    rows = (
        spark.readStream.format("sqlqueue")
        .options(
            url=url,
            queue=queue,
            maxMessagesPerTrigger=limit,
            minMessagesPerPartition=40,
            lockTimeout="20s",
            transactionMode=mode,
        )
        .load()
    )
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))

    def write_both(batch: DataFrame, number: int) -> None:
        for table, step in (("half", HALF_WRITTEN), ("delta", WRITTEN)):
            once = {"txnAppId": f"drain to {table}", "txnVersion": str(number)}
            batch.write.format("delta").mode("append").options(**once).save(str(folder / table))
            at_step(step)

    if sink == "delta":
        writer = writer.format("delta").option("path", str(folder / "delta"))
    else:
        writer = writer.foreachBatch(write_both)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--limit", required=True, type=int)
    parser.add_argument("--sink", required=True, choices=("delta", "foreach_batch"))
    parser.add_argument("--mode", required=True)
    main(**vars(parser.parse_args()))
