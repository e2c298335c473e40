"""Reads some rows of a queue, named by their RowVersions, as ``spark.read`` does, and no others.

Spark hands no filter on to ``format("sqlqueue")``, so a reader of few rows of a queue would read all.
"""

from collections.abc import Callable, Mapping

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
    """The data source of :func:`some_rows`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name.lower() != _ROWS})
        self._rows = RowSet.decode(options[_ROWS])

    @classmethod
    def name(cls) -> str:
        return "sqlqueue_some_rows"


def some_rows(spark: SparkSession, options: Mapping[str, str]) -> Callable[[RowSet], DataFrame]:
    """What reads those of some rows that are there when Spark runs, in the columns of the stream.

    What the options name of this machine, such as a token provider, is allowed: they come from a program, and
    not from SQL.
    """
    spark.dataSource.register(allowing([these(SourceOptions.parse(options))], SomeRowsSource))
    reader = spark.read.format(SomeRowsSource.name()).options(**options).schema(SCHEMA)
    return lambda rows: reader.option(_ROWS, rows.encode()).load()
