"""``format("sqlqueue")``: hands Spark the reader or the writer that it asks for."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.sink import SqlQueueWriter
from sqlqueue_spark.source import SCHEMA, SqlQueuePeekReader, SqlQueueStreamReader, check_schema


class SqlQueueDataSource(DataSource):
    """SQL queue tables: ``spark.readStream`` receives, ``spark.read`` peeks, ``df.write`` sends."""

    @classmethod
    def name(cls) -> str:
        return "sqlqueue"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> SqlQueueStreamReader:
        check_schema(schema)
        return SqlQueueStreamReader(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> SqlQueuePeekReader:
        check_schema(schema)
        return SqlQueuePeekReader(SourceOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> SqlQueueWriter:
        return SqlQueueWriter(self.options, schema, overwrite)
