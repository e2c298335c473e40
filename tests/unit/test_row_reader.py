"""How SQL Server's rows are read: in windows, whatever they hold and whatever goes wrong.

The real pyodbc reads them, by way of the real reader, from an ODBC driver that answers out of a file
(tests/support/recording_odbc).
"""

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sqlqueue_spark.engines.open_connection import Target, open_reader
from sqlqueue_spark.engines.sqlserver import connection
from sqlqueue_spark.engines.sqlserver.login_and_tls import session
from sqlqueue_spark.engines.sqlserver.windows import WINDOW_ROWS
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from tests.support.recording import Answer, Recorder, Refused

STATEMENT = "SELECT all of it WHERE RowVersion BETWEEN ? AND ?"
_RANGE = "RowVersion BETWEEN :first AND :last"
READ = replace(Statement.parse(f"SELECT all of it WHERE {_RANGE}"), queue="orders")
TYPES = "wwwbtwxi"
ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.fixture
def opened(library, tmp_path):
    """Opens a reader that is answered with these rows by each statement in turn;
    and what it is recorded by.
    """
    readers = []

    def open_one(*answers):
        recorder = Recorder(
            library, tmp_path, [Answer("SELECT", TYPES, rows, names=SCHEMA.names) for rows in answers]
        )
        readers.append(open_reader(Target(url=recorder.url)))
        return readers[-1], recorder

    yield open_one
    for reader in readers:
        reader.close()


def message(row_version, *, headers="{}", body="body"):
    return [ID, None, None, 1, None, headers, body, row_version]


def messages(first, last):
    return [message(row_version) for row_version in range(first, last + 1)]


def read(reader, first, last, *, statement=READ):
    """The rows of a range, as tuples."""
    batches = list(reader.batches(statement, RowSet([(first, last)]), SCHEMA))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def statements(recorder):
    """What was bound by each statement that reads, with its type."""
    return [
        tuple((each.sql_type, each.value) for each in execution.bound)
        for execution in recorder.executions()
        if execution.text == STATEMENT
    ]


def bound(*ends):
    return tuple(("bigint", end) for end in ends)


def test_rows_come_as_they_are(opened):
    rows = [
        [
            ID,
            "correlation",
            "Sales@dbo",
            1,
            "2026-01-02T03:04:05.678",
            '{"a":"주문 \N{GRINNING FACE}"}',
            "body",
            1,
        ],
        [ID, None, None, None, None, "{}", None, 2],
        [ID, "", "", 0, "9999-12-31T23:59:59.997", "", "", HIGHEST],
    ]
    reader, recorder = opened(rows)
    assert read(reader, 1, HIGHEST) == [
        (
            ID,
            "correlation",
            "Sales@dbo",
            True,
            datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
            '{"a":"주문 \N{GRINNING FACE}"}',
            b"body",
            1,
        ),
        (ID, None, None, None, None, "{}", None, 2),
        (ID, "", "", False, datetime(9999, 12, 31, 23, 59, 59, 997_000, UTC), "", b"", HIGHEST),
    ]
    assert statements(recorder) == [bound(1, HIGHEST)]


def in_windows(first, last):
    """Messages as statements answer that read at most 2,400 rows each."""
    return [
        messages(start, min(start + WINDOW_ROWS - 1, last)) for start in range(first, last + 1, WINDOW_ROWS)
    ]


def test_a_statement_reads_few_rows(opened):
    """It has ended before any row of it is given away; what several have read becomes a batch of the usual
    size.
    """
    reader, recorder = opened(*in_windows(1, 10_300))
    batches = reader.batches(READ, RowSet([(1, 20_000)]), SCHEMA)
    first = next(batches)
    assert statements(recorder) == [bound(start, 20_000) for start in (1, 2_401, 4_801, 7_201)]
    (second,) = batches
    assert statements(recorder)[4:] == [bound(9_601, 20_000)]
    assert [(batch.num_rows, batch.schema) for batch in (first, second)] == [(9_600, SCHEMA), (700, SCHEMA)]
    assert pa.Table.from_batches([first, second])["RowVersion"].to_pylist() == [*range(1, 10_301)]


def test_the_server_is_sent_the_text_of_a_slice_once(opened):
    """It has it prepared for the windows that follow."""
    reader, recorder = opened(*in_windows(1, 10_300))
    assert len(read(reader, 1, 20_000)) == 10_300
    assert (len(statements(recorder)), recorder.preparations()) == (5, [STATEMENT])


@pytest.mark.parametrize("last,ranges", [(2_400, [(1, 2_400)]), (2_401, [(1, 2_401), (2_401, 2_401)])])
def test_a_full_statement_is_followed_by_another(last, ranges, opened):
    """But for the end of the range."""
    reader, recorder = opened(messages(1, 2_400), [])
    assert len(read(reader, 1, last)) == 2_400
    assert statements(recorder) == [bound(*between) for between in ranges]


@pytest.mark.parametrize("column", ["headers", "body"])
def test_a_statement_reads_8_megabytes_at_most(column, opened):
    """It ends with the row that makes them full, and with its preparation: what it has not sent would keep
    its locks.
    """
    large = [message(number, **{column: "x" * 8_000}) for number in range(1, 1_301)]
    reader, recorder = opened(large, large[1_049:])
    assert [row[-1] for row in read(reader, 1, 1_300)] == [*range(1, 1_301)]
    assert statements(recorder) == [bound(1, 1_300), bound(1_050, 1_300)]
    assert recorder.preparations() == [STATEMENT] * 2


def test_the_ends_of_a_range_are_of_one_type(opened):
    """A type that varied with the value would be another entry in the server's cache of plans,
    and another plan.
    """
    reader, recorder = opened([])
    ranges = [(1, 5), (0, HIGHEST), (LOWEST, -1)]
    for between in ranges:
        read(reader, *between)
    assert statements(recorder) == [bound(*between) for between in ranges]


def test_a_table_with_any_name_is_read(opened):
    reader, recorder = opened(messages(1, 3))
    statement = Statement.parse(f"SELECT all of it FROM [Aufträge_주문] WHERE {_RANGE}")
    assert [row[-1] for row in read(reader, 1, 3, statement=statement)] == [1, 2, 3]
    assert [each.text for each in recorder.executions()] == [
        session(Target(url=recorder.url)),
        "SELECT all of it FROM [Aufträge_주문] WHERE RowVersion BETWEEN ? AND ?",
    ]


def test_a_connection_lost_in_the_middle_is_told(opened):
    """Behind the rows of the windows before."""
    text = "[Microsoft][ODBC Driver 18 for SQL Server]TCP Provider: Error code 0x2746"
    reader, recorder = opened(messages(1, 2_400), [*messages(2_401, 2_650), Refused("08S01", 10054, text)])
    batches = reader.batches(READ, RowSet([(1, 6_000)]), SCHEMA)
    assert next(batches)["RowVersion"].to_pylist() == [*range(1, 2_401)]
    with pytest.raises(ConnectionLost) as caught:
        next(batches)
    assert str(caught.value) == (
        "The connection to nowhere/shop was lost while reading orders (TCP Provider: Error code 0x2746 "
        "(10054) (SQLFetch))."
    )
    assert statements(recorder) == [bound(1, 6_000), bound(2_401, 6_000)]


def test_a_refused_connection_shows_no_secret(library):
    target = Target(url=f"Driver={library};Server=nowhere;Database=shop", user="me", password="hunter2")
    with pytest.raises(SqlQueueError) as caught:
        open_reader(target)
    assert str(caught.value) == (
        "The database at nowhere/shop refused while connecting: refused (0) (SQLDriverConnect)."
    )
    assert "hunter2" not in repr(caught.value.__cause__)


def test_a_reader_has_one_connection(opened):
    """It is set up when it is made, and ends with the reader."""
    reader, recorder = opened(messages(1, 3))
    expected = [session(Target(url=recorder.url))]
    assert [each.text for each in recorder.executions()] == expected
    read(reader, 1, 3)
    reader.take(READ, RowSet([(1, 3)]), SCHEMA)
    assert [each.text for each in recorder.executions()] == [*expected, STATEMENT, STATEMENT]
    assert recorder.disconnections() == 0
    reader.close()
    assert recorder.disconnections() == 1


def test_taken_rows_are_committed(opened):
    reader, recorder = opened(messages(1, 3))
    taken = reader.take(READ, RowSet([(1, 3)]), SCHEMA)
    assert pa.Table.from_batches(taken)["RowVersion"].to_pylist() == [1, 2, 3]
    assert statements(recorder) == [bound(1, 3)]
    assert recorder.endings()[-1] == "commit"


def test_half_of_a_character_keeps_no_row_back(opened, monkeypatch):
    """The server takes any text as nvarchar. A connection that cannot read it is given up, as one that was
    lost, and by the next one it comes with a sign in its place.
    """
    monkeypatch.setattr(connection, "_met_halves", threading.Event())
    rows = [message(1, headers='{"a":"x\ud83d"}'), message(2, headers='{"a":"\N{GRINNING FACE}\ude00"}')]
    with pytest.raises(ConnectionLost):
        read(opened(rows)[0], 1, 2)
    found = [row[5] for row in read(opened(rows)[0], 1, 2)]
    assert found == ['{"a":"x\ufffd"}', '{"a":"\N{GRINNING FACE}\ufffd"}']


def test_a_time_of_seven_decimals_has_six_in_spark(opened):
    """The column Expires may be a datetime2."""
    row = message(1)
    row[4] = "2009-02-13T23:31:30.1234567"
    reader, _ = opened([row])
    assert [each[4] for each in read(reader, 1, 1)] == [datetime(2009, 2, 13, 23, 31, 30, 123_456, UTC)]
