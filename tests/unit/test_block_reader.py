"""SQL Server's small rows in blocks: the same rows as one by one, whatever they hold and whatever goes wrong.

The real arrow-odbc and pyodbc read them, by way of the real reader, from an ODBC driver that answers out of a
file (tests/support/recording_odbc) and is taken for Microsoft's by its name.
"""

import importlib.util
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sqlqueue_spark.engines.connection import under
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Target, open_reader
from sqlqueue_spark.engines.sqlserver import connection
from sqlqueue_spark.engines.sqlserver.login_and_tls import session
from sqlqueue_spark.engines.sqlserver.windows import WINDOW_ROWS
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from tests.support import recording
from tests.support.recording import Answer, Recorder, Refused

STATEMENT = "SELECT all of it WHERE RowVersion BETWEEN ? AND ?"
_RANGE = "RowVersion BETWEEN :first AND :last"
READ = replace(Statement.parse(f"SELECT all of it WHERE {_RANGE}"), queue="orders")
TYPES = "wwwbtwxi"
ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
BLOCK = 100
FITS, TOO_LONG = "x" * 8_000, "x" * 8_001


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The recording driver by a name of Microsoft's, and by its own."""
    reason = recording.missing()
    if reason is None and importlib.util.find_spec("arrow_odbc") is None:
        reason = "there is no arrow-odbc; install it: pip install arrow-odbc"
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("recording")
    own = recording.compiled(folder)
    microsofts = folder / "libmsodbcsql-18-recording.so"
    microsofts.write_bytes(own.read_bytes())
    return microsofts, own


@pytest.fixture
def opened(libraries, tmp_path):
    """Opens a reader that is answered with these rows by each statement in turn;
    and what it is recorded by.
    """
    readers = []

    def open_one(*answers):
        recorder = Recorder(
            libraries[0],
            tmp_path,
            [Answer("SELECT", TYPES, rows, names=SCHEMA.names) for rows in answers],
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


def read(reader, first, last, *, small=True, statement=READ):
    """The rows of a range, as tuples."""
    batches = list(reader.batches(statement, (first, last), SCHEMA, small=small))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def statements(recorder):
    """What was bound by each statement that reads, with its type."""
    return [
        tuple((each.sql_type, each.value) for each in execution.bound)
        for execution in recorder.executions()
        if execution.text == STATEMENT
    ]


def in_blocks(*ends):
    return tuple(("nvarchar(20)", f"{end:020}") for end in ends)


def one_by_one(*ends):
    return tuple(("bigint", end) for end in ends)


def test_both_ways_of_reading_give_the_same_rows(opened):
    """By columns and one by one."""
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
    expected = [
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
    reader, recorder = opened(rows)
    assert read(reader, 1, 3, small=True) == expected
    assert recorder.blocks() == [3]
    assert read(reader, 1, 3, small=False) == expected
    assert recorder.blocks() == [3]


@pytest.mark.parametrize(
    "count,blocks",
    [
        (0, []),
        (1, [1]),
        (BLOCK - 1, [BLOCK - 1]),
        (BLOCK, [BLOCK]),
        (BLOCK + 1, [BLOCK, 1]),
        (450, [BLOCK] * 4 + [50]),
    ],
)
def test_all_rows_come_however_they_fall_into_blocks(count, blocks, opened):
    reader, recorder = opened(messages(1, count))
    assert [row[-1] for row in read(reader, 1, 1_000)] == list(range(1, count + 1))
    assert recorder.blocks() == blocks


def test_a_block_is_no_larger_than_its_range(opened):
    reader, recorder = opened(messages(7, 12))
    read(reader, 7, 9)
    assert recorder.blocks() == [3, 3]


def in_windows(first, last):
    """Messages as statements answer that read at most 2,400 rows each."""
    return [
        messages(start, min(start + WINDOW_ROWS - 1, last)) for start in range(first, last + 1, WINDOW_ROWS)
    ]


@pytest.mark.parametrize("small,bound", [(True, in_blocks), (False, one_by_one)])
def test_a_statement_reads_few_rows(small, bound, opened):
    """It has ended before anybody gets a row; what several have read becomes a batch of the usual size."""
    reader, recorder = opened(*in_windows(1, 10_300))
    batches = reader.batches(READ, (1, 20_000), SCHEMA, small=small)
    first = next(batches)
    assert statements(recorder) == [bound(start, 20_000) for start in (1, 2_401, 4_801, 7_201)]
    (second,) = batches
    assert statements(recorder)[4:] == [bound(9_601, 20_000)]
    assert [(batch.num_rows, batch.schema) for batch in (first, second)] == [(9_600, SCHEMA), (700, SCHEMA)]
    assert pa.Table.from_batches([first, second])["RowVersion"].to_pylist() == [*range(1, 10_301)]


def test_the_server_is_sent_the_text_of_a_slice_once(opened):
    """It has it prepared for the windows that follow."""
    reader, recorder = opened(*in_windows(1, 10_300))
    assert len(read(reader, 1, 20_000, small=False)) == 10_300
    assert (len(statements(recorder)), recorder.preparations()) == (5, [STATEMENT])


def test_a_statement_that_is_given_up_ends_with_its_preparation(opened):
    """What it has not sent would keep its locks."""
    large = [message(number, headers=FITS) for number in range(1, 1_301)]
    reader, recorder = opened(large, large[1_049:])
    assert len(read(reader, 1, 1_300, small=False)) == 1_300
    assert recorder.preparations() == [STATEMENT] * 2


@pytest.mark.parametrize("small,bound", [(True, in_blocks), (False, one_by_one)])
@pytest.mark.parametrize("last,ranges", [(2_400, [(1, 2_400)]), (2_401, [(1, 2_401), (2_401, 2_401)])])
def test_a_full_statement_is_followed_by_another(small, bound, last, ranges, opened):
    """But for the end of the range."""
    reader, recorder = opened(messages(1, 2_400), [])
    assert len(read(reader, 1, last, small=small)) == 2_400
    assert statements(recorder) == [bound(*between) for between in ranges]


@pytest.mark.parametrize("small,bound,rows", [(True, in_blocks, 1_100), (False, one_by_one, 1_049)])
def test_a_statement_reads_8_megabytes_at_most(small, bound, rows, opened):
    """It ends with the block, or with the row, that makes them full."""
    large = [message(number, headers=FITS) for number in range(1, 1_301)]
    reader, recorder = opened(large, large[rows:])
    assert [row[-1] for row in read(reader, 1, 1_300, small=small)] == [*range(1, 1_301)]
    assert statements(recorder) == [bound(1, 1_300), bound(rows + 1, 1_300)]


def test_the_ends_of_a_range_are_of_one_type(opened):
    """A type that varied with the value would be another entry in the server's cache of plans,
    and another plan.
    """
    reader, recorder = opened([])
    for between in [(1, 5), (0, HIGHEST), (LOWEST, -1)]:
        read(reader, *between)
    assert statements(recorder) == [
        (("nvarchar(20)", "00000000000000000001"), ("nvarchar(20)", "00000000000000000005")),
        (("nvarchar(20)", "00000000000000000000"), ("nvarchar(20)", "09223372036854775807")),
        (("nvarchar(20)", "-9223372036854775808"), ("nvarchar(20)", "-0000000000000000001")),
    ]


@pytest.mark.parametrize("wide", [{"headers": FITS}, {"body": FITS}, {"headers": "ü" * 4_000}])
def test_a_small_row_fits_into_its_columns(wide, opened):
    """However its bytes are shared between headers and body."""
    assert SQLSERVER.small_row == len(FITS)
    reader, recorder = opened([message(1), message(2, **wide), message(3)])
    found = read(reader, 1, 3)
    assert statements(recorder) == [in_blocks(1, 3)]
    assert found == read(reader, 1, 3, small=False)


@pytest.mark.parametrize("column", ["headers", "body"])
def test_a_grown_row_ends_the_reading_in_blocks(column, opened):
    """From its window on, rows are read one by one."""
    rows = messages(1, 3_000)
    rows[2_950] = message(2_951, **{column: TOO_LONG})
    reader, recorder = opened(rows[:2_400], rows[2_400:], rows[2_400:])
    assert read(reader, 1, 3_000) == [
        (*(ID, None, None, True, None), *(row[5], row[6].encode()), row_version)
        for row_version, row in enumerate(rows, 1)
    ]
    assert statements(recorder) == [in_blocks(1, 3_000), in_blocks(2_401, 3_000), one_by_one(2_401, 3_000)]


def test_the_next_range_is_read_in_blocks_again(opened):
    """After one with a row that has grown."""
    grown = [message(1, body=TOO_LONG)]
    reader, recorder = opened(grown, grown, messages(2, 3))
    assert [row[-1] for row in read(reader, 1, 1)] == [1]
    assert [row[-1] for row in read(reader, 2, 3)] == [2, 3]
    assert statements(recorder) == [in_blocks(1, 1), one_by_one(1, 1), in_blocks(2, 3)]


def test_a_non_ascii_table_is_read_one_by_one(opened):
    """As what it is called would not arrive as it is."""
    reader, recorder = opened(messages(1, 3))
    statement = Statement.parse(f"SELECT all of it FROM [Aufträge_주문] WHERE {_RANGE}")
    assert [row[-1] for row in read(reader, 1, 3, statement=statement)] == [1, 2, 3]
    assert [each.text for each in recorder.executions()] == [
        session(Target(url=recorder.url)),
        "SELECT all of it FROM [Aufträge_주문] WHERE RowVersion BETWEEN ? AND ?",
    ]
    assert recorder.blocks() == []


def test_a_connection_lost_in_the_middle_is_told(opened):
    text = "[Microsoft][ODBC Driver 18 for SQL Server]TCP Provider: Error code 0x2746"
    reader, recorder = opened([*messages(1, 250), Refused("08S01", 10054, text)])
    with pytest.raises(ConnectionLost) as caught:
        read(reader, 1, 600)
    assert str(caught.value) == (
        "The connection to nowhere/shop was lost while reading orders (TCP Provider: Error code 0x2746)."
    )
    assert statements(recorder) == [in_blocks(1, 600)]


def test_a_refused_connection_shows_no_secret(libraries, tmp_path):
    target = Target(url=f"Driver={libraries[0]};Server=nowhere;Database=shop", user="me", password="hunter2")
    with pytest.raises(SqlQueueError) as caught:
        read(open_reader(target), 1, 3)
    assert str(caught.value) == "The database at nowhere/shop refused while connecting: refused."
    assert "hunter2" not in repr(caught.value.__cause__)


def test_a_connection_is_made_when_it_is_needed(opened):
    """Each of the two; it is set up when it is made, and ended with the reader."""
    reader, recorder = opened(messages(1, 3))
    expected = [session(Target(url=recorder.url)), STATEMENT]
    assert recorder.executions() == []
    for small in (True, False):
        read(reader, 1, 3, small=small)
    assert [each.text for each in recorder.executions()] == expected * 2
    assert recorder.disconnections() == 0
    reader.close()
    assert recorder.disconnections() == 2


def test_taken_rows_are_read_one_by_one(opened):
    """And that they were taken is committed."""
    reader, recorder = opened(messages(1, 3))
    taken = reader.take(READ, {"first": 1, "last": 3}, SCHEMA)
    assert pa.Table.from_batches(taken)["RowVersion"].to_pylist() == [1, 2, 3]
    assert (statements(recorder), recorder.blocks()) == ([one_by_one(1, 3)], [])
    assert recorder.endings()[-1] == "commit"


ASKED: list[str] = []


def token():
    ASKED.append("once")
    return "token"


def kind_of_reader(url, **login):
    reader = open_reader(Target(url=url, **login))
    reader.close()
    return type(reader).__name__


def test_microsofts_driver_reads_rows_in_blocks(libraries, tmp_path, monkeypatch):
    """With a plain login in ASCII, where arrow-odbc is; all else is read one by one."""
    microsofts, own = (Recorder(library, tmp_path).url for library in libraries)
    assert kind_of_reader(microsofts) == "ColumnReader"
    assert kind_of_reader(microsofts, user="me", password="pass") == "ColumnReader"
    assert kind_of_reader(microsofts, user="me", password="paß") == "RowReader"
    assert kind_of_reader(own) == "RowReader"
    assert kind_of_reader(microsofts, access_token="token") == "RowReader"
    assert kind_of_reader(microsofts, access_token_provider=f"{__name__}:token") == "RowReader"
    assert ASKED == ["once"], "a provider is asked before each connection, and no other time"
    monkeypatch.delitem(sys.modules, "sqlqueue_spark.engines.sqlserver.block_reader")
    monkeypatch.setitem(sys.modules, "arrow_odbc", None)
    assert kind_of_reader(microsofts) == "RowReader"


def test_arrow_odbc_may_lack_its_library(libraries, tmp_path, monkeypatch):
    """Then rows are read one by one."""
    (tmp_path / "arrow_odbc.py").write_text("raise OSError('libodbc.so.2: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("sqlqueue_spark.engines.sqlserver.block_reader", "arrow_odbc"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert kind_of_reader(Recorder(libraries[0], tmp_path).url) == "RowReader"


@pytest.mark.parametrize("small", [True, False])
def test_half_of_a_character_keeps_no_row_back(opened, small, monkeypatch):
    """The server takes any text as nvarchar. It comes with a sign in its place, by each reader."""
    monkeypatch.setattr(connection, "_met_halves", threading.Event())
    rows = [message(1, headers='{"a":"x\ud83d"}'), message(2, headers='{"a":"\N{GRINNING FACE}\ude00"}')]
    if not small:  # a connection that cannot read it is given up, as one that was lost
        with pytest.raises(ConnectionLost):
            read(opened(rows)[0], 1, 2, small=False)
    found = [row[5] for row in read(opened(rows)[0], 1, 2, small=small)]
    assert found == ['{"a":"x\ufffd"}', '{"a":"\N{GRINNING FACE}\ufffd"}']


def test_a_time_of_seven_decimals_has_six_in_spark():
    """The column Expires may be a datetime2, whose blocks come in nanoseconds."""
    block = pa.record_batch({"Expires": pa.array([1_234_567_890_123_456_700], pa.timestamp("ns"))})
    wanted = pa.schema([SCHEMA.field("Expires")])
    assert under(wanted, block)["Expires"].to_pylist() == [datetime(2009, 2, 13, 23, 31, 30, 123_456, UTC)]
