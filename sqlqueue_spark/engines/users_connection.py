"""A connection that the user has opened, for statements inside the user's transaction.

Its driver is recognised, and the driver's errors pass through. We never commit, roll back or close it.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Statement
from sqlqueue_spark.errors import ConfigurationError

#: The engine that a driver's package leads to.
_ENGINES = {
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pyodbc": "sqlserver",
    "mssql_python": "sqlserver",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mariadb": "mysql",
    "mysql": "mysql",  # mysql.connector
    "oracledb": "oracle",
}
#: How the usual driver of an engine writes a placeholder, for a driver that does not say how it does.
_PARAMSTYLES = {"postgresql": "pyformat", "sqlserver": "qmark", "mysql": "format", "oracle": "named"}


class UsersConnection:
    """What the outbox needs of a connection, over any driver of PEP 249."""

    def __init__(self, raw: Any, engine: str | None = None) -> None:
        """:raises ConfigurationError: the driver is not known, or the connection is in autocommit mode."""
        package = type(raw).__module__.partition(".")[0]
        if (name := engine or _ENGINES.get(package)) is None:
            raise ConfigurationError(
                f"A connection of the package {package!r} does not tell what database it leads to; say it "
                f"with engine=, one of {', '.join(OUTBOX_DATABASES)}."
            )
        ask = getattr(raw, "get_autocommit", None)  # a method of PyMySQL and MySQLdb, else an attribute
        by_itself = ask() if callable(ask) else getattr(raw, "autocommit", False) is True
        if by_itself:
            raise ConfigurationError(
                "The connection is in autocommit mode, so that ids and rows would not be committed together "
                "and exactly once would be lost; turn autocommit off, and commit when the rows are written."
            )
        self.dialect: Database = OUTBOX_DATABASES[name]
        self._raw = raw
        self._package = package
        self._driver = _driver(package)
        self._paramstyle: str = getattr(self._driver, "paramstyle", _PARAMSTYLES[name])

    def execute(
        self, statement: Statement, parameters: Parameters = NOTHING, **_: str
    ) -> list[tuple[Any, ...]]:
        """Run a statement and return the rows of its last result; the driver's own errors pass through.

        On SQL Server this drains every result, because an error may hide behind the first one.
        """
        with self._run(statement, parameters) as cursor:
            rows: list[tuple[Any, ...]] = []
            while True:
                if cursor.description is not None:
                    found = cursor.fetchall()
                    rows = [tuple(each.values() if isinstance(each, Mapping) else each) for each in found]
                if self.dialect.name != "sqlserver" or not cursor.nextset():
                    return rows

    def modify(self, statement: Statement, parameters: Parameters = NOTHING, **_: str) -> int:
        """Run a statement and return how many rows it changed."""
        with self._run(statement, parameters) as cursor:
            return int(cursor.rowcount)

    @contextlib.contextmanager
    def _run(self, statement: Statement, parameters: Parameters) -> Iterator[Any]:
        text, values = statement.bound(self._paramstyle, parameters)
        # The user may have chosen another kind of rows; a scalar row would be taken for a tuple.
        rows = {"row_factory": sys.modules["psycopg.rows"].tuple_row} if self._package == "psycopg" else {}
        with contextlib.closing(self._raw.cursor(**rows)) as cursor:
            if isinstance(values, Mapping):
                # Oracle: a parameter that is bound as plain text ends at 4,000 bytes.
                if clobs := {name: clob for name, each in values.items() if (clob := self._clob(each))}:
                    cursor.setinputsizes(**clobs)
            elif any(sizes := [self._nvarchar(each) for each in values]):
                cursor.setinputsizes(sizes)
            cursor.execute(text, values)
            yield cursor

    def _nvarchar(self, parameter: object) -> tuple[int, int, int] | None:
        """The type to bind a long text as; None where the driver may choose.

        pyodbc sends a long text as ntext, which some collations refuse (``sqlserver/connection.py``).
        """
        if self._package != "pyodbc" or not isinstance(parameter, str) or len(parameter) <= 2_000:
            return None
        pyodbc: Any = self._driver
        freetds = "tdsodbc" in self._raw.getinfo(pyodbc.SQL_DRIVER_NAME)
        return None if freetds else (pyodbc.SQL_WVARCHAR, 0, 0)

    def _clob(self, parameter: object) -> object:
        long = isinstance(parameter, str) and len(parameter) > 1_000
        return getattr(self._driver, "DB_TYPE_CLOB", None) if long else None


def _driver(package: str) -> ModuleType | None:
    """The imported module of a driver that holds its ``paramstyle``; None where there is none."""
    modules = map(sys.modules.get, (package, f"{package}.connector"))
    return next((each for each in modules if hasattr(each, "paramstyle")), None)
