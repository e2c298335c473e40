"""Every T-SQL text that is ever sent or printed is read by a grammar of T-SQL: a slip shows without a server.

The grammar is that of github.com/antlr/grammars-v4, compiled in pytsql. Of those that can be had from Python it is the
strictest: sqlglot takes any word for a hint, and sqlfluff reads ``LIMIT 5`` and ``TRUNCATE orders`` as statements.
"""

import re
from typing import NamedTuple

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.dialects import SQLSERVER
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import ddl, queues, rights
from sqlqueue_spark.tables.queues import OPTIONAL_COLUMNS, QueueTable
from tests.support.neighbour import statements as neighbour_statements

grammar = pytest.importorskip(
    "pytsql.grammar",
    reason="pytsql, the grammar of T-SQL, is not here; make setup installs it where it has a wheel",
)
antlr4 = pytest.importorskip("antlr4")

NAMES = sorted(SQLSERVER.statements())

#: Names that are legal, and would be anything but a name if they were not quoted.
HOSTILE = Table(table="or]ders' -- ; DROP", schema="my schema", catalog="sh[op")
#: With all the columns that not every table has, and without any.
SHAPES = {"full": OPTIONAL_COLUMNS, "bare": ()}
READING = {"read", "read_unexpired", "read_versions", "peek", "take"}
#: They are read as parts of whole scripts.
HALVES = {"script_begin", "script_end"}


class Unknown(NamedTuple):
    """Legal T-SQL that the grammar does not know, what it does know in its place, and the page that says it is legal."""

    text: str
    known: str
    page: str


UNKNOWN = (
    Unknown(
        " REBUILD",
        " REBUILD WITH (FILLFACTOR = 100)",
        "https://learn.microsoft.com/sql/t-sql/statements/alter-table-transact-sql#rebuild",
    ),
    Unknown(
        "MAX_GRANT_PERCENT = 10",
        "MAXDOP 1",
        "https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-query#max_grant_percent--numeric_value",
    ),
)

#: A hint beside the target itself that may stand in a FROM clause only (errors 10724, 10745, 1069):
#: https://learn.microsoft.com/previous-versions/sql/sql-server-2008/bb510478(v=sql.100)
PATH_BESIDE_TARGET = re.compile(
    r"\b(?:DELETE(?:\s+FROM)?|UPDATE|INTO)\s+(?:\[(?:[^\]]|\]\])*\]|[\w.])+\s+WITH\s*\([^)]*\b(?:FORCESEEK|FORCESCAN|INDEX)\b"
)
HINTS = re.compile(r"\bWITH\s*\(((?:\s*[A-Z]+\s*,?)+)\)")


class RefusedError(Exception):
    pass


def refuse(_, *where_and_what):
    raise RefusedError(*where_and_what[-3:])


LISTENER = type("Listener", (grammar.SA_ErrorListener,), {"syntaxError": refuse})


def complaint(text):
    """What the grammar has against a text, as the driver sends it: with names in the place of question marks."""
    numbers = iter(range(1, 100))
    named = re.sub(r"(\[(?:[^\]]|\]\])*\]|'(?:[^']|'')*')|\?", lambda m: m[1] or f"@P{next(numbers)}", text)
    try:
        grammar.parse(antlr4.InputStream(data=named), "tsql_file", LISTENER())
    except RefusedError as error:
        return str(error)
    return None


def rendered(name, table=HOSTILE):
    if name in ("session", "lock_timeout", "remedy_transaction"):
        return SQLSERVER.statement(name).with_numbers({"lock_timeout": 30_000, "session": 51})
    quote = SQLSERVER.quote
    statement = SQLSERVER.render(
        name,
        queue=SQLSERVER.table(table),
        stage=SQLSERVER.table(Table(table="bill]ing.Outgoing", schema="my schema")),
        catalog=quote("sh[op"),
        schema=quote("my schema"),
        user=quote("SHOP\\my ]user"),
        index=quote("Index]2"),
        columns=", ".join(map(quote, ("Id", "Recoverable", "Expires", "Headers", "Body"))),
        **SQLSERVER.outbox_names("my schema", SQLSERVER.outbox_table("Sales.]Orders")),
    )
    return as_sent(statement)


def as_sent(statement):
    """A statement as pyodbc sends it."""
    return statement.bound("qmark", dict.fromkeys(statement.parameters))[0]


def reading(name, columns, table=HOSTILE):
    found = QueueTable(
        table=table, name="orders", object_id=1, identity="1", columns=columns, database="sh[op"
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
            "outbox_add",
            "outbox_clean",
            "stage_insert",
            "stage_seal",
            "stage_move",
            "stage_try",
        )
    },
    **{
        f"a neighbour's {name}": text.format(
            queue="[my schema].[or]]ders]", delayed="[orders.Delayed]", subscriptions="[Sub]", topics="?, ?"
        )
        for name, text in vars(neighbour_statements.SQLSERVER).items()
    },
    "script of queues": ddl.script(SQLSERVER, [HOSTILE, Table(table="orders", schema="dbo")]),
    "script of rights": "".join(
        rights.script(SQLSERVER, "SHOP\\my ]user", role, [HOSTILE], outbox=HOSTILE, stage=HOSTILE)
        for role in rights.ROLES
    ),
    "script of an outbox": outbox_tables.script("sqlserver", "Sales.It's ]odd"),
}


def test_the_grammar_is_the_compiled_one():
    assert grammar.USE_CPP_IMPLEMENTATION, "in Python it takes minutes"


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_what_the_grammar_calls_tsql(name):
    assert complaint(as_known(TEXTS[name])) is None


def as_known(text):
    """The text with what the grammar does not know replaced."""
    for each in UNKNOWN:
        text = text.replace(each.text, each.known)
    return text


@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda each: each.text.strip())
def test_what_the_grammar_has_learned_is_no_longer_replaced(unknown):
    found = [text for text in TEXTS.values() if unknown.text in text]
    assert found
    assert all(complaint(text) for text in found)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_keeps_rules_that_no_grammar_tells(name):
    assert broken_rules(TEXTS[name]) == []


def broken_rules(text):
    broken = (
        ["a way to the rows is prescribed beside the target of a change"]
        if PATH_BESIDE_TARGET.search(text)
        else []
    )
    for hints in ({each.strip() for each in found[1].split(",")} for found in HINTS.finditer(text)):
        # https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-table#readpast
        if "READPAST" in hints and not hints & {"UPDLOCK", "READCOMMITTEDLOCK"}:
            broken.append("READPAST without a lock is error 650 where READ_COMMITTED_SNAPSHOT is on")
        if len(hints & {"READPAST", "READUNCOMMITTED", "HOLDLOCK"}) > 1:
            broken.append("READPAST goes with no other isolation")
    return broken


BROKEN = {
    "a parenthesis that does not close": "DELETE q FROM t AS q WITH (ROWLOCK, FORCESEEK WHERE q.RowVersion = ?",
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


@pytest.mark.parametrize("what", BROKEN)
def test_a_slip_is_noticed(what):
    assert complaint(BROKEN[what])


@pytest.mark.parametrize(
    "text,broken",
    [
        ("DELETE FROM t WITH (FORCESEEK) WHERE a = ?", 1),
        ("UPDATE [dbo].[my queue] WITH (ROWLOCK, FORCESEEK) SET a = 1 WHERE b = ?", 1),
        ("UPDATE t WITH (ROWLOCK, INDEX (i)) SET a = 1 WHERE b = ?", 1),
        ("UPDATE t SET a = 1 FROM [my queue] AS t WITH (ROWLOCK, INDEX (i)) WHERE b = ?", 0),
        ("SELECT a FROM t WITH (READPAST, ROWLOCK) WHERE a = ?", 1),
        ("SELECT a FROM t WITH (READPAST, READUNCOMMITTED) WHERE a = ?", 2),
        ("DELETE q FROM t AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK) WHERE a = ?", 0),
    ],
)
def test_a_broken_rule_is_noticed_in_valid_tsql(text, broken):
    assert (complaint(text), len(broken_rules(text))) == (None, broken)


@pytest.mark.parametrize("name", ["claim", "delete", "take, full", "outbox_add_new", "script of queues"])
def test_each_missing_bracket_of_a_text_is_noticed(name):
    text = as_known(TEXTS[name])
    places = [at for at in range(len(text)) if text[at] == ")" and "--" not in text[:at].rpartition("\n")[2]]
    assert [at for at in places if not complaint(text[:at] + text[at + 1 :])] == []
