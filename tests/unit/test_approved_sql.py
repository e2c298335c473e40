"""The statements of every engine: twins, said and documented; and as they are sent,
where a rule of ours chooses columns.

``SQLQUEUE_APPROVE=1`` writes what is now sent to tests/approved/.
"""

import logging
import os
import re
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from sqlqueue_spark.engines.engine_of_url import DIALECTS, OUTBOX_DATABASES
from sqlqueue_spark.engines.statements import Statement, read
from sqlqueue_spark.messages.addresses import Table

ROOT = Path(__file__).parents[2]
APPROVED = ROOT / "tests" / "approved"
NAMES = {engine: sorted(each.statements()) for engine, each in OUTBOX_DATABASES.items()}
STATEMENTS = [(engine, name) for engine, names in NAMES.items() for name in names]
#: Where columns are filled in, not only names of tables.
CHOSEN = [
    (engine, name)
    for engine, name in STATEMENTS
    if re.search(r"\{(columns|Recoverable)\}", str(OUTBOX_DATABASES[engine].statement(name)))
]

# T-SQL has a test of its own (test_tsql_scriptdom.py).
GRAMMARS = {"postgresql": "postgres", "mysql": "mysql", "oracle": "oracle"}
# sqlglot does not know these: procedure calls, maintenance, the halves of a script.
UNREADABLE = {
    ("postgresql", "attempt_check"),  # constraints of a transaction
    ("postgresql", "insert"),  # COPY
    ("postgresql", "code_lock"),  # LOCK TABLE
    ("postgresql", "stage_insert"),
    ("postgresql", "stage_storage"),  # where columns are stored
    ("postgresql", "stage_seal"),  # its $1 is taken for the beginning of a quoted text
    ("postgresql", "remedy_autovacuum"),
    ("postgresql", "remedy_fsync"),
    ("postgresql", "remedy_numbers"),
    ("postgresql", "remedy_space"),
    ("postgresql", "clean_indexes"),  # the options of VACUUM
    ("postgresql", "look_lock"),
    ("mysql", "outbox_add"),  # a character set in JSON_TABLE
    ("mysql", "outbox_add_new"),
    ("mysql", "outbox_seen_of"),
    ("mysql", "outbox_seen"),
    ("oracle", "outbox_create"),  # PL/SQL
    ("oracle", "script_end"),
}


def rendered(engine: str, name: str) -> Statement:
    dialect = OUTBOX_DATABASES[engine]
    quote = dialect.quote
    schema = dialect.default_schema or "sales"
    return dialect.render(
        name,
        queue=dialect.table(Table(table="orders", schema=schema)),
        stage=dialect.table(Table(table="billing.Outgoing", schema=schema)),
        delayed=dialect.table(Table(table="orders.Delayed", schema=schema)),
        catalog=quote("shop"),
        key=quote("seq"),
        schema=quote("sales"),
        user=quote("shop"),
        index=quote("Index_RowVersion"),
        mark=quote("billing.Outgoing_task_idx"),
        attempt=quote("attempt 1"),
        subscriptions=dialect.table(Table(table="SubscriptionRouting", schema=schema)),
        sequence=dialect.table(Table(table="orders_seq_seq", schema=schema)),
        columns=", ".join(quote(column) for column in ("Id", "Recoverable", "Expires", "Headers", "Body")),
        values=", ".join(quote(column) for column in ("Id", "Recoverable", "Expires", "Headers", "Body")),
        time=quote("expires"),
        in_transit="NULL",
        largest_row="1000000000",
        CorrelationId="NULL",
        ReplyToAddress="NULL",
        Recoverable=quote("Recoverable"),
        **dialect.outbox_names(dialect.outbox_table("Sales.Orders")),
    )


def readable(engine: str, name: str) -> bool:
    statement = rendered(engine, name)
    placeholder = "$1" if engine == "postgresql" else "?"  # `?::text` is an operator to sqlglot
    text = statement.written_out(dict.fromkeys(statement.parameters, placeholder))
    try:
        found = sqlglot.parse(text, read=GRAMMARS[engine], error_level=ErrorLevel.RAISE)
    except (sqlglot.ParseError, sqlglot.errors.TokenError):
        return False
    return not any(isinstance(statement, exp.Command) for statement in found)


#: What people run, in sessions of their own: remedies, and what stands in a script.
PRINTED = re.compile("grants_|remedy_|script_|create(_heap|_schema)?$|stage_storage|.*_create|.*_index(_|$)")


@pytest.mark.parametrize("name", [*filter(PRINTED.match, NAMES["postgresql"])])
def test_what_people_run_names_each_function_and_operator_in_full(name):
    """Their search_path may begin with any schema."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "''", str(rendered("postgresql", name)))
    text = re.sub(r"OPERATOR\(pg_catalog\.\S+\)|pg_catalog\.\w+(?=\()", "", text)
    syntax = r"\b(?:coalesce|varchar|OPERATOR)\(|\b(?:SET|,) \w+ =|,\n +\w+ =|SET fsync ="
    assert re.findall(r"\w+\(|[-+*/<>=~!@#%^&|`?]+", re.sub(syntax, "", text)) == []


@pytest.mark.parametrize("dialect,name", CHOSEN)
def test_a_statement_with_chosen_columns_is_approved(dialect, name):
    file = APPROVED / dialect / f"{name}.sql"
    said = f"{rendered(dialect, name)}\n"
    if os.environ.get("SQLQUEUE_APPROVE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(said, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == said


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_is_approved_that_is_no_longer_said(dialect):
    approved = sorted(path.stem for path in (APPROVED / dialect).glob("*.sql"))
    assert approved == [name for engine, name in CHOSEN if engine == dialect]


def parameters(engine, name):
    return set(OUTBOX_DATABASES[engine].statement(name).parameters)


def test_twins_call_a_parameter_the_same():
    """A twin may need fewer of them. Many rows, or tables, are bound in the engine's own way."""
    different = {
        name
        for name in NAMES["postgresql"]
        if not parameters("sqlserver", name) <= parameters("postgresql", name)
        and not parameters("postgresql", name) <= parameters("sqlserver", name)
    }
    moved = {"delayed_headers", "delayed_send"}
    assert different == moved | {"delete", "foreign_code", "headers_of", "ids", "lock", "lock_in_transit"}
    assert [name for name in NAMES["mysql"] if parameters("mysql", name) != parameters("oracle", name)] == []


def test_no_parameter_is_a_reserved_word_of_oracle():
    """Error ORA-01745."""
    reserved = {"date", "index", "level", "mode", "number", "order", "rows", "table", "uid", "user", "values"}
    assert set().union(*(parameters("oracle", name) for name in NAMES["oracle"])) & reserved == set()


def test_the_engines_are_twins():
    assert NAMES["postgresql"] == NAMES["sqlserver"]
    shared = [name for name in NAMES["postgresql"] if name.startswith(("outbox_", "script_"))]
    assert {engine: names for engine, names in NAMES.items() if engine not in DIALECTS} == {
        "mysql": shared,
        "oracle": shared,
    }


def test_the_locks_of_a_statement_are_documented():
    """Those of each statement for SQL Server, in docs/sqlserver-locking.md."""
    review = (ROOT / "docs" / "sqlserver-locking.md").read_text(encoding="utf-8")
    said = [name for name in NAMES["sqlserver"] if OUTBOX_DATABASES["sqlserver"].statement(name)]
    assert [name for name in said if f"`{name}`" not in review] == []


@pytest.mark.parametrize("dialect,name", STATEMENTS)
def test_a_statement_says_what_it_does(dialect, name):
    text = "".join(file.read_text(encoding="utf-8") for file in files(dialect))
    said = OUTBOX_DATABASES[dialect].statement(name)
    head = rf"^-- name: {name}\n-- \S" if said else rf"^-- none: {name} · \S"
    assert re.search(head, text, re.MULTILINE)


def files(engine):
    return sorted(Path(str(OUTBOX_DATABASES[engine].sql)).glob("*.sql"))


@pytest.mark.parametrize("file", [file for engine in OUTBOX_DATABASES for file in files(engine)], ids=str)
def test_a_file_opens_with_name_engine_and_task(file):
    first = file.read_text(encoding="utf-8").splitlines()[0]
    titles = [each.title for each in OUTBOX_DATABASES.values()]
    assert any(first.startswith(f"-- {file.name} · {title} · ") for title in titles)


def test_twins_have_the_same_file_and_place():
    def named(engine):
        return {
            file.name: re.findall(r"^-- (?:name|none): (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
            for file in files(engine)
        }

    assert named("postgresql") == named("sqlserver")
    shared = {"outbox.sql": named("postgresql")["outbox.sql"], "admin.sql": ["script_begin", "script_end"]}
    assert named("mysql") == named("oracle") == shared


def test_a_name_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "a.sql").write_text("-- name: one\n-- says so\nSELECT 1\n\n-- none: two · says why\n")
    assert read(tmp_path) == {
        "one": Statement(("SELECT 1",), "one"),
        "two": Statement(("",), "two"),
    }
    assert [bool(each) for each in read(tmp_path).values()] == [True, False]
    (tmp_path / "b.sql").write_text("-- name: two\nSELECT 2\n")
    with pytest.raises(ValueError, match=r"^The statement two stands twice in "):
        read(tmp_path)


def test_what_statements_share_stands_in_each_of_them(tmp_path):
    """It may stand in any file, with its own identifiers and parameters, and without its comment."""
    (tmp_path / "a.sql").write_text("-- name: one\n-- says so\nSELECT {columns}\nFROM {queue}\n")
    (tmp_path / "b.sql").write_text("-- shared: columns\n-- of a row\n{id},\n       :number\n")
    assert read(tmp_path) == {"one": Statement(("SELECT {id},\n       ", "number", "\nFROM {queue}"), "one")}


@pytest.mark.parametrize("dialect,name", [each for each in STATEMENTS if each[0] in GRAMMARS])
def test_a_statement_can_be_read_by_a_parser(dialect, name, caplog):
    with caplog.at_level(logging.CRITICAL, logger="sqlglot"):
        assert readable(dialect, name) is ((dialect, name) not in UNREADABLE)
