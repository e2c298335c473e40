"""``format("sqlqueue")``: hands Spark the reader or the writer that it asks for.

What Spark itself puts among the options of a data source was read in the sources of Spark 4.0, 4.1 and 4.2:
``DataStreamWriter``, ``DataSourceV2Utils`` (batch, and ``CREATE VIEW … USING``) and ``V2SessionCatalog``.
Spark Connect and the sinks of pipelines call the same.
"""

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.options.environment import with_password
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.plain_text import holds_password
from sqlqueue_spark.receive.reading.peek import look_before
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.spark.allowed_code import check, these
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.readers import (
    SCHEMA,
    QueueStreamReader,
    SqlQueuePeekReader,
    StreamReaderBeforeSpark42,
    check_schema,
    schema_of,
)
from sqlqueue_spark.spark.writers import SqlQueueStreamWriter, SqlQueueWriter

#: What Spark is told of a query, and gives on.
OF_QUERIES = ("checkpointLocation", "queryName")
#: What is loaded or written, ``load("orders")`` or ``load(["orders", "billing"])``, and our option for it.
PATHS = {"path": "queue", "paths": "queues"}
#: Every table of Spark's catalog has one, and each of its properties is an option while it is created.
OF_TABLES = "provider"

_NO_TABLE = (
    "Spark does not give the options of a table in its catalog to a data source in Python when the table is "
    "read or written; instead of CREATE TABLE write CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS "
    "(url '…', queue '…')"
)
#: The option that says which rows :func:`some_rows` reads. It is for this package alone.
_ROWS = "rows"


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

    def _sink_options(self) -> SinkOptions:
        return check(SinkOptions.parse(with_password(own_options(self.options))), self.allowed)


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
    # No module has it under its name, so it travels to Spark's processes by value.
    return type("Allowing", (source,), {"allowed": tuple(sorted(names))})


@sentence_first
class SomeRowsSource(SqlQueueDataSource):
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name.lower() != _ROWS})
        self._rows = RowSet.decode(options[_ROWS])

    @classmethod
    def name(cls) -> str:
        return "sqlqueue_some_rows"


def some_rows(spark: SparkSession, options: Mapping[str, str]) -> Callable[[RowSet], DataFrame]:
    """What reads those of some rows, named by their RowVersions, that are there when Spark runs.

    Spark hands no filter on to ``format("sqlqueue")``, so a reader of few rows of a queue would read all.
    What the options name of this machine, like a token provider, is allowed: they come from a program, and
    not from SQL.
    """
    spark.dataSource.register(allowing([these(SourceOptions.parse(options))], SomeRowsSource))
    reader = spark.read.format(SomeRowsSource.name()).options(**options).schema(SCHEMA)
    return lambda rows: reader.option(_ROWS, rows.encode()).load()


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a user gives, where a path names the queue, as the option does.

    :raises ConfigurationError: a table of Spark's catalog is created or used, or two options name the queue.
    """
    if said(options, OF_TABLES) is not None:
        raise ConfigurationError(f"{_NO_TABLE}.")
    sparks = {name.lower() for name in (*OF_QUERIES, *PATHS)}
    given = {name: value for name, value in options.items() if name.lower() not in sparks}
    for name, ours in PATHS.items():
        path, named = said(options, name), said(given, ours)
        if path is None or named == path:
            continue
        if named is not None:
            path, named = ("***" if holds_password(each) else each for each in (path, named))
            raise ConfigurationError(
                f"Both {path!r}, the path that is loaded or written, and the option {ours} ({named!r}) name "
                "the queue; drop one."
            )
        given[ours] = path
    if not given:
        raise ConfigurationError(f"No option is given, and url and queue are needed. {_NO_TABLE}.")
    return given
