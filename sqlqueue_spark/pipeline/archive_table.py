"""A Delta table that holds each row of a queue once, also when several programs write it again and again.

Rows are merged by their Id, which a row keeps as long as it is in its queue. Delta refuses one of two merges
that run at once, because a merge reads the whole table. The refused one looks again. So every writer of the
table must merge: a merge sees rows that were appended, but does not wait for an append that runs.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import TryAgain

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
_NOTHING: Mapping[str, str] = {}

T = TypeVar("T")


class ArchiveTable:
    """The table of a path; it need not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def missing(self, ids: list[str]) -> set[str]:
        """Those of these Ids that no row of the table has; reads no other column of it."""
        if not self._exists():
            return set(ids)
        asked = self._spark.createDataFrame(pa.table({"Id": pa.array(ids, pa.string())}))
        there = self._spark.read.format("delta").load(self._path).select("Id")
        return {row.Id for row in asked.join(there, "Id", "left_anti").collect()}

    def merge(self, rows: DataFrame, once: Mapping[str, str] = _NOTHING) -> int:
        """Add those rows whose Id the table does not have; of several with one Id, one.

        :param once: Delta's options that make a batch once. Where the table has the batch, nothing is done.
        :returns: how many were added.
        """
        return _again_after_conflicts(self._path, lambda: self._merged(rows, once))

    def _merged(self, rows: DataFrame, once: Mapping[str, str]) -> int:
        from delta.tables import DeltaTable

        if not self._exists():
            # Of two programs that create it at once, Delta refuses one.
            rows.limit(0).write.format("delta").mode("append").save(self._path)
        columns: dict[str, str | Column] = {name: f"new.`{name}`" for name in rows.columns}
        with _set(self._spark, {_SETTINGS[name]: value for name, value in once.items()}):
            merged = (
                DeltaTable.forPath(self._spark, self._path).alias("there")
                .merge(rows.dropDuplicates(["Id"]).alias("new"), "there.Id = new.Id")
                .whenNotMatchedInsert(values=columns)
                .withSchemaEvolution()  # a later version may have more columns
                .execute()
            )  # fmt: skip
        return sum(
            row.num_inserted_rows for row in merged.collect()
        )  # a batch that is there already says nothing

    def _exists(self) -> bool:
        from delta.tables import DeltaTable

        return bool(DeltaTable.isDeltaTable(self._spark, self._path))


def merge(df: DataFrame, table: str, once: Mapping[str, str]) -> None:
    """Write a batch of a stream into an archive, for ``write_delta``."""
    ArchiveTable(df.sparkSession, table).merge(df, once)


def _again_after_conflicts(path: str, action: Callable[[], T]) -> T:
    def tried() -> T:
        try:
            return action()
        except Exception as error:  # Spark raises many kinds
            if _CONFLICT.search(str(error)) is None and _CONFLICT.search(type(error).__name__) is None:
                raise
            raise TryAgain(
                f"Another program has written into the Delta table {path} again and again while we did; "
                "start this one again."
            ) from error

    return Retry(f"writing into {path}").retried(tried)


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
