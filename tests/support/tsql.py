"""Every T-SQL text that is ever sent or printed, as it is sent; and texts with a slip,
which a parser of T-SQL must notice.
"""

import re

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queues, rights, scripts
from sqlqueue_spark.tables.queue_table import OPTIONAL_COLUMNS, Column, QueueTable
from tests.support.neighbour import statements as neighbour_statements

NAMES = sorted(SQLSERVER.statements())

#: Names that are legal, and would be anything but a name if they were not quoted.
HOSTILE = Table(table="or]ders' -- ; DROP", schema="my schema", catalog="sh[op")
#: With all the columns that not every table has, and without any.
SHAPES: dict[str, tuple[str, ...]] = {"full": OPTIONAL_COLUMNS, "bare": ()}
READING = {"read", "read_unexpired", "read_versions", "peek", "peek_by_scan", "take", "lock_in_transit"}
#: They are read as parts of whole scripts.
HALVES = {"script_begin", "script_end"}


def named(text: str) -> str:
    """A text as the driver sends it: with names in the place of question marks."""
    numbers = iter(range(1, 100))
    return re.sub(r"(\[(?:[^\]]|\]\])*\]|'(?:[^']|'')*')|\?", lambda m: m[1] or f"@P{next(numbers)}", text)


def rendered(name: str, table: Table = HOSTILE) -> str:
    if name in ("session", "lock_timeout", "remedy_transaction"):
        return SQLSERVER.statement(name).with_numbers({"lock_timeout": 30_000, "session": 51})
    if name == "isolation":
        return SQLSERVER.statement(name).written_out({"level": "REPEATABLE READ"})
    quote = SQLSERVER.quote
    statement = SQLSERVER.render(
        name,
        queue=SQLSERVER.table(table),
        stage=SQLSERVER.table(Table(table="bill]ing.Outgoing", schema="my schema")),
        delayed=SQLSERVER.table(Table(table="bill]ing.Delayed", schema="my schema")),
        subscriptions=SQLSERVER.table(Table(table="SubscriptionRouting", schema="my schema")),
        catalog=quote("sh[op"),
        attempt=quote("attempt 1"),
        schema=quote("my schema"),
        user=quote("SHOP\\my ]user"),
        index=quote("Index]2"),
        columns=", ".join(map(quote, ("Id", "Recoverable", "Expires", "Headers", "Body"))),
        values=", ".join(map(quote, ("Id", "Recoverable", "Expires", "Headers", "Body"))),
        **SQLSERVER.outbox_names(SQLSERVER.outbox_table("Sales.]Orders", "my schema")),
    )
    return as_sent(statement)


def as_sent(statement: Statement) -> str:
    """A statement as pyodbc sends it."""
    return statement.bound("qmark", dict.fromkeys(statement.parameters))[0]


def reading(name: str, columns: tuple[str, ...], table: Table = HOSTILE) -> str:
    found = QueueTable(
        table=table,
        name="orders",
        object_id=1,
        identity="1",
        columns=tuple(Column(each, "", True, False) for each in columns),
        database="sh[op",
    )
    return as_sent(queues.read_statement(SQLSERVER, found, name))


TEXTS = {
    **{name: rendered(name) for name in NAMES if name not in READING | HALVES},
    **{
        f"{name}, {shape}": reading(name, columns)
        for name in sorted(READING)
        for shape, columns in SHAPES.items()
    },
    **{
        f"{name}, counted": f"{rendered(name)};\nSELECT @@ROWCOUNT"
        for name in (
            "insert",
            "delayed_send",
            "outbox_add",
            "outbox_clean",
            "stage_insert",
            "stage_seal",
            "stage_move",
            "stage_try",
            "subscribe",
            "unsubscribe",
        )
    },
    **{
        f"a neighbour's {name}": text.format(
            queue="[my schema].[or]]ders]", delayed="[orders.Delayed]", subscriptions="[Sub]", topics="?, ?"
        )
        for name, text in vars(neighbour_statements.SQLSERVER).items()
    },
    "foreign_code, within": re.findall(r"N'((?:[^']|'')*)'", rendered("foreign_code"))[-2].replace("''", "'"),
    "script of queues": scripts.create(
        "sqlserver", [str(HOSTILE), "orders"], subscriptions=True, default_schema="my ]schema"
    ),
    **{
        f"script of a {role}'s rights": rights.script(
            SQLSERVER, "SHOP\\my ]user", [(name, HOSTILE) for name in (role, "outbox", "stage", *more)]
        )
        for role, more in (("receiver", ["subscriber"]), ("sender", ["publisher"]), ("installer", []))
    },
    "script of an outbox": outbox_tables.script("sqlserver", "Sales.It's ]odd"),
}

BROKEN = {
    "a parenthesis that does not close": (
        "DELETE q FROM t AS q WITH (ROWLOCK, FORCESEEK WHERE q.RowVersion = ?"
    ),
    "a misspelled hint": "SELECT a FROM t WITH (UPDLOCK, REDPAST) WHERE a = ?",
    "a hint of another engine": "SELECT a FROM t WHERE a = ? FOR UPDATE SKIP LOCKED",
    "a limit of another engine": "SELECT a FROM t ORDER BY a LIMIT 5",
    "an answer of another engine": "DELETE FROM t WHERE a = ? RETURNING a",
    "a misspelled join hint": "SELECT t.a FROM t INNER LOP JOIN u ON u.a = t.a",
    "columns of JSON without a comma": "SELECT a FROM OPENJSON(?) WITH (a bigint '$[0]' b bigint '$[1]')",
    "an unfinished FETCH": "SELECT a FROM t ORDER BY a OFFSET 0 ROWS FETCH NEXT ? ROWS",
    "an OFFSET without an order": "SELECT a FROM t OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY",
    "an empty OUTPUT": "DELETE FROM t OUTPUT WHERE a = ?",
    "a common table expression for nothing": "WITH batch AS (SELECT 1 AS a)",
    "a CASE that does not end": "SELECT CASE WHEN a = ? THEN 2 FROM t",
    "a CAST without AS": "SELECT CAST(a int) FROM t",
    "a procedure's argument without =": "EXEC @got = sys.sp_getapplock @Resource = ?, @LockMode 'Exclusive'",
    "a block that does not end": "IF @got < 0 BEGIN; THROW 51000, N'no', 1;",
    "a list that ends with a comma": "SELECT a, FROM t",
    "a list of columns that does not close": "INSERT INTO t (a, b VALUES (?, ?)",
    "an UPDATE that sets nothing": "UPDATE t WITH (ROWLOCK) Headers = ? WHERE Task = ''",
    "a misspelled filter": "CREATE UNIQUE NONCLUSTERED INDEX i ON t (Task) WERE Task = ''",
    "a misspelled key": "CREATE TABLE t (a int NOT NULL PRIMRY KEY NONCLUSTERED)",
    "TRUNCATE of no table": "TRUNCATE [dbo].[t]",
    "a text that does not close": "SELECT N'a FROM t",
    "a condition that does not end": "SELECT a FROM t WHERE a = ? AND",
    "a name that is not quoted": "SELECT a FROM or]ders",
}
