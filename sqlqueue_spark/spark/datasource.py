"""``format("sqlqueue")``: hands Spark the reader or the writer that it asks for."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sqlqueue_spark.options import SourceOptions
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

    @classmethod
    def name(cls) -> str:
        return "sqlqueue"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> QueueStreamReader:
        check_schema(schema)
        options = SourceOptions.parse(self.options)
        try:
            from sqlqueue_spark.spark.stream_reader import SqlQueueStreamReader
        except ImportError:  # Spark before 4.2
            return StreamReaderBeforeSpark42(options)
        return SqlQueueStreamReader(options)

    def reader(self, schema: StructType) -> SqlQueuePeekReader:
        check_schema(schema)
        return SqlQueuePeekReader(SourceOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> SqlQueueWriter:
        return SqlQueueWriter(self.options, schema, overwrite)
