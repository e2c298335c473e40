"""What pyodbc makes of every statement's parameters: how many, of which types, in how many round trips.

The real pyodbc binds them, by way of the real connections, to an ODBC driver that writes down what it is told
(tests/support/recording_odbc). ``SQLQUEUE_APPROVE=1`` writes what is now bound to
tests/approved/sqlserver_bindings/.
"""

import json
import os
import re
import shutil
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pyodbc
import pytest

from sqlqueue_spark.administration.message_lines import StoredMessage, to_rows
from sqlqueue_spark.engines.connection import RECORD_BATCH_ROWS
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.engines.users_connection import UsersConnection
from sqlqueue_spark.errors import (
    ConfigurationError,
    ConnectionLost,
    LockTimeout,
    RowsHeld,
    SqlQueueError,
    TooMuch,
    TryAgain,
)
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables import queue_table, queues
from sqlqueue_spark.tables.insert import insert, insert_stored
from tests.support.recording import Answer, Recorder, Refused
from tests.support.sending import outgoing_rows
from tests.support.statements import (
    CALLS,
    COLUMNS,
    DATABASE,
    EMPTY,
    FOR_PEOPLE,
    ID,
    IDENTITY,
    MESSAGE,
    MESSAGE_NAMES,
    MESSAGE_ROW,
    MESSAGES,
    NAMES,
    QUEUE,
    STORAGE,
    TABLE_COLUMNS,
    Action,
    outbox,
    queue,
)

ANYTHING = Statement.parse("SELECT :value")
LONG_TEXT = Statement.parse("SELECT CAST(:text AS nvarchar(max))")
APPROVED = Path(__file__).parent.parent / "approved" / "sqlserver_bindings"


@pytest.fixture
def recorded(library, tmp_path):
    """Does something on a recording connection; what was executed, and what came of it."""

    def run(action, answers=()):
        recorder = Recorder(library, Path(mkdtemp(dir=tmp_path)), answers)
        with connect(Target(url=recorder.url)) as connection:
            return action(connection), recorder.executions()

    return run


def said(name):
    """The texts that a statement may be rendered to."""
    statement = SQLSERVER.statement(name)
    if name in ("session", "lock_timeout"):
        text = statement.with_numbers({"lock_timeout": 30_000})
    elif name == "isolation":
        text = statement.written_out({"level": "{level}"})
    else:
        text, _ = statement.bound("qmark", dict.fromkeys(statement.parameters))
    named = ".+?".join(map(re.escape, re.split(r"\{\w+\}", text)))
    return re.compile(rf"{named}(;\nSELECT @@ROWCOUNT)?", re.DOTALL)


def part_of(name):
    """A piece of a statement's text that is in no other statement."""
    texts = {each: str(SQLSERVER.statement(each)).replace("{queue}", "[dbo].[orders]") for each in NAMES}
    others = "\0".join(text for each, text in texts.items() if each != name)
    pieces = re.split(r"\{\w+\}|:[a-z]\w*|\n", texts[name])
    return next(piece for piece in pieces if piece.strip() and piece not in others)


def test_each_statement_is_called_or_printed():
    """It is called, printed for people, or empty."""
    assert sorted([*CALLS, *FOR_PEOPLE, *EMPTY - FOR_PEOPLE]) == NAMES


def test_a_statement_of_which_the_engine_has_nothing_to_say_is_not_sent(recorded):
    """Like that by which a stream tells others of itself: the driver manager refuses an empty text."""

    def announced(connection):
        sessions = {7}
        queue(connection).announce(sessions)
        return sessions

    sessions, executions = recorded(announced)
    _, before = recorded(lambda _: None)
    assert (sessions, [each.text for each in executions]) == ({7}, [each.text for each in before])


def test_a_delayed_message_is_stored_with_the_time_at_which_it_is_due(recorded):
    action, answers, _ = CALLS["insert"]
    texts = [each.text for each in recorded(action, answers)[1] if "INSERT INTO" in each.text]
    assert [each.split("\nFROM")[0] for each in texts][-1] == (
        "INSERT INTO [dbo].[orders] ([Headers], [Body], [Due])\nSELECT [Headers], [Body], Expires"
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_statement_is_bound_as_approved(name, recorded):
    action, answers, expected = CALLS[name]
    result, executions = recorded(action, answers)
    assert result == expected
    found = [each for each in executions if said(name).fullmatch(each.text)]
    assert found, f"{name} is not among {[each.text for each in executions]}"
    text = "\n".join(
        "\n".join(f"@P{number} {each}" for number, each in enumerate(execution.bound, 1)) or "nothing bound"
        for execution in found
    )
    text = (
        re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "(a new UUID)", text) + "\n"
    )
    file = APPROVED / f"{name}.txt"
    if os.environ.get("SQLQUEUE_APPROVE"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_nothing_is_approved_that_is_no_longer_bound():
    assert sorted(path.stem for path in APPROVED.glob("*.txt")) == sorted(CALLS)


def placeholders(text):
    """How many question marks stand outside of names and texts."""
    return re.sub(r"\[(?:[^\]]|\]\])*\]|'(?:[^']|'')*'", "", text).count("?")


@pytest.mark.parametrize("name", CALLS)
def test_parameters_are_of_types_that_never_vary(name, recorded):
    """A type that varied with the value would be another entry in the server's cache of plans,
    and another plan.
    """
    action, answers, _ = CALLS[name]
    for execution in recorded(action, answers)[1]:
        assert len(execution.bound) == placeholders(execution.text)
        assert execution.prepared is bool(execution.bound)
        assert execution.described == 0, "each time the server is asked for a type costs a round trip"
        assert {each.sql_type for each in execution.bound} <= {"bigint", "nvarchar(4000)"}


@pytest.mark.parametrize(
    "text,expected",
    [
        ("", "nvarchar(4000) from SQL_C_WCHAR"),
        ("주" * 2_000, "nvarchar(4000) from SQL_C_WCHAR"),
        ("\N{GRINNING FACE}" * 2_000, "nvarchar(4000) from SQL_C_WCHAR, in pieces"),
        ("주" * 2_001, "nvarchar(max) from SQL_C_WCHAR, in pieces"),
        ("주" * 4_001, "nvarchar(max) from SQL_C_WCHAR, in pieces"),
        ("주" * 1_000_000, "nvarchar(max) from SQL_C_WCHAR, in pieces"),
    ],
    ids=lambda each: f"{len(each)}",
)
def test_a_text_of_any_length_arrives_whole(text, expected, recorded):
    """It is of one of two types."""
    _, (_, execution) = recorded(lambda c: c.execute(LONG_TEXT, {"text": text}))
    (bound,) = execution.bound
    assert (bound.value == text, str(bound).partition(" = ")[0]) == (True, expected)


def test_freetds_gets_a_long_text_as_ntext(library, tmp_path):
    """It refuses a size of none, which is what nvarchar(max) is to the others."""
    free = shutil.copy(library, tmp_path / "libtdsodbc.so")
    recorder = Recorder(free, tmp_path)
    with connect(Target(url=recorder.url)) as connection:
        connection.execute(LONG_TEXT, {"text": "주" * 2_001})
    assert [each.sql_type for each in recorder.executions()[-1].bound] == ["ntext"]


def test_a_foreign_connection_sends_no_ntext(library, tmp_path):
    recorder = Recorder(library, tmp_path)
    raw = pyodbc.connect(recorder.url, autocommit=False)
    statement = Statement.parse("SELECT CAST(:text AS nvarchar(max)), CAST(:number AS bigint)")
    UsersConnection(raw).execute(statement, {"text": "주" * 2_001, "number": 7})
    raw.close()
    (execution,) = recorder.executions()
    assert [(each.sql_type, each.value) for each in execution.bound] == [
        ("nvarchar(max)", "주" * 2_001),
        ("int", 7),
    ]


@pytest.mark.parametrize("number", [LOWEST, -1, 0, 1 << 31, HIGHEST])
def test_a_number_is_a_bigint_whatever_its_size(number, recorded):
    _, (_, execution) = recorded(lambda c: c.modify(Statement.parse("SELECT :number"), {"number": number}))
    assert [(each.sql_type, each.value) for each in execution.bound] == [("bigint", number)]


CHANGING = [
    "insert",
    "stage_insert",
    "stage_seal",
    "stage_move",
    "outbox_add",
    "outbox_clean",
    "delete",
    "delete_range",
]


@pytest.mark.parametrize("triggered", [(), (9,), (0, 1)])
def test_a_trigger_on_the_table_counts_nothing(recorded, triggered):
    """The server counts the statement itself; the counts of a trigger's statements come before."""
    answers = [Answer("DELETE q", changed=4, triggered=triggered)]
    assert recorded(lambda c: queue(c).delete(RowSet([(5, 8)])), answers)[0] == 4


@pytest.mark.parametrize("name", CHANGING)
def test_a_change_is_counted_by_the_server(name, recorded):
    action, answers, _ = CALLS[name]
    found = [each.text for each in recorded(action, answers)[1] if said(name).fullmatch(each.text)]
    assert [text.rpartition("\n")[2] for text in found] == ["SELECT @@ROWCOUNT"] * len(found)
    assert found


LOCKED = Refused(
    "HYT00",
    1222,
    "[Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Lock request time out period exceeded.",
)
#: Statements that are meant to wait for what others hold.
AWAITING = {"lock", "stage_hold"}


@pytest.mark.parametrize(
    "name",
    ["claim", "look", "delete", "delete_range", "insert", "outbox_add", "outbox_add_new", *sorted(AWAITING)],
)
def test_a_lock_timeout_means_held_rows_only_where_rows_are_awaited(name, recorded):
    """Elsewhere a session has locked the whole table for a while, and the same call may succeed later."""
    action, answers, _ = CALLS[name]
    refused = Answer(part_of(name), rows=[LOCKED])
    with pytest.raises(TryAgain) as caught:
        recorded(action, [refused, *answers])
    assert type(caught.value) is (RowsHeld if name in AWAITING else LockTimeout)
    assert str(caught.value).startswith("Rows, or their whole table, stayed locked by someone else while ")
    assert str(caught.value).endswith("; try again or raise lockTimeout.")


def test_half_of_a_character_is_refused_in_a_sentence(recorded):
    with pytest.raises(SqlQueueError, match=r"^The database at nowhere/shop refused while looking up ids"):
        recorded(lambda c: outbox(c).seen(["\ud800"]))


def test_in_haste_a_lock_timeout_means_held_rows(recorded):
    def hastily(connection):
        with connection.hasty(1):
            connection.execute("TRUNCATE TABLE orders")

    with pytest.raises(RowsHeld):
        recorded(hastily, [Answer("TRUNCATE", rows=[LOCKED])])


@pytest.mark.parametrize(
    "number, kinds",
    [
        (1204, (TooMuch,)),
        (701, (TooMuch,)),
        (8645, (TooMuch,)),
        (40550, (TooMuch, ConnectionLost)),
        (40553, (TooMuch, ConnectionLost)),
        (9002, ()),
    ],
)
def test_a_statement_that_takes_too_much_is_told_from_a_deadlock(number, kinds, recorded):
    """So a caller may take less the next time; where the session was ended, it also opens a new one."""
    refused = Answer(
        part_of("claim"), rows=[Refused("42000", number, f"[recording][SQL Server]No. ({number})")]
    )
    with pytest.raises(TryAgain) as caught:
        recorded(CALLS["claim"].action, [refused])
    every = (TooMuch, ConnectionLost)
    assert [isinstance(caught.value, each) for each in every] == [each in kinds for each in every]


@pytest.mark.parametrize(
    "number, said, sentence",
    [
        (
            319,
            "Incorrect syntax near the keyword 'with'.",
            (
                "The database at nowhere/shop does not understand a statement of this package while "
                "locking rows again in orders@[dbo]@[shop] (Incorrect syntax near the keyword 'with'. (319) "
                "(SQLExecDirectW)); it must be SQL Server 2016 or later with a compatibility level of 130 or "
                "more: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130."
            ),
        ),
        (
            40515,
            (
                "Reference to database and/or server name in 'stock.dbo.orders' is not supported in this "
                "version of SQL Server."
            ),
            (
                "The database at nowhere/shop reaches no other database of its server while "
                "locking rows again in orders@[dbo]@[shop] (Reference to database and/or server name in "
                "'stock.dbo.orders' is not supported in this version of SQL Server. (40515) "
                "(SQLExecDirectW)); let the url lead to the database of the queue, "
                "or take the database out of the address."
            ),
        ),
    ],
)
def test_what_a_database_cannot_do_comes_with_its_remedy(number, said, sentence, recorded):
    refused = Answer(part_of("lock"), rows=[Refused("42000", number, f"[recording][SQL Server]{said}")])
    with pytest.raises(ConfigurationError) as caught:
        recorded(CALLS["lock"].action, [refused])
    assert str(caught.value).replace("SQLExecute", "SQLExecDirectW") == sentence


@pytest.mark.parametrize(
    "setting",
    [
        "ANSI_NULLS", "ANSI_PADDING", "ANSI_WARNINGS", "ARITHABORT", "CONCAT_NULL_YIELDS_NULL",
        "QUOTED_IDENTIFIER", "XACT_ABORT", "NOCOUNT",
    ],
)  # fmt: skip
def test_a_session_begins_with_its_settings(recorded, setting):
    """Tables with filtered indexes need all but the last two, or each change is error 1934;
    FreeTDS sets none of them.
    """
    _, (opening, *_) = recorded(lambda c: c.commit())
    said_on = re.findall(r"SET ([A-Z_, ]+) ON", opening.text)
    assert setting in {each for names in said_on for each in names.split(", ")}
    assert "SET NUMERIC_ROUNDABORT OFF" in opening.text


def test_a_queue_in_another_database_is_refused_by_its_name(recorded):
    """On Azure SQL Database, where a connection reaches one database."""
    said = (
        "Reference to database and/or server name in 'stock.sys.tables' is not supported in this "
        "version of SQL Server."
    )
    answers = [
        DATABASE,
        Answer("t.create_date", rows=[Refused("42000", 40515, f"[recording][SQL Server]{said}")]),
    ]
    with pytest.raises(
        ConfigurationError, match=r"while looking for orders@\[dbo\]@\[stock\] \(Reference to database"
    ):
        recorded(lambda c: queue_table.find(c, Table(table="orders", schema="dbo", catalog="stock")), answers)


def test_a_statement_ends_no_transaction(library, tmp_path):
    """What was claimed stays locked until the batch is done: nothing but a commit commits."""
    recorder = Recorder(library, tmp_path, ())
    with connect(Target(url=recorder.url)) as connection:
        opening = recorder.endings()
        connection.execute(ANYTHING, {"value": 1})
        connection.modify(ANYTHING, {"value": "a"})
        assert recorder.endings() == opening
        connection.commit()
        assert recorder.endings() == [*opening, "commit"]


def test_only_what_was_taken_is_committed(library, tmp_path):
    """A commit that is lost behind rows which have all arrived would end the batch for nothing."""
    recorder = Recorder(library, tmp_path, [Answer("SELECT", "wwwbtwxi", [], names=SCHEMA.names)])
    reader = open_reader(Target(url=recorder.url))
    opening = recorder.endings()
    statement = Statement.parse("SELECT :first, :last")
    wanted = (statement, RowSet([(1, 2)]), SCHEMA)
    assert (list(reader.batches(*wanted)), recorder.endings()) == ([], opening)
    assert (reader.take(*wanted), recorder.endings()) == (
        [],
        [*opening, "commit"],
    )
    assert (list(reader.batches(*wanted)), recorder.endings()) == ([], [*opening, "commit"])
    reader.close()


def test_a_reader_finds_columns_by_their_names(library, tmp_path):
    """Rows that have failed are read once more: some columns of those that the stream reads."""
    wanted = pa.schema([SCHEMA.field(name) for name in ("Id", "Headers", "Body", "RowVersion")])
    recorder = Recorder(library, tmp_path, [Answer("[orders]", MESSAGES, [MESSAGE_ROW], names=MESSAGE_NAMES)])
    with closing(open_reader(Target(url=recorder.url))) as reader:
        (batch,) = reader.batches(queues.read_statement(SQLSERVER, QUEUE), RowSet([(5, 5)]), wanted)
    assert batch.to_pylist() == [{"Id": ID, "Headers": "{}", "Body": b"body", "RowVersion": 5}]


def test_a_queue_of_a_batch_whose_database_is_gone_is_gone_too(library, tmp_path):
    """Nothing is asked there: an error would end the transaction, which may hold rows of other queues."""
    recorder = Recorder(library, tmp_path, [DATABASE])
    pool = ConnectionPool(SourceOptions.parse({"url": recorder.url, "queue": "orders,billing"}), None)
    with connect(Target(url=recorder.url)) as connection:
        before = len(recorder.executions())
        assert QueueSession(connection, pool).named("orders@[dbo]@[old]") is None
        assert ["DB_ID" in each.text for each in recorder.executions()[before:]] == [True]


def test_a_closed_connection_is_a_lost_one(library, tmp_path):
    """Another thread may have closed it."""
    connection = connect(Target(url=Recorder(library, tmp_path).url))
    connection.close()
    for action in (partial(connection.execute, "SELECT 1"), connection.commit, connection.rollback):
        with pytest.raises(ConnectionLost, match="The connection to nowhere/shop was lost"):
            action()


def test_nothing_is_received_from_a_read_only_copy(library, tmp_path):
    """SQL Server leaves out of account there that rows are to be locked, so a claim would hold nothing."""
    copy = Answer(DATABASE.part, DATABASE.types, [["shop", 1]])
    recorder = Recorder(library, tmp_path, [copy, IDENTITY, TABLE_COLUMNS, STORAGE])
    pool = ConnectionPool(SourceOptions.parse({"url": recorder.url, "queue": "orders"}), None)
    sentence = (
        "The database of orders@[dbo]@[shop] is read-only here, so nothing can be received; let the url lead "
        "to the primary server (on PostgreSQL name all hosts; on SQL Server the listener of an availability "
        "group, without applicationIntent=ReadOnly)."
    )
    for reached_before, kind in ((False, ConfigurationError), (True, ConnectionLost)):
        pool.opened_before = reached_before
        with pytest.raises(kind) as caught:
            pool.borrow()
        assert str(caught.value) == sentence


def test_a_lost_parameter_is_noticed(recorded):
    with pytest.raises(KeyError, match="last"):
        recorded(lambda c: c.execute(Statement.parse("SELECT :first, :last"), {"first": 1}))


def rows_of(execution):
    """How many rows or ids a statement was given as JSON."""
    return len(json.loads(execution.bound[-1].value))


#: What each row can cost in locks on one index or heap: its own, and its page's.
#: 5,000 may escalate to a table lock.
LOCKS_OF_A_ROW = 2


def test_no_statement_has_rows_enough_to_escalate(recorded):
    ids = [str(number) for number in range(4_800)]
    chunks = [2_400, 2_400]
    scattered = RowSet((number, number) for number in range(0, 9_600, 2))
    actions: list[Action] = [
        lambda c: outbox(c).seen(ids),
        lambda c: outbox(c).add(ids),
        lambda c: outbox(c).add_new(ids),
        lambda c: insert(c, QUEUE, outgoing_rows([MESSAGE] * 4_800)),
        lambda c: list(queue(c).lock(scattered)),
        lambda c: queue(c).delete(scattered),
    ]
    for action in actions:
        _, (_, *executions) = recorded(action, [Answer("INSERT INTO", changed=2_400)])
        assert [rows_of(each) for each in executions] == chunks
    _, (_, *executions) = recorded(lambda c: queue(c).delete(RowSet([(1, 5_000)])))
    assert [[each.value for each in execution.bound] for execution in executions] == [
        [1, 2_400],
        [2_401, 4_800],
        [4_801, 5_000],
    ]
    for name in ("outbox_clean", "read", "read_unexpired"):
        assert f"TOP ({SQLSERVER.chunk})" in str(SQLSERVER.statement(name))
    assert max(SQLSERVER.chunk, SQLSERVER.written) * LOCKS_OF_A_ROW < 5_000


def test_row_versions_are_read_by_the_batch():
    """Without a lock none escalates, and fewer statements cost less."""
    text = str(SQLSERVER.statement("read_versions"))
    assert (f"TOP ({RECORD_BATCH_ROWS})" in text, "LOCK" in text) == (True, False)


def declared(name):
    """The names that a statement declares, in its JSON or as variables, with their types."""
    return dict(re.findall(r"(@?\b\w+) (\w+(?:\(\w+\))?)(?: '\$| = :)", str(SQLSERVER.statement(name))))


@pytest.mark.parametrize(
    "names,column,expected",
    [
        (
            ["claim_runs", "delete", "lock", "ids", "headers_of", "lock_in_transit"],
            "RowVersion bigint",
            {"RowVersion": "bigint"},
        ),
        (["outbox_seen", "outbox_add"], "MessageId nvarchar(200)", {"MessageId": "nvarchar(200)"}),
        (
            ["outbox_add_new"],
            "MessageId nvarchar(200)",
            {"MessageId": "nvarchar(200)", "@version": "varchar(23)"},
        ),
        (
            ["stage_count", "stage_next", "stage_move", "stage_try"],
            "Task varchar(36) COLLATE Latin1_General_BIN2",
            {"Task": "varchar(36)"},
        ),
    ],
)
def test_a_sought_value_has_the_column_s_own_type(names, column, expected):
    """The server would convert the column else, and might scan it."""
    created = "".join(str(SQLSERVER.statement(each)) for each in ("create", "outbox_create", "stage_create"))
    assert column in created
    assert [declared(name) for name in names] == [expected] * len(names)


@pytest.mark.parametrize("name", ["claim_runs", "delete", "lock", "ids", "headers_of", "lock_in_transit"])
def test_a_scattered_row_is_sought_by_its_number_and_nothing_is_sorted(name):
    """Of a range between two columns of the JSON the server believes that it holds a
    part of the whole table.
    """
    text = str(SQLSERVER.statement(name))
    assert re.findall(r"q\.RowVersion ([=<>]|BETWEEN)", text) == ["="]
    assert ("ORDER BY" in text, "MAX_GRANT_PERCENT = 10" in text) == (False, True)


def test_what_expires_is_compared_in_the_column_s_own_type():
    """SYSUTCDATETIME() has another one, to which the server would convert Expires in each row."""
    compared = re.compile(r"Expires [<>=]+ (\w+)")
    found = {name: compared.findall(str(SQLSERVER.statement(name))) for name in NAMES}
    asked = {name: clocks for name, clocks in found.items() if clocks}
    assert {clock for clocks in asked.values() for clock in clocks} == {"GETUTCDATE"}
    assert {
        "claim",
        "claim_runs",
        "read_unexpired",
        "take",
        "length",
        "peek",
        "purge_expired",
    } <= asked.keys()


@pytest.mark.parametrize("indexed", [True, False])
def test_a_look_seeks_by_the_index_where_the_table_has_it(indexed, recorded):
    """FORCESEEK is error 8622 where it has not; without the hint a plan may scan all that stands there."""
    name = "peek" if indexed else "peek_by_scan"
    action, answers, _ = CALLS[name]
    execution = recorded(action, answers)[1][-1]
    assert said(name).fullmatch(execution.text)
    assert re.findall("FORCESEEK", execution.text) == ["FORCESEEK"] * indexed


@pytest.mark.parametrize(
    "name, asked", [("outbox_seen", "j"), ("outbox_seen_of", "j"), ("outbox_add_new", "i")]
)
def test_a_message_id_is_sought_in_the_key_and_compared_code_by_code(name, asked):
    """By the column's own collation, whatever that is: a text that is made of bytes conflicts
    with none (error 468).
    """
    text = re.sub(r"\s+", " ", str(SQLSERVER.statement(name)))
    conditions = (
        f"o.MessageId = CAST(CAST({asked}.MessageId AS varbinary(400)) AS nvarchar(200)) "
        f"AND o.MessageId = {asked}.MessageId COLLATE Latin1_General_BIN2 "
        f"AND DATALENGTH(o.MessageId) = DATALENGTH({asked}.MessageId)"
    )
    assert text.count(conditions) == text.count("o.MessageId = ") / 2 == 1


@pytest.mark.parametrize("name", ["outbox_add", "outbox_add_new"])
def test_no_message_id_is_dropped_because_a_collation_equates_it(name):
    """DISTINCT would do so; and where an order is that of codes,
    statements that follow each other keep it too.
    """
    text = str(SQLSERVER.statement(name))
    assert ("DISTINCT" in text, text.count("ORDER BY i.MessageId COLLATE Latin1_General_BIN2")) == (False, 1)


@pytest.mark.parametrize("name", ["stage_count", "stage_next", "stage_move", "stage_try"])
def test_a_stage_s_columns_are_compared_as_they_are(name):
    """Values of the wider type nvarchar would have the server convert a column in each row."""
    text = str(SQLSERVER.statement(name))
    assert "SELECT t.Task COLLATE Latin1_General_BIN2" in text
    assert re.findall(r"Destination = (.+)", text) in ([], ["CAST(:destination AS nvarchar(776))"])


def test_a_creator_takes_the_lock_of_the_transport_s_installer_too():
    """Its name is the table's full one with the database's, and _lock; in a script too."""
    created, scripted = (
        re.sub(r"\s+", " ", str(SQLSERVER.statement(each))) for each in ("create_lock", "script_begin")
    )
    name = (
        "LEFT( CONCAT(CASE WHEN PARSENAME(@name, 3) IS NULL THEN QUOTENAME(DB_NAME()) + N'.' END, @name, "
        "N'_lock'), 255 )"
    )
    for text in (created, scripted):
        assert f"DECLARE @transports nvarchar(255) = {name}" in text
        assert re.findall(r"@Resource = (@\w+)", text) == ["@resource", "@transports"]


STORED = StoredMessage(
    id=MESSAGE.id,
    correlation_id="c",
    reply_to="ä",
    recoverable=False,
    expires=datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC),
    headers='{"ä":"주\U0001f4e6"}',
    body=b"\xff",
)


def restored(recorded, messages, columns):
    """What is bound where rows go back into a table."""

    def restore(connection):
        return insert_stored(
            connection, replace(QUEUE, columns=tuple(columns)), to_rows(messages, new_ids=False)
        )

    inserted = Answer("INSERT INTO", changed=len(messages))
    return json.loads(str(recorded(restore, [inserted])[1][-1].bound[0].value))


def test_a_row_goes_back_as_it_stood(recorded):
    """Where it does not say whether it is recoverable, the statement says that it is."""
    bare = STORED._replace(recoverable=None, body=None, headers=None, expires=None)
    assert restored(recorded, [STORED, bare], COLUMNS) == [
        [0, ID, "2026-01-31T12:00:00.123", '{"ä":"주\U0001f4e6"}', "/w==", "c", "ä", False],
        [1, ID, None, None, None, "c", "ä", None],
    ]
    text = re.sub(r"\s+", " ", str(SQLSERVER.statement("insert")))
    assert "COALESCE(j.Recoverable, CAST(1 AS bit)) AS Recoverable" in text


@pytest.mark.parametrize(
    "headers,kept",
    [
        ('{"ä":"주"}', '{"\\u00E4":"\\uC8FC"}'),
        ("ä, which is no JSON", "ä, which is no JSON"),
        (None, None),
    ],
)
def test_in_a_column_of_one_code_page_json_goes_back_with_escapes(recorded, headers, kept):
    """Only headers that are JSON can name a letter in another way."""
    columns = [each._replace(type="varchar(max)") if each.name == "Headers" else each for each in COLUMNS]
    ((_, _, _, found, *_),) = restored(recorded, [STORED._replace(headers=headers)], columns)
    assert found == kept
