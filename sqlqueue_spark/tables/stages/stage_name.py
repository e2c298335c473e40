"""The name of a stage's table, ``<stream>.Outgoing``, which bounds the name of an atomic stream."""

from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SinkOptions, SourceOptions

#: A stage's name is its stream's and this. A name has at most 63 bytes on PostgreSQL, the index's too.
SUFFIX = ".Outgoing"
_LONGEST_STREAM = 40


def table_of(options: SourceOptions | SinkOptions) -> Table:
    """The table of a stream's stage, by the options of an atomic pipeline. Errors as :func:`table_named`."""
    assert options.stream is not None, "the options were checked"
    return table_named(options.stream, options.default_schema or dialect_of(options.url).default_schema)


def table_named(stream: str, schema: str) -> Table:
    """The table of a stream's stage.

    :raises ConfigurationError: the name is too long for a table's.
    """
    if len(stream.encode()) > _LONGEST_STREAM:
        raise ConfigurationError(
            f"The option stream is {stream!r}, which is longer than the {_LONGEST_STREAM} bytes that leave "
            f"room for the name of the table {stream}{SUFFIX}; shorten it."
        )
    return Table(table=stream + SUFFIX, schema=schema)
