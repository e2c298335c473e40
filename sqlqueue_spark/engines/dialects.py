"""The engines that there are, and which one a url belongs to."""

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.dialect import ClaimedColumns, Dialect, DriverError, Kind, Load
from sqlqueue_spark.engines.outbox_only.mysql import MySql
from sqlqueue_spark.engines.outbox_only.oracle import Oracle
from sqlqueue_spark.engines.postgresql.dialect import PostgreSQL
from sqlqueue_spark.engines.sqlserver.dialect import SqlServer
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.url_shapes import told_of_others

POSTGRESQL = PostgreSQL()
SQLSERVER = SqlServer()
DIALECTS: dict[str, Dialect] = {each.name: each for each in (POSTGRESQL, SQLSERVER)}
#: The engines that keep outbox tables.
OUTBOX_DATABASES: dict[str, Database] = {**DIALECTS, **{each.name: each for each in (MySql(), Oracle())}}

__all__ = [
    "DIALECTS",
    "OUTBOX_DATABASES",
    "POSTGRESQL",
    "SQLSERVER",
    "ClaimedColumns",
    "Database",
    "Dialect",
    "DriverError",
    "Kind",
    "Load",
    "dialect_of",
]


def dialect_of(url: str) -> Dialect:
    """The dialect that a URL or connection string belongs to.

    :raises ConfigurationError: the text has none of the known forms. The message does not repeat it: it may hold a secret.
    """
    for dialect in DIALECTS.values():
        if dialect.speaks(url):
            return dialect
    if told := told_of_others(url):
        raise ConfigurationError(f"The option url has the form of {told}.")
    raise ConfigurationError(
        "The option url is none of postgresql://user@host:port/database, mssql://user@host:port/database and an ODBC "
        "connection string such as Server=host;Database=name;Encrypt=yes; correct it."
    )
