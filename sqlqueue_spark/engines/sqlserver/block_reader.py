"""Reads SQL Server's small rows a block at a time, into columns of a bounded width, over arrow-odbc.

pyodbc fetches each value by itself, because a ``(max)`` column may hold anything. Small rows fit into columns
of a known width, into which the driver writes hundreds of rows at once.
"""

import contextlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any

import arrow_odbc
import pyarrow as pa

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES, Reader, Target, under
from sqlqueue_spark.engines.driver_errors import Doing, DriverError
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.sqlserver.login_and_tls import CONNECT_SECONDS, Login, explain, session
from sqlqueue_spark.engines.sqlserver.windows import WINDOW_ROWS, Window, windowed
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

#: How many rows the driver writes at once. Each statement makes room for them in their whole width, and
#: making room for many costs as much as reading them. A second block, fetched while the first one is
#: converted, gained nothing (docs/decisions/json-to-sql-server.md).
_BLOCK_ROWS = 100
_BOUND: dict[str, Any] = {
    "fetch_concurrently": False,
    "max_text_size": SQLSERVER.small_row,
    "max_binary_size": SQLSERVER.small_row,
    "payload_text_encoding": arrow_odbc.TextEncoding.UTF16,
}
# "ODBC emitted an error calling 'SQLFetch':\nState: 08S01, Native error: 10054, Message: [Microsoft][…]TCP
# Provider: …"
_SAID = re.compile(r"State: (\w+), Native error: (-?\d+), Message: (.*)", re.DOTALL)


class _DoesNotFit(Exception):
    """A block holds a value that its column cannot take, like one that is too long."""


class ColumnReader(Reader):
    """Reads small rows in blocks over one connection, and all others row by row over another connection.

    Each connection is opened when it is first needed.

    :param login: a login that does not expire: the connection for blocks may be opened late.
    :param open_rows: makes the reader that takes any value.
    """

    def __init__(self, target: Target, login: Login, open_rows: Callable[[Target], Reader]) -> None:
        self._target = target
        self._login = login
        self._open_rows = open_rows
        self._blocks: arrow_odbc.Connection | None = None
        self._rows: Reader | None = None

    def batches(
        self, statement: Statement, between: tuple[int, int], schema: pa.Schema, *, small: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        first, last = between
        if small and str(statement).isascii():  # see Login.by_columns; a table's name may be anything
            try:
                for batch in windowed(partial(self._window, statement, schema), between):
                    yield batch
                    first = batch["RowVersion"][-1].as_py() + 1
                return
            except _DoesNotFit as error:  # a row was changed since
                log.info("row_by_row first=%d last=%d: %s", first, last, error)
        with contextlib.closing(self._one_by_one().batches(statement, (first, last), schema)) as batches:
            yield from batches

    def take(
        self, statement: Statement, parameters: Mapping[str, int], schema: pa.Schema
    ) -> list[pa.RecordBatch]:
        return self._one_by_one().take(statement, parameters, schema)

    def close(self) -> None:
        self._blocks = None  # the connection ends with the object
        if self._rows is not None:
            self._rows.close()

    def _one_by_one(self) -> Reader:
        if self._rows is None:
            self._rows = self._open_rows(self._target)
        return self._rows

    def _in_blocks(self) -> arrow_odbc.Connection:
        if self._blocks is None:
            with self._translated("connecting", connecting=True):
                made = arrow_odbc.connect(str(self._login.text), login_timeout_sec=CONNECT_SECONDS)
                made.execute(session(self._target))
            self._blocks = made
        return self._blocks

    def _window(self, statement: Statement, schema: pa.Schema, first: int, last: int) -> Window:
        connection = self._in_blocks()
        # Twenty digits for every number: a bound text's type has its length, and each type its own plan.
        text, values = statement.bound("qmark", {"first": f"{first:020}", "last": f"{last:020}"})
        bound = {**_BOUND, "batch_size": min(_BLOCK_ROWS, last - first + 1)}
        held: list[pa.RecordBatch] = []
        size, more = 0, False
        with self._translated(Doing("reading", statement.queue)):
            blocks = connection.read_arrow_batches(text, parameters=list(values), **bound)
            for block in blocks:
                held.append(under(schema, block))
                size += held[-1].nbytes
                if size >= RECORD_BATCH_BYTES:
                    more = True  # the statement ends with the object
                    break
            else:
                while blocks.more_results(**bound):  # an error can arrive after the first result set
                    pass
        return Window(held, more or sum(each.num_rows for each in held) >= WINDOW_ROWS)

    @contextlib.contextmanager
    def _translated(self, doing: str, *, connecting: bool = False) -> Iterator[None]:
        """Translate the driver's error. Any other error is about a value, except while we connect."""
        try:
            yield
        except arrow_odbc.Error as error:
            said = _SAID.search(str(error))
            if said is None and not connecting:
                raise _DoesNotFit(str(error)) from error
            told = (said[1], int(said[2]), said[3]) if said else (None, None, str(error))
            explain(error, DriverError(*told), self._target, doing, connecting=connecting)
