"""``format("sqlqueue")``: hands Spark the reader or the writer that it asks for."""

from collections.abc import Collection
from typing import ClassVar
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.options.environment import with_password
from sqlqueue_spark.receive.reading.peek import look_before
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.spark.allowed_code import check
from sqlqueue_spark.spark.datasource_options import own_options
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.readers import (
    QueueStreamReader,
    SqlQueuePeekReader,
    StreamReaderBeforeSpark42,
    check_schema,
    schema_of,
)
from sqlqueue_spark.spark.writers import SqlQueueStreamWriter, SqlQueueWriter


@sentence_first
class SqlQueueDataSource(DataSource):
    """SQL queue tables: ``spark.readStream`` receives, ``spark.read`` peeks, ``df.write`` and
    ``df.writeStream`` send.
    """

    #: The code that options may name, see :mod:`sqlqueue_spark.spark.allowed_code`.
    allowed: ClassVar[tuple[str, ...]] = ()
    #: Those alone that ``spark.read`` reads; None for all.
    _rows: RowSet | None = None

    @classmethod
    def name(cls) -> str:
        return "sqlqueue"

    def schema(self) -> StructType:
        """The columns of the rows, for ``load()``; so this is the moment to refuse options and queues."""
        options = self._source_options()
        look_before(options)
        return schema_of(options)

    def streamReader(self, schema: StructType) -> QueueStreamReader:
        options = self._source_options()
        check_schema(schema, options)
        try:
            from sqlqueue_spark.spark.stream_reader import SqlQueueStreamReader
        except ImportError:  # Spark before 4.2
            return StreamReaderBeforeSpark42(options)
        return SqlQueueStreamReader(options)

    def reader(self, schema: StructType) -> SqlQueuePeekReader:
        options = self._source_options()
        check_schema(schema, options)
        return SqlQueuePeekReader(options, self._rows)

    def writer(self, schema: StructType, overwrite: bool) -> SqlQueueWriter:
        return SqlQueueWriter(self._sink_options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SqlQueueStreamWriter:
        return SqlQueueStreamWriter(self._sink_options(), schema, overwrite)

    def _source_options(self) -> SourceOptions:
        return check(SourceOptions.parse(with_password(own_options(self.options))), self.allowed)

    def _sink_options(self) -> dict[str, str]:
        given = with_password(own_options(self.options))
        checked = check(SinkOptions.parse(given), self.allowed)
        urls = {"url": checked.url} | {f"endpoint.{n}.url": url for n, url in checked.endpoint_urls.items()}
        return {name: value for name, value in given.items() if name.lower() not in urls} | urls


#: What each session allows.
_SESSIONS: WeakKeyDictionary[SparkSession, frozenset[str]] = WeakKeyDictionary()


def allow(spark: SparkSession, names: Collection[str], *, also: bool = False) -> None:
    """Register the data source of a session, whose options may name these on this machine.

    :param also: they may name what the session allows already, too.
    """
    before = _SESSIONS.get(spark)
    allowed = frozenset(names) | (before or frozenset() if also else frozenset())
    if not also or allowed != before:
        _SESSIONS[spark] = allowed
        spark.dataSource.register(allowing(allowed) if allowed else SqlQueueDataSource)


def allowing(
    names: Collection[str], source: type[SqlQueueDataSource] = SqlQueueDataSource
) -> type[SqlQueueDataSource]:
    """A data source for a session in which options may name these on this machine."""

    # Within the function, so that it travels to Spark's processes by value.
    class Allowing(source):  # type: ignore[valid-type, misc] # mypy knows no base that is an argument
        allowed = tuple(sorted(names))

    return Allowing
