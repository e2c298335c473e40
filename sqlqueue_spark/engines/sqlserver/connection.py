"""SQL Server over pyodbc."""

import contextlib
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyodbc

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES, Connection, Reader, Target
from sqlqueue_spark.engines.dialect import Load
from sqlqueue_spark.engines.driver_errors import Doing, DriverError
from sqlqueue_spark.engines.drivers import check_opens
from sqlqueue_spark.engines.sqlserver.login_and_tls import CONNECT_SECONDS, Login, explain, session
from sqlqueue_spark.engines.sqlserver.windows import WINDOW_ROWS, Window, windowed
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Sql, Statement
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.row_set import RowSet

#: Without pooling, closing a connection ends its session and frees what the session holds. By default pyodbc
#: lets the driver manager keep the connection.
pyodbc.pooling = False
#: Any text of this many characters fits into nvarchar(4000), in which some characters count as two.
_SHORT_TEXT = 2_000
Type = tuple[int, int, int]
_BIGINT: Type = (pyodbc.SQL_BIGINT, 0, 0)
_NVARCHAR: Type = (pyodbc.SQL_WVARCHAR, 4_000, 0)
_NVARCHAR_MAX: Type = (pyodbc.SQL_WVARCHAR, 0, 0)
#: None lets pyodbc declare a long text as ntext. A database with a collation for supplementary characters or
#: UTF-8 refuses ntext (https://github.com/mkleehammer/pyodbc/issues/835). FreeTDS gets it all the same,
#: because it takes no size of 0.
_NTEXT = None
#: The server keeps half of an astral character, for which pyodbc raises an error. When a process has met one,
#: its next connections replace it.
_met_halves = threading.Event()
_LOGIN_FAILED = 18456
#: https://learn.microsoft.com/sql/t-sql/functions/rowcount-transact-sql
_COUNT = ";\nSELECT @@ROWCOUNT"
#: What a driver manager says of a driver that it cannot find, or not open.
_NO_DRIVER = ("IM002", "IM003", "01000")


class SqlServerConnection(Connection):
    """A pyodbc connection, in autocommit only for a reader."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        installed = pyodbc.drivers()
        login = Login.of(target, installed)
        self._long_text = _NTEXT if login.driver is not None and login.driver.is_freetds else _NVARCHAR_MAX
        self._raw = _connect(login, installed)
        for wide in (pyodbc.SQL_WVARCHAR, pyodbc.SQL_WLONGVARCHAR) if _met_halves.is_set() else ():
            self._raw.add_output_converter(wide, _whole)
        self.streaming(False)
        try:
            self.execute(session(target))
            self.commit()
        except BaseException:
            self.close()
            raise

    def modify(self, statement: Statement, parameters: Parameters = NOTHING, *, doing: str = "") -> int:
        """Run a statement and return how many rows the statement itself changed, as the server counts them.

        The counts that come with the results are no measure: each statement of a trigger adds one of its own,
        and SET NOCOUNT leaves them out.
        """
        return int(self.execute(_counted(statement), parameters, doing=doing)[-1][0])

    def load(self, statement: Statement, rows: Load, *, doing: str = "") -> int:
        assert isinstance(rows, Mapping), "what SqlServer.bind_messages and bind_staged return"
        return self.modify(statement, rows, doing=doing)

    def streaming(self, wanted: bool) -> None:
        """Begin or end streaming; no transaction may be open.

        While a connection streams, each statement is a transaction of its own and has no timeout: it runs as
        long as Spark works on its rows.
        """
        self._raw.timeout = 0 if wanted else self.target.command_seconds
        if self._raw.autocommit != wanted:  # changing it costs a round trip
            with self.translated("changing where transactions end"):
                self._raw.autocommit = wanted

    @contextlib.contextmanager
    def cut_off(self, seconds: int) -> Iterator[None]:
        before, self._raw.timeout = self._raw.timeout, seconds
        try:
            yield
        finally:
            self._raw.timeout = before

    @contextlib.contextmanager
    def running(self, statement: Sql, parameters: Parameters, doing: str) -> Iterator[pyodbc.Cursor]:
        with contextlib.closing(Repeated(self, statement, doing)) as once, once.running(parameters) as cursor:
            yield cursor

    def translated(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return _translated(self.target, doing)

    def type_of(self, value: object) -> Type | None:
        """The type to declare a parameter as: one for all numbers, two for texts; None lets pyodbc choose.

        pyodbc would declare int or bigint depending on the number, and nvarchar with the text's own length.
        The server would make another plan for each combination
        (https://github.com/mkleehammer/pyodbc/issues/213).
        """
        if isinstance(value, int):
            return _BIGINT
        if isinstance(value, str):
            return _NVARCHAR if len(value) <= _SHORT_TEXT else self._long_text
        return None

    def cursor(self) -> pyodbc.Cursor:
        """A cursor, for the caller to close; pyodbc's own ``with`` would commit."""
        return self._raw.cursor()


class Repeated:
    """A statement that may run again and again over one connection: the server is sent its text once."""

    def __init__(self, connection: SqlServerConnection, statement: Sql, doing: str) -> None:
        self._connection = connection
        self._statement = statement if isinstance(statement, Statement) else Statement((statement,))
        self._doing = doing
        self._text = ""
        self._cursor: pyodbc.Cursor | None = None

    @contextlib.contextmanager
    def running(self, parameters: Parameters) -> Iterator[pyodbc.Cursor]:
        """Run it. What comes is to be fetched whole within the block, or given up by :meth:`close`."""
        text, values = self._statement.bound("qmark", parameters)
        self._text = self._text or text  # the very same object, by which pyodbc knows that it has prepared it
        with self._connection.translated(self._doing):
            if self._cursor is None:
                self._cursor = self._connection.cursor()
            self._cursor.setinputsizes([self._connection.type_of(each) for each in values])
            try:
                self._cursor.execute(self._text, *values)
                yield self._cursor
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the statement, whatever of it has not been fetched; it may run again."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with contextlib.suppress(pyodbc.Error):
                cursor.close()


def _whole(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-16-le", "replace")


def _counted(statement: Statement) -> Statement:
    """The statement, and behind it the question how many rows it changed.

    @@ROWCOUNT speaks of the last statement of its own scope; a trigger has another one. Entity Framework asks
    in the same way where a table has triggers:
    https://learn.microsoft.com/ef/core/what-is-new/ef-core-7.0/breaking-changes#sqlserver-tables-with-triggers
    """
    *before, last = statement.parts
    return replace(statement, parts=(*before, f"{last}{_COUNT}"))


class RowReader(Reader):
    """Reads rows over pyodbc and gathers them into Arrow. pyodbc fetches each value by itself."""

    def __init__(self, target: Target) -> None:
        self._connection = SqlServerConnection(target)

    def batches(
        self, statement: Statement, rows: RowSet, schema: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        self._connection.streaming(True)  # so no commit can fail after the last row
        doing = Doing("reading", statement.queue)
        with contextlib.closing(Repeated(self._connection, statement, doing)) as read:
            yield from windowed(partial(self._window, read, schema), (rows.first, rows.last))

    def take(self, statement: Statement, rows: RowSet, schema: pa.Schema) -> list[pa.RecordBatch]:
        self._connection.streaming(False)
        bound = {"first": rows.first, "last": rows.last, "count": len(rows)}
        with self._connection.running(statement, bound, Doing("reading", statement.queue)) as cursor:
            names, taken = _names(cursor), cursor.fetchall()
            _finish(cursor)
        self._connection.commit()
        return [_batch(names, taken, schema)] if taken else []

    def close(self) -> None:
        self._connection.close()

    def _window(self, read: Repeated, schema: pa.Schema, first: int, last: int) -> Window:
        rows: list[pyodbc.Row] = []
        held = 0
        with read.running({"first": first, "last": last}) as cursor:
            names = _names(cursor)
            headers, body = map(names.index, ("Headers", "Body"))
            for row in cursor:
                rows.append(row)
                held += len(row[headers] or "") + len(row[body] or b"")
                if held >= RECORD_BATCH_BYTES:
                    read.close()  # which ends the statement
                    return Window(_batch(names, rows, schema), True)
            _finish(cursor)
        return Window(_batch(names, rows, schema), len(rows) >= WINDOW_ROWS)


connect = SqlServerConnection
open_reader = RowReader


def _names(cursor: pyodbc.Cursor) -> list[str]:
    return [column[0] for column in cursor.description]


def _batch(names: Sequence[str], rows: Sequence[pyodbc.Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    arrays = [pa.array(columns.get(field.name, ()), type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _finish(cursor: pyodbc.Cursor) -> None:
    """Go on to the end of the answer: an error can arrive after the last row."""
    while cursor.nextset():
        pass


def _connect(login: Login, installed: Sequence[str]) -> pyodbc.Connection:
    with _translated(login.target, "connecting", connecting=True):
        try:
            return pyodbc.connect(
                str(login.text),
                autocommit=False,
                timeout=login.target.connect_seconds(CONNECT_SECONDS),
                attrs_before=login.attributes,
            )
        except pyodbc.Error as error:
            if login.driver is not None and error.args[0] in _NO_DRIVER:
                check_opens(login.driver, installed)
            raise


@contextlib.contextmanager
def _translated(target: Target, doing: str, *, connecting: bool = False) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:  # half of a character
        explain(error, DriverError(None, None, str(error)), target, doing, connecting=connecting)
    except UnicodeDecodeError as error:
        _met_halves.set()
        raise ConnectionLost(f"A text has half of a character ({doing}); it is read again.") from error
    except pyodbc.Error as error:
        sqlstate, text = error.args if len(error.args) == 2 else (None, str(error))
        # "[42S02] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Invalid object name 'x'. (208)
        # (SQLExecDirectW)". Of several errors, "; " follows the number of the first, and then come the
        # brackets, text and number of the next.
        numbers = [int(each) for each in re.findall(r"\((\d{1,9})\)(?=\s*\(SQL\w+\)|; \[|$)", text)]
        # The driver says first that the login failed, then why: the database is not there, or not ready.
        telling = [each for each in numbers if each != _LOGIN_FAILED] or numbers
        said = DriverError(sqlstate, telling[0] if telling else None, text)
        explain(error, said, target, doing, connecting=connecting)
