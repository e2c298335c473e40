"""The options of ``format("sqlqueue")``, without what Spark itself puts among the options of a data source.

Read in the sources of Spark 4.0, 4.1 and 4.2: ``DataStreamWriter``, ``DataSourceV2Utils`` (batch, and
``CREATE VIEW … USING``) and ``V2SessionCatalog``. Spark Connect and the sinks of pipelines call the same.
"""

from collections.abc import Mapping

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.fields import said

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
            raise ConfigurationError(
                f"Both {path!r}, the path that is loaded or written, and the option {ours} ({named!r}) name "
                "the queue; drop one."
            )
        given[ours] = path
    if not given:
        raise ConfigurationError(f"No option is given, and url and queue are needed. {_NO_TABLE}.")
    return given
