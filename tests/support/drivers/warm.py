"""Starts Spark with Delta, writes and reads a little, and ends, as every child does, so that Java remembers the classes."""

import tempfile
from pathlib import Path

from tests.support.sparks import start_spark

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(Path(folder))
        spark.range(10).write.format("delta").save(f"{folder}/first")
        stream = spark.readStream.format("delta").load(f"{folder}/first")
        writer = stream.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start(f"{folder}/second").awaitTermination()
        assert spark.read.format("delta").load(f"{folder}/second").count() == 10
        spark.stop()
