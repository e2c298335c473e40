"""``format("sqlqueue")``: hands Spark the reader or the writer that it asks for."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.spark.allowed_code import check
from sqlqueue_spark.spark.readers import (
    SCHEMA,
    QueueStreamReader,
    SqlQueuePeekReader,
    StreamReaderBeforeSpark42,
    check_schema,
)
from sqlqueue_spark.spark.sink import SqlQueueWriter


class SqlQueueDataSource(DataSource):
    """SQL queue tables: ``spark.readStream`` receives, ``spark.read`` peeks, ``df.write`` sends."""

    #: The code that options may name, see :mod:`sqlqueue_spark.spark.allowed_code`.
    allowed: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def name(cls) -> str:
        return "sqlqueue"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> QueueStreamReader:
        check_schema(schema)
        options = self._source_options()
        try:
            from sqlqueue_spark.spark.stream_reader import SqlQueueStreamReader
        except ImportError:  # Spark before 4.2
            return StreamReaderBeforeSpark42(options)
        return SqlQueueStreamReader(options)

    def reader(self, schema: StructType) -> SqlQueuePeekReader:
        check_schema(schema)
        return SqlQueuePeekReader(self._source_options())

    def writer(self, schema: StructType, overwrite: bool) -> SqlQueueWriter:
        check(SinkOptions.parse(self.options), self.allowed)
        return SqlQueueWriter(self.options, schema, overwrite)

    def _source_options(self) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        check(options, self.allowed)
        return options


def allowing(names: Collection[str]) -> type[SqlQueueDataSource]:
    """The data source for a session in which options may name this code."""

    class Allowing(SqlQueueDataSource):
        allowed = tuple(names)

    return Allowing
