"""What reading a slice in windows costs a row on SQL Server, against one statement for the whole slice:
`--url mssql://…`.

A statement may keep the locks of its rows until it ends, so the package reads at most 2,400 rows or 8 MB a
statement (docs/sqlserver-locking.md). Here the same rows of the same table are read both ways in turn, each
over a connection of its own. What is compared is each round with itself; the output is the table of
benchmarks/where-the-time-goes.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyodbc
from machine import add_url, database, run_by
from servers import QUEUE

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES, RECORD_BATCH_ROWS
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Reader, Target, connect
from sqlqueue_spark.engines.sqlserver import connection
from sqlqueue_spark.engines.sqlserver.connection import RowReader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues

_TOP = re.compile(r"^SELECT TOP \(\d+\) ")


class Whole(RowReader):
    """Reads a range by one statement, and yields it while it is fetched."""

    def batches(
        self, statement: Statement, rows: RowSet, schema: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        self._connection.streaming(True)
        fetched: list[pyodbc.Row] = []
        held = 0
        headers, body = (schema.get_field_index(name) for name in ("Headers", "Body"))
        bound = {"first": rows.first, "last": rows.last}
        with self._connection.running(whole(statement), bound, "reading") as cursor:
            for row in cursor:
                fetched.append(row)
                held += len(row[headers] or "") + len(row[body] or b"")
                if len(fetched) == RECORD_BATCH_ROWS or held >= RECORD_BATCH_BYTES:
                    yield connection._batch(schema.names, fetched, schema)
                    fetched, held = [], 0
            while cursor.nextset():
                pass
        if fetched:
            yield connection._batch(schema.names, fetched, schema)


class Took(NamedTuple):
    """Microseconds a row: by the clock, and of this process's processor."""

    clock: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--rows", type=int, default=20_000, help="of a slice; a batch is cut into no smaller ones"
    )
    add_url(parser)
    chosen = parser.parse_args()
    if not chosen.url or not SQLSERVER.speaks(chosen.url):
        parser.error(
            "only SQL Server is read in windows; name one with --url mssql://… or in SQLQUEUE_BENCH_URL"
        )
    print(run_by())
    with database(chosen.url) as server:
        print(f"\nSlices of {chosen.rows:,} rows, {chosen.rounds} rounds\n")
        print(
            "| | one statement, µs a row | windows | windows ÷ one, "
            "median | quickest ÷ quickest | client's processor |"
        )
        print("|---|---|---|---|---|---|")
        server.fill(chosen.rows)
        options = SourceOptions.parse({"url": server.url, "queue": QUEUE})
        target = Target.of(options)
        with connect(target) as found, found.transaction():
            table = queues.get(found, QUEUE, options.naming(target.dialect)).table
        for statement_name in ("read", "read_versions"):
            statement = queues.read_statement(
                target.dialect, replace(table, row_versions=False), statement_name
            )
            with closing(RowReader(target)) as windows, closing(Whole(target)) as one:
                rounds = range(chosen.rounds + 1)
                pairs = [pair(statement, windows, one, chosen.rows, number) for number in rounds]
            print(told(f"`{statement_name}`", pairs), flush=True)


def whole(statement: Statement) -> Statement:
    """The statement without its limit."""
    text, *rest = statement.parts
    text, limits = _TOP.subn("SELECT ", text)
    assert limits == 1, statement
    return replace(statement, parts=(text, *rest))


def pair(statement: Statement, windows: Reader, one: Reader, rows: int, number: int) -> tuple[Took, Took]:
    """The slice read both ways; which of them comes first changes from round to round."""
    if number % 2:
        return took(statement, windows, rows), took(statement, one, rows)
    second, first = took(statement, one, rows), took(statement, windows, rows)
    return first, second


def took(statement: Statement, reader: Reader, rows: int) -> Took:
    clock, processor = time.perf_counter(), time.process_time()
    read = sum(each.num_rows for each in reader.batches(statement, RowSet([(1, rows)]), SCHEMA))
    assert read == rows, f"{read} rows of {rows}"
    return Took((time.perf_counter() - clock) / rows * 1e6, (time.process_time() - processor) / rows * 1e6)


def told(name: str, pairs: list[tuple[Took, Took]]) -> str:
    """A line of the table; the first pair warmed up.

    What else the machine does makes no round quicker than it can be.
    """
    windows, one = zip(*pairs[1:], strict=True)
    quickest = [min(each.clock for each in way) for way in (one, windows)]
    ratios = [w.clock / o.clock for w, o in zip(windows, one, strict=True)]
    processor = [min(each.processor for each in way) for way in (one, windows)]
    cells = [
        *(f"{each:.1f}" for each in quickest),
        f"{statistics.median(ratios):.2f}",
        f"{quickest[1] / quickest[0]:.2f}",
        f"{processor[1] / processor[0]:.2f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
