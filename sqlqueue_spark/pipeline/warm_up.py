"""A write into a Delta table of no use, while a new Spark has little else to do: the first real one then finds Delta's classes loaded.

Most of a job's first batch, into a new table, is Java that loads these.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Thread

from pyspark.sql import SparkSession


def warm_up(spark: SparkSession) -> Thread | None:
    """Begin it, in a thread of its own, where all of Spark runs on this machine. Whatever hinders it does not matter."""
    if not (spark.sparkContext.master or "").startswith("local"):
        return None
    writing = Thread(target=_write, args=(spark,), name="warm-up", daemon=True)
    writing.start()
    return writing


def _write(spark: SparkSession) -> None:
    with (
        suppress(Exception),
        tempfile.TemporaryDirectory(prefix="sqlqueue-", ignore_cleanup_errors=True) as folder,
    ):
        spark.range(1).write.format("delta").save((Path(folder) / "warm-up").as_uri())
