"""What pyodbc makes of every statement's parameters: how many, of which types, in how many round trips.

The real pyodbc binds them, by way of the real connections, to an ODBC driver that writes down what it is told
(tests/support/recording_odbc). ``SQLQUEUE_APPROVE=1`` writes what is now bound to tests/approved/sqlserver_bindings/.
"""

import json
import os
import re
from datetime import timedelta
from importlib import resources
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
import pytest

from sqlqueue_spark import queues, tables
from sqlqueue_spark.addresses import Table
from sqlqueue_spark.claims import HIGHEST, LOWEST, Runs
from sqlqueue_spark.connections import Target, connect, open_reader
from sqlqueue_spark.dialects import SQLSERVER
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.inserting import Column, Inserter
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.outbox import OutboxTable
from sqlqueue_spark.outgoing import Outgoing
from sqlqueue_spark.queues import Queue, QueueTable
from sqlqueue_spark.receive.slices import SCHEMA
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.sending import Sender
from sqlqueue_spark.stage import Stage
from sqlqueue_spark.tables import Keeper
from tests.support import recording
from tests.support.recording import Answer, Recorder

NAMES = sorted(
    path.stem
    for path in (Path(str(resources.files("sqlqueue_spark.dialects"))) / "sql" / "sqlserver").glob("*.sql")
)
APPROVED = Path(__file__).parent.parent / "approved" / "sqlserver_bindings"

#: Printed for people, who run them as they are.
FOR_PEOPLE = {name for name in NAMES if name.startswith(("remedy_", "script_"))} | {"create_schema"}
#: Twins of what another engine has to say.
EMPTY = {name for name in NAMES if not SQLSERVER.statement(name)}

TABLE = Table(table="orders", schema="dbo")
COLUMNS = [
    Column(name, type_, True, False)
    for name, type_ in [
        ("Id", "uniqueidentifier"),
        ("CorrelationId", "varchar"),
        ("ReplyToAddress", "varchar"),
        ("Recoverable", "bit"),
        ("Expires", "datetime"),
        ("Headers", "nvarchar(max)"),
        ("Body", "varbinary(max)"),
        ("RowVersion", "bigint"),
    ]
]
QUEUE = QueueTable(
    table=TABLE,
    name="orders@[dbo]@[shop]",
    object_id=77,
    identity="77/2026-01-02T03:04:05",
    columns=tuple(column.name for column in COLUMNS),
    database="shop",
)
MESSAGE = Outgoing(
    id=bytes(range(16)), headers='{"a":"주문"}', body=b"{}", correlation_id="c", reply_to="Sales"
)
NOW = "2026-01-02T03:04:05"
ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
MARK = '{"claim":"c","run":"r","tasks":["t"],"destinations":["orders@[dbo]@[shop]"]}'

DATABASE = Answer("SELECT DB_NAME()", "w", [["shop"]])
CLOCK = Answer("SELECT SYSUTCDATETIME()", "t", [[NOW]])
IDENTITY = Answer("t.create_date", "wwiw", [["dbo", "orders", 77, NOW]])
TABLE_COLUMNS = Answer("c.is_computed", "wwbb", [[each.name, each.type, 1, 0] for each in COLUMNS])
FOUND = Answer("AS bytes", "ibi", [[5, 0, 700], [6, 1, 700]])
MESSAGES = "wwwbtwxi"
MESSAGE_ROW = [ID, None, None, 1, None, "{}", "body", 5]
READ = dict(zip(SCHEMA.names, [ID, None, None, True, None, "{}", b"body", 5], strict=True))
MARKED = Answer("SELECT Headers", "w", [[MARK]])


def queue(connection):
    return Queue(connection, QUEUE)


def keeper(connection):
    return Keeper(connection, QUEUE)


def outbox(connection):
    return OutboxTable(connection, "Sales")


def stage(connection):
    return Stage(connection, Table(table="billing.Outgoing", schema="dbo"))


def insert(connection, message):
    return Inserter(connection, QUEUE, COLUMNS).insert([message])


def read(name, *numbers):
    def action(connection):
        reader = open_reader(connection.target)
        statement = queues.read_statement(SQLSERVER, QUEUE, name)
        schema = SCHEMA.append(pa.field("expired", pa.bool_())) if name == "take" else SCHEMA
        batches = list(reader.batches(statement, numbers, schema))
        reader.close()
        return [row for batch in batches for row in batch.to_pylist()]

    return action


def isolated(level):
    def action(connection):
        given = {"url": connection.target.url, "endpoint": "Sales", "isolationLevel": level}
        options = SinkOptions.parse(given)
        with Sender(options, Destinations(options)) as sender:
            sender._connected(connection.target)

    return action


#: For each statement what to do, so that it is executed, what the database answers, and what comes of it.
CALLS = {
    "claim": (
        lambda c: queue(c).claim(LOWEST, HIGHEST, 256),
        [FOUND],
        ((5, 6), (False, True), (700, 700)),
    ),
    "look": (lambda c: queue(c).look(4, 9_000_000_000, 2), [FOUND], ((5, 6), (False, True), (700, 700))),
    "lock": (
        lambda c: list(queue(c).lock(Runs([(5, 6), (9, 9)]))),
        [Answer("q.Expires", "iit", [[5, 700, None], [9, 800, NOW]])],
        [(5, 700), (9, 800)],
    ),
    "delete": (lambda c: queue(c).delete(Runs([(5, 6), (9, 9)])), [Answer("DELETE q", changed=3)], 3),
    "delete_range": (lambda c: queue(c).delete(Runs([(5, 8)])), [Answer("DELETE q", changed=4)], 4),
    "ids": (
        lambda c: queue(c).ids([5, 9]),
        [Answer("q.Id", "iw", [[5, ID], [9, ID.upper()]])],
        {5: ID, 9: ID},
    ),
    "identity": (lambda c: queue(c).identity(), [IDENTITY], f"77/{NOW}"),
    "highest": (lambda c: queue(c).highest(), [Answer("MAX(RowVersion)", "i", [[9]])], 9),
    "waiting": (
        lambda c: queue(c).waiting(5).rows,
        [Answer("MAX(RowVersion)", "iwt", [[4, "{}", NOW]])],
        4,
    ),
    "holders": (
        lambda c: [str(each) for each in queue(c).holders(Runs([(5, 9)]))],
        [Answer("dm_tran_locks", "iwww", [[51, "sa", "box", None]])],
        ["session 51 (unnamed program, sa@box)"],
    ),
    "database": (tables.database, [DATABASE], "shop"),
    "columns": (lambda c: keeper(c).columns()[0].name, [TABLE_COLUMNS], "Id"),
    "indexes": (
        lambda c: [each.name for each in keeper(c).indexes()],
        [Answer("i.is_unique", "wwbww", [["Index_RowVersion", "RowVersion", 0, "clustered", None]])],
        ["Index_RowVersion"],
    ),
    "index_names": (
        lambda c: keeper(c).new_index_name("I"),
        [Answer("SELECT i.name", "w", [["i"]])],
        "I_2",
    ),
    "space": (
        lambda c: tuple(keeper(c).space()),
        [Answer("used_pages", "iiii", [[1, 2, 0, 0]])],
        (1, 2, 0, 0),
    ),
    "numbers": (
        lambda c: keeper(c).numbers().last,
        [Answer("last_value", "wwii", [["dbo", "orders", 9, HIGHEST]])],
        9,
    ),
    "compatibility": (
        lambda c: tuple(keeper(c).compatibility()),
        [Answer("compatibility_level", "wii", [["compatibility level", 150, 130]])],
        ("compatibility level", 150, 130),
    ),
    "length": (
        lambda c: keeper(c).length().rows,
        [Answer("COUNT_BIG", "iiiwt", [[3, 0, 2100, "{}", NOW]])],
        3,
    ),
    "peek": (
        lambda c: [each.row_version for each in keeper(c).peek(10)],
        [Answer("FETCH NEXT", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]])],
        [5],
    ),
    "purge": (
        lambda c: keeper(c).purge(LOWEST, 9, expired=False),
        [Answer("deleted.RowVersion", "i", [[7], [5]])],
        [5, 7],
    ),
    "purge_expired": (
        lambda c: keeper(c).purge(LOWEST, 9, expired=True),
        [Answer("deleted.RowVersion", "i", [[7], [5]])],
        [5, 7],
    ),
    "insert": (lambda c: insert(c, MESSAGE), [Answer("INSERT INTO", changed=1)], 1),
    "clock": (
        lambda c: insert(c, MESSAGE._replace(ttl_ms=1_500)),
        [CLOCK, Answer("INSERT INTO", changed=1)],
        1,
    ),
    "schema": (
        lambda c: tables.schema_exists(c, TABLE, "shop"),
        [Answer("sys.schemas", "w", [["dbo"]])],
        True,
    ),
    "create_lock": (lambda c: tables.lock_creation(c, TABLE), [], None),
    "create": (lambda c: tables.create(c, TABLE), [], None),
    "outbox_exists": (
        lambda c: outbox(c).exists(),
        [Answer("sys.tables", "w", [["Sales_OutboxData"]])],
        True,
    ),
    "outbox_create": (lambda c: outbox(c).create(), [], None),
    "outbox_index_dispatched_at": (lambda c: outbox(c).create(), [], None),
    "outbox_seen": (lambda c: outbox(c).seen(["b", "a"]), [Answer("j.MessageId", "w", [["b"]])], {"b"}),
    "outbox_add": (lambda c: outbox(c).add(["b", "a"]), [Answer("INSERT INTO", changed=2)], None),
    "outbox_add_new": (lambda c: outbox(c).add_new(["b", "a"]), [Answer("@added", "w", [["a"]])], {"a"}),
    "outbox_clean": (lambda c: outbox(c).clean(timedelta(days=7)), [Answer("DELETE", changed=12)], 12),
    "outbox_report": (
        lambda c: outbox(c).report().rows,
        [Answer("COUNT_BIG", "iitt", [[3, 0, NOW, NOW]])],
        3,
    ),
    "stage_create": (lambda c: stage(c).create(), [], None),
    "stage_index": (lambda c: stage(c).create(), [], None),
    "stage_clear": (lambda c: len(stage(c).open("claim")), [], 36),
    "stage_open": (lambda c: len(stage(c).open("claim")), [], 36),
    "stage_mark": (lambda c: stage(c).mark().run, [MARKED], "r"),
    "stage_insert": (
        lambda c: stage(c).add("task", [("orders@[dbo]@[shop]", MESSAGE)]),
        [Answer("INSERT INTO", changed=1)],
        None,
    ),
    "stage_seal": (
        lambda c: stage(c).seal(["u"], ["orders@[dbo]@[shop]"], run="r"),
        [MARKED, Answer("UPDATE", changed=1)],
        None,
    ),
    **{
        name: (
            lambda c: stage(c).move("c"),
            [
                *(MARKED, DATABASE, IDENTITY, TABLE_COLUMNS, Answer("INSERT INTO", changed=2)),
                *(
                    Answer("SELECT MAX(RowVersion)", "i", [[8]]),
                    Answer("SELECT MAX(RowVersion)", "i", [[None]]),
                ),
            ],
            2,
        )
        for name in ("stage_next", "stage_move")
    },
    "read": (
        read("read", 5, 9_000_000_000),
        [Answer("SELECT LOWER", MESSAGES, [MESSAGE_ROW])],
        [READ],
    ),
    "read_unexpired": (
        read("read_unexpired", 5, 9),
        [Answer("SELECT LOWER", MESSAGES, [MESSAGE_ROW])],
        [READ],
    ),
    "take": (
        read("take", 5, 9, 3),
        [Answer("DELETE FROM batch", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]])],
        [{**READ, "expired": False}],
    ),
    "session": (lambda c: c.commit(), [], None),
    "isolation_read_committed": (isolated("ReadCommitted"), [], None),
    "isolation_repeatable_read": (isolated("RepeatableRead"), [], None),
    "isolation_serializable": (isolated("Serializable"), [], None),
    "isolation_snapshot": (isolated("Snapshot"), [], None),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if (reason := recording.missing()) is not None:
        pytest.skip(reason)
    return recording.compiled(tmp_path_factory.mktemp("recording"))


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
    text = SQLSERVER.statement(name)
    if name == "session":
        text = SQLSERVER.with_numbers(text, [30_000])
    return re.compile(".+?".join(map(re.escape, re.split(r"\{\w+\}", text))), re.DOTALL)


def test_each_statement_is_called_printed_for_people_or_empty():
    assert sorted([*CALLS, *FOR_PEOPLE, *EMPTY - FOR_PEOPLE]) == NAMES


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
def test_parameters_are_as_many_as_placeholders_and_of_types_that_never_vary(name, recorded):
    """A type that varied with the value would be another entry in the server's cache of plans, and another plan."""
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
        ("주" * 2_001, "ntext from SQL_C_WCHAR, in pieces"),
        ("주" * 4_001, "ntext from SQL_C_WCHAR, in pieces"),
        ("주" * 1_000_000, "ntext from SQL_C_WCHAR, in pieces"),
    ],
    ids=lambda each: f"{len(each)}",
)
def test_a_text_is_of_one_of_two_types_and_arrives_whole(text, expected, recorded):
    _, (_, execution) = recorded(lambda c: c.execute("SELECT CAST(? AS nvarchar(max))", (text,)))
    (bound,) = execution.bound
    assert (bound.value == text, str(bound).partition(" = ")[0]) == (True, expected)


@pytest.mark.parametrize("number", [LOWEST, -1, 0, 1 << 31, HIGHEST])
def test_a_number_is_a_bigint_whatever_its_size(number, recorded):
    _, (_, execution) = recorded(lambda c: c.modify("SELECT ?", (number,)))
    assert [(each.sql_type, each.value) for each in execution.bound] == [("bigint", number)]


def test_a_lost_parameter_is_noticed(recorded):
    with pytest.raises(SqlQueueError) as caught:
        recorded(lambda c: c.execute("SELECT ?, ?", (1,)))
    assert "contains 2 parameter markers, but 1 parameters were supplied" in str(caught.value.__cause__)


def rows_of(execution):
    """How many rows or ids a statement was given as JSON."""
    return len(json.loads(execution.bound[-1].value))


#: What each row can cost in locks on one index or heap: its own, and its page's. 5,000 may escalate to a table lock.
LOCKS_OF_A_ROW = 2


def test_no_statement_is_given_more_rows_than_would_escalate(recorded):
    ids = [str(number) for number in range(5_000)]
    chunks = [2_400, 2_400, 200]
    actions = [
        lambda c: outbox(c).seen(ids),
        lambda c: outbox(c).add(ids),
        lambda c: outbox(c).add_new(ids),
        lambda c: Inserter(c, QUEUE, COLUMNS).insert([MESSAGE] * 5_000),
    ]
    for action in actions:
        _, (_, *executions) = recorded(action)
        assert [rows_of(each) for each in executions] == chunks
    scattered = Runs((number, number) for number in range(0, 10_000, 2))
    for action in (lambda c: list(queue(c).lock(scattered)), lambda c: queue(c).delete(scattered)):
        _, (_, *executions) = recorded(action)
        assert [rows_of(each) for each in executions] == chunks
    _, (_, *executions) = recorded(lambda c: queue(c).delete(Runs([(1, 5_000)])))
    assert [[each.value for each in execution.bound] for execution in executions] == [
        [1, 2_400],
        [2_401, 4_800],
        [4_801, 5_000],
    ]
    assert "TOP (2400)" in SQLSERVER.statement("outbox_clean")
    assert max(SQLSERVER.chunk, SQLSERVER.written) * LOCKS_OF_A_ROW < 5_000


def declared(name):
    """The names that a statement declares, in its JSON or as variables, with their types."""
    return dict(re.findall(r"(@?\b\w+) (\w+(?:\(\w+\))?)(?: '\$| = \?)", SQLSERVER.statement(name)))


@pytest.mark.parametrize(
    "names,column,expected",
    [
        (["delete", "lock", "ids"], "RowVersion bigint", {"first": "bigint", "last": "bigint"}),
        (
            ["purge", "purge_expired"],
            "RowVersion bigint",
            dict.fromkeys(["@after", "@up_to", "@rows"], "bigint"),
        ),
        (["take"], "RowVersion bigint", dict.fromkeys(["@first", "@last", "@rows"], "bigint")),
        (["outbox_seen", "outbox_add"], "MessageId nvarchar(200)", {"MessageId": "nvarchar(200)"}),
        (
            ["outbox_add_new"],
            "MessageId nvarchar(200)",
            {"MessageId": "nvarchar(200)", "@version": "varchar(23)"},
        ),
    ],
)
def test_what_is_sought_by_is_of_the_columns_own_type(names, column, expected):
    """The server would convert the column else, and might scan it."""
    assert column in SQLSERVER.statement("create") + SQLSERVER.statement("outbox_create")
    assert [declared(name) for name in names] == [expected] * len(names)
