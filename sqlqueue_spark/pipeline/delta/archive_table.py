"""A Delta table in which each row of a queue stands once, though several programs write it again.

Rows are merged by their Id, which a row keeps while it is in its queue. A merge reads the whole table. So
Delta refuses one of two merges that run at once, and the refused one looks again. All that write into the
table must merge: appended rows are seen, but Delta does not refuse a merge because of them.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ConfigurationError, TryAgain

#: Delta's errors when another commit was first. All that a transaction did is undone then.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_(?:APPEND|DELETE|WRITE)|DELTA_(?:METADATA|PROTOCOL)_CHANGED"
    r"|Concurrent(?:Append|Delete\w+|Write)Exception|(?:Metadata|Protocol)ChangedException"
)
#: What Delta's writer takes as options, a merge takes from the session.
_SETTINGS = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}


class Version(NamedTuple):
    """The newest commit of a table. A table that is made anew counts from 0 again, at another time."""

    number: int
    time: datetime


class ArchiveTable:
    """The archive of a path; the table need not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        from delta.tables import DeltaTable

        self._delta = DeltaTable
        self._spark = spark
        self._path = path

    def version(self) -> Version | None:
        """The table's newest commit; None if there is no table."""
        if not self._exists():
            return None
        history = self._delta.forPath(self._spark, self._path).history(1)
        newest = history.select("version", "timestamp").first()
        return None if newest is None else Version(*newest)

    def missing(self, ids: list[str]) -> set[str]:
        """Which of these Ids no row of the table has; reads no other column."""
        if not self._exists():
            return set(ids)
        asked = self._spark.createDataFrame(pa.table({"Id": pa.array(ids, pa.string())}))
        there = self._spark.read.format("delta").load(self._path).select("Id")
        return {row.Id for row in asked.join(there, "Id", "left_anti").collect()}

    def merge(self, rows: DataFrame, once: Mapping[str, str] | None = None) -> int:
        """Add those rows whose Id the table does not have; of several with one Id, one.

        Rows of several queues are known by Queue and Id.

        :param once: Delta's options that make a batch once. Where the table has the batch, nothing is done.
        """

        def tried() -> int:
            try:
                return self._merged(rows, once or {})
            except Exception as error:  # Spark raises many kinds
                if not _CONFLICT.search(f"{type(error).__name__} {error}"):
                    raise
                raise TryAgain(
                    f"Another program has written into the Delta table {self._path} again and again while we "
                    "did; start this one again."
                ) from error

        return Retry(f"writing into {self._path}").retried(tried)

    def _merged(self, rows: DataFrame, once: Mapping[str, str]) -> int:
        if not self._exists():
            # Of two programs that create it at once, one is refused.
            rows.limit(0).write.format("delta").mode("append").save(self._path)
        columns: dict[str, str | Column] = {name: f"new.`{name}`" for name in rows.columns}
        table = self._delta.forPath(self._spark, self._path)
        key = [name for name in rows.columns if name in ("Queue", "Id")]
        if ("Queue" in key) != ("Queue" in table.toDF().columns):
            its, ours = ("one queue", "several queues") if "Queue" in key else ("several queues", "one queue")
            raise ConfigurationError(
                f"The Delta table {self._path} is the archive of {its}, by its columns; give the rows of "
                f"{ours} a table of their own."
            )
        same = " AND ".join(f"there.{name} = new.{name}" for name in key)
        with _set(self._spark, {_SETTINGS[name]: value for name, value in once.items()}):
            merged = (
                table.alias("there")
                .merge(rows.dropDuplicates(key).alias("new"), same)
                .whenNotMatchedInsert(values=columns)
                .withSchemaEvolution()  # a later version may have more columns
                .execute()
            )  # fmt: skip
        # A batch that is there already says nothing.
        return sum(row.num_inserted_rows for row in merged.collect())

    def _exists(self) -> bool:
        return bool(self._delta.isDeltaTable(self._spark, self._path))


def merge(df: DataFrame, table: str, once: Mapping[str, str]) -> None:
    """Write a batch of a stream into an archive, for ``write_delta``."""
    ArchiveTable(df.sparkSession, table).merge(df, once)


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block a session has these settings."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
