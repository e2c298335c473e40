"""A connection that reads Arrow: the driver's own level of ADBC.

Its DB-API does the same, but imports pandas for it: a quarter of a second for each worker of Spark.
https://arrow.apache.org/adbc/current/python/api/adbc_driver_manager.html#low-level-api
"""

import contextlib
from collections.abc import Iterator

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement, Error
from adbc_driver_postgresql import StatementOptions
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sqlqueue_spark.messages.arrow import pa

#: For the driver's own look at the types of the server. It names an operator without a schema, and does not
#: find the types by quoted names.
_NAMES = "-c search_path=pg_catalog,pg_temp -c quote_all_identifiers=off"


class ArrowConnection:
    """In autocommit, until it is switched off. The errors are ADBC's."""

    def __init__(self, conninfo: str) -> None:
        """:param conninfo: libpq's connection string."""
        self._reading: list[contextlib.ExitStack] = []
        self._database = _database(conninfo)
        try:
            self._connection = AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise

    @contextlib.contextmanager
    def read(self, text: str, batch_bytes: int) -> "Iterator[pa.RecordBatchReader]":
        """Run a statement, and read what it returns within the block.

        :param batch_bytes: about how large a record batch is.
        """
        # The public way to this reader is the DB-API. Arrow's own does not tell the error of a stream that
        # breaks off. It imports Arrow, for which a command that reads nothing need not wait.
        from adbc_driver_manager._reader import AdbcRecordBatchReader

        with contextlib.ExitStack() as reading:
            statement = reading.enter_context(AdbcStatement(self._connection))
            statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(batch_bytes)})
            statement.set_sql_query(text)
            stream, _ = statement.execute_query()
            read_from = AdbcRecordBatchReader._import_from_c  # noqa: SLF001 -- as the DB-API does it
            rows = read_from(stream.address)
            reading.callback(rows.close)  # before the statement
            self._reading.append(reading)
            reading.callback(self._reading.remove, reading)
            yield rows

    def set_autocommit(self, on: bool) -> None:
        """To switch it on commits what is open."""
        self._connection.set_autocommit(on)

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        """Close it and each result that is not read to its end. Nothing of these may be read any more."""
        while self._reading:
            self._reading[-1].close()
        self._connection.close()
        self._database.close()


def _database(conninfo: str) -> AdbcDatabase:
    """Where connections of the driver lead to; it has looked at the types by a connection of its own."""
    given = conninfo_to_dict(conninfo).get("options", "")
    safe = make_conninfo(conninfo, options=f"{given} {_NAMES}".lstrip())
    database: AdbcDatabase
    try:
        database = adbc_driver_postgresql.connect(safe)
        database.set_options(uri=conninfo)
    except Error as error:
        if "unsupported startup parameter" not in str(error):  # PgBouncer's words; see docs/limits.md
            raise
        database = adbc_driver_postgresql.connect(conninfo)
    return database
