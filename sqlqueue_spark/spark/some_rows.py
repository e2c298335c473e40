"""Reads some rows of a queue, named by their RowVersions, as ``spark.read`` does, and no others.

Spark hands no filter on to ``format("sqlqueue")``, so a reader of few rows of a queue would read all.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.spark.allowed_code import these
from sqlqueue_spark.spark.datasource import SqlQueueDataSource, allowing
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.readers import SCHEMA

#: The option that says which rows. It is for this package alone.
_ROWS = "rows"


@sentence_first
class SomeRowsSource(SqlQueueDataSource):
    """The data source of :class:`SomeRows`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name.lower() != _ROWS})
        self._rows = RowSet.decode(options[_ROWS])

    @classmethod
    def name(cls) -> str:
        return "sqlqueue_some_rows"


class SomeRows:
    """A queue of which only some rows are read, with the options of ``format("sqlqueue")``.

    What the options name of this machine, such as a token provider, is allowed: they come from a program, and
    not from SQL.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = dict(options)
        spark.dataSource.register(allowing([these(SourceOptions.parse(options))], SomeRowsSource))

    def read(self, rows: RowSet) -> DataFrame:
        """Those of these rows that are there when Spark runs, in the columns of the stream."""
        given = {**self._options, _ROWS: rows.encode()}
        return self._spark.read.format(SomeRowsSource.name()).options(**given).schema(SCHEMA).load()
