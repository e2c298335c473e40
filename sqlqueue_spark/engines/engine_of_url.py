"""The engines that there are, and which one a url belongs to."""

import re

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.outbox_only.mysql import MySql
from sqlqueue_spark.engines.outbox_only.oracle import Oracle
from sqlqueue_spark.engines.postgresql.dialect import PostgreSQL
from sqlqueue_spark.engines.sqlserver.dialect import SqlServer
from sqlqueue_spark.errors import ConfigurationError

POSTGRESQL = PostgreSQL()
SQLSERVER = SqlServer()
DIALECTS: dict[str, Dialect] = {each.name: each for each in (POSTGRESQL, SQLSERVER)}
#: The engines that keep outbox tables.
OUTBOX_DATABASES: dict[str, Database] = {**DIALECTS, **{each.name: each for each in (MySql(), Oracle())}}

_FROM_DOTNET = (
    "a .NET driver; write it for ODBC (Server=host;Database=name, and UID=name or Trusted_Connection=yes), "
    "or as mssql://user@host:port/database"
)
#: How others write what leads to a database: whose form it is, and what to write instead.
_ELSEWHERE = {
    r"\s*jdbc:": "JDBC; write postgresql://user@host:port/database or mssql://user@host:port/database",
    r"(?:.*;)?\s*(?:data source|initial catalog)\s*=": _FROM_DOTNET,
    r"(?:.*;)?\s*host\s*=": "Npgsql or libpq; write postgresql://user@host:port/database",
}


def dialect_of(url: str) -> Dialect:
    """The dialect that a URL or connection string belongs to.

    :raises ConfigurationError: the text has none of the known forms. The message does not repeat it: it may
        hold a secret.
    """
    for dialect in DIALECTS.values():
        if dialect.speaks(url):
            return dialect
    for form, told in _ELSEWHERE.items():
        if re.match(form, url, re.IGNORECASE | re.DOTALL):
            raise ConfigurationError(f"The option url has the form of {told}.")
    raise ConfigurationError(
        "The option url is none of postgresql://user@host:port/database, mssql://user@host:port/database and "
        "an ODBC connection string like Server=host;Database=name;Encrypt=yes; correct it."
    )
