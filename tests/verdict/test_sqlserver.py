"""What can be known of the experiments on SQL Server without one: they speak T-SQL, come to an end,
and read what it answers.
"""

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyodbc", reason="pyodbc cannot be loaded here; install unixODBC")

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.statements import Statement
from tests.verdict import (
    held,
    plans,
    sqlserver_held,
    sqlserver_plans,
    sqlserver_run,
    sqlserver_statement_rules,
)
from tests.verdict.plans import Plan
from tests.verdict.probes import Outcome
from tests.verdict.sqlserver import Settings, SqlServerPlace, SqlServerSession

DOCS = Path(__file__).parents[2] / "docs"
REVIEW = (DOCS / "sqlserver-locking.md").read_text(encoding="utf-8")
RULES = {each.id: each for each in sqlserver_run.rules()}
OFF = Settings(row_versions=False, optimized=None)
SHAPES = ("classic", "heap", "bloated heap")


class Answering(SqlServerSession):
    """A session that writes down what it is told, and answers everything with one row."""

    def __init__(self, told):
        self.told = told
        self.id = 51

    def rows(self, statement, *values):
        self.told.append((statement, values))
        return [(1, 0, "S", 4)]

    def start(self, statement):
        self.told.append((statement, ()))

    def finish(self): ...

    @contextlib.contextmanager
    def hurried(self, _):
        yield

    def commit(self): ...

    def rollback(self): ...

    def close(self): ...


class Imagined(SqlServerPlace):
    """A place without a server."""

    def __init__(self, shape="heap", settings=OFF):
        super().__init__("", shape, settings)
        self.told = []

    def connect(self):
        return Answering(self.told)

    def new_queue(self, name):
        return SimpleNamespace(schema="dbo", name=name, insert=lambda *_, **__: None)


@pytest.fixture
def alone(monkeypatch):
    """No connection is made."""

    @contextlib.contextmanager
    def connected(*_, **__):
        yield SimpleNamespace(execute=lambda *_: None)

    monkeypatch.setattr(sqlserver_statement_rules, "connected", connected)


def refused(texts):
    """The names of the texts that Microsoft's parser of SQL Server 2016 or a later one does not take."""
    from tests.support import scriptdom
    from tests.support.tsql import named

    if (why := scriptdom.missing()) is not None:
        pytest.skip(f"Microsoft's parser of T-SQL cannot run: {why}")
    found = scriptdom.complaints({name: named(text) for name, text in texts.items()})
    return sorted({name for level in found.values() for name in level})


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("settings", [OFF, Settings(row_versions=True, optimized=True)], ids=str)
def test_an_experiment_comes_to_its_end(alone, name, settings):
    place = Imagined(settings=settings)
    with place.experiment():
        outcome = RULES[name].verdict(place, "heap").outcome
    assert outcome is not Outcome.BROKE_OFF
    assert [text for text, values in place.told if text.count("?") != len(values)] == []


def test_microsoft_s_parser_takes_what_each_experiment_says(alone):
    """Each text, as SQL Server 2016 and later read it."""
    from tests.support import scriptdom
    from tests.support.tsql import named

    if (reason := scriptdom.missing()) is not None:
        pytest.skip(f"Microsoft's parser of T-SQL cannot run: {reason}")
    said = {"the locks": named(sqlserver_held._LOCKS)}
    for settings in (OFF, Settings(row_versions=True, optimized=True)):
        for name, rule in RULES.items():
            place = Imagined(settings=settings)
            with place.experiment():
                rule.verdict(place, "heap")
            said |= {
                f"{name}, {settings}, {number}": named(text) for number, (text, _) in enumerate(place.told)
            }
    assert len(said) > len(RULES)
    complaints = scriptdom.complaints({**said, "a slip": "SELECT a FROM t WITH (REDPAST)"})
    assert [list(found) for found in complaints.values()] == [["a slip"]] * len(complaints)


def rules_of_the_review():
    """The lines of the first table: number, rule, source, experiments."""
    table = REVIEW.partition("\n| | | source | shown by |\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[1:]]


def test_each_rule_of_the_review_has_a_source_or_an_experiment():
    rules = rules_of_the_review()
    assert [int(number) for number, *_ in rules] == list(range(1, len(rules) + 1))
    assert [number for number, _, source, shown in rules if not (source or shown)] == []
    named = [name for *_, shown in rules for name in re.findall(r"`([^`]+)`", shown)]
    assert [name for name in named if name not in RULES] == []
    assert RULES.keys() - named == set()


def test_each_id_that_the_review_names_is_there():
    ids = {*RULES, *(f"plan:{name}" for name in plans.WAYS), "locks:", "plan:"}
    named = re.findall(r"`((?:plan:|locks:)\w*|[a-z]+(?:-[a-z0-9]+)+)`", REVIEW)
    assert [name for name in named if name not in ids] == []


def test_an_id_is_given_once():
    assert len(RULES) == len(sqlserver_run.rules())


@pytest.mark.parametrize("settings", [OFF, Settings(row_versions=True, optimized=None)], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_step_expects_locks(shape, settings):
    """Where reads see row versions, a claim has deleted its rows."""
    found = sqlserver_held.expected(Imagined(shape, settings))
    assert tuple(found) == held.STEPS
    assert [dict(each) for each in found["idle"].locks] == [{}]
    (claim, *_) = found["claimed"].locks
    mode = "X" if settings.row_versions else "U"
    keys = {"orders": "IX", "orders keys of Index_RowVersion": f"7 {mode}"}
    rows = {} if shape == "classic" else {"orders rows": f"7 {mode}"}
    expires = {"orders keys of Index_Expires": "7 X"} if settings.row_versions and shape == "classic" else {}
    assert claim == {**keys, **rows, **expires}


def test_the_words_for_locks_stand_in_the_review():
    assert [words for words in sqlserver_held.WORDS.values() if words not in REVIEW] == []
    assert sqlserver_held.WORDS.keys() == set(held.STEPS)


def test_locks_are_asked_for_in_tsql():
    assert refused({"locks": sqlserver_held._LOCKS}) == []


def test_locks_are_said_in_short():
    rows = [
        ("OBJECT", "orders", "", "IX", 1),
        ("OBJECT", "orders", "", "IS", 1),
        ("KEY", "orders", "Index_RowVersion", "U", 7),
        ("KEY", "orders", "Index_RowVersion", "S", 1),
        ("RID", "orders", "", "U", 7),
        ("APPLICATION", "", "", "X", 1),
        ("XACT", "", "", "X", 1),
    ]
    assert sqlserver_held.told(rows) == {
        "application lock": "X",
        "orders": "IS, IX",
        "orders keys of Index_RowVersion": "7 U",
        "orders rows": "7 U",
        "transaction": "X",
    }


def test_with_optimized_locking_x_may_stand_on_the_transaction():
    settling = sqlserver_held.expected(Imagined("heap", Settings(row_versions=True, optimized=True)))[
        "settling"
    ]
    assert settling.locks == (
        {"orders": "IX", "transaction": "X"},
        {"orders": "IX", "transaction": "X", "orders keys of Index_RowVersion": "7 U", "orders rows": "7 U"},
        {"orders": "IX", "orders keys of Index_RowVersion": "7 X", "orders rows": "7 X", "transaction": "X"},
    )


# Written after the schema of the manual, with the attributes that are read; no server has made them.
SHOWPLAN = """<?xml version="1.0" encoding="utf-16"?>
<ShowPlanXML xmlns="http://schemas.microsoft.com/sqlserver/2004/07/showplan" Version="1.539">
 <BatchSequence><Batch><Statements><StmtSimple StatementText="SELECT"><QueryPlan>{memory}
  {warning}
  <RelOp PhysicalOp="{first}" LogicalOp="{first}" Parallel="{parallel}">
   <{element}>
    <RelOp PhysicalOp="{operator}" LogicalOp="{operator}" Parallel="0">
     <IndexScan Ordered="1" ForcedIndex="0" ForceSeek="1" Storage="RowStore">
      <Object Database="[shop]" Schema="[dbo]" Table="[orders]" Index="[Index_RowVersion]" \
IndexKind="NonClustered"/>
      {seek}
     </IndexScan>
    </RelOp>
    <RelOp PhysicalOp="RID Lookup" LogicalOp="RID Lookup" Parallel="0">
     <IndexScan Lookup="1" Ordered="1"><Object Database="[shop]" Schema="[dbo]" Table="[orders]" \
IndexKind="Heap"/></IndexScan>
    </RelOp>
   </{closing}>
  </RelOp>
 </QueryPlan></StmtSimple></Statements></Batch></BatchSequence>
</ShowPlanXML>"""
CONVERT = """<SeekPredicates><SeekPredicateNew><SeekKeys><Prefix><RangeExpressions><ScalarOperator>
<Convert DataType="datetime2" Implicit="1"><ScalarOperator><Identifier>\
<ColumnReference Table="[orders]" Column="Expires"/>
</Identifier></ScalarOperator></Convert></ScalarOperator></RangeExpressions></Prefix></SeekKeys>\
</SeekPredicateNew></SeekPredicates>"""
WARNING = """<Warnings><PlanAffectingConvert ConvertIssue="Seek Plan"
Expression="CONVERT_IMPLICIT(nvarchar(200),[o].[MessageId],0)=[j].[MessageId]"/></Warnings>"""


def showplan(
    *,
    first="Nested Loops",
    element="NestedLoops",
    operator="Index Seek",
    seek="",
    memory="",
    warning="",
    parallel="0",
):
    text = SHOWPLAN.format(
        first=first,
        element=element,
        closing=element.split()[0],
        operator=operator,
        seek=seek,
        memory=memory,
        warning=warning,
        parallel=parallel,
    )
    return [text.partition("?>")[2]]


RIGHT = Plan(
    indexes=frozenset({"Index_RowVersion"}),
    conversions=frozenset(),
    memory_kb=0,
    reads_ahead=False,
)


@pytest.mark.parametrize(
    "given,changed",
    [
        ({}, {}),
        ({"element": 'NestedLoops WithOrderedPrefetch="1"'}, {"reads_ahead": True}),
        ({"element": 'NestedLoops WithUnorderedPrefetch="true"'}, {"reads_ahead": True}),
        ({"operator": "Index Scan"}, {"scans": frozenset({"orders"})}),
        ({"operator": "Index Scan", "first": "Top", "element": "Top"}, {}),
        ({"operator": "Index Scan", "first": "Sort", "element": "Sort"}, {"scans": frozenset({"orders"})}),
        ({"parallel": "1"}, {"parallel": True}),
        (
            {"memory": '<MemoryGrantInfo SerialRequiredMemory="512" SerialDesiredMemory="5632"/>'},
            {"memory_kb": 5632},
        ),
        ({"seek": CONVERT}, {"conversions": frozenset({"Expires"})}),
        ({"warning": WARNING}, {"conversions": frozenset({"MessageId"})}),
    ],
)
def test_a_plan_is_read(given, changed):
    assert sqlserver_plans.read(showplan(**given)) == Plan(**{**vars(RIGHT), **changed})


@pytest.mark.parametrize(
    "given", [{"operator": "Index Scan"}, {"element": 'NestedLoops WithOrderedPrefetch="1"'}]
)
def test_a_plan_that_locks_more_than_it_returns_is_found_out(given):
    (probe,) = (
        each
        for each in plans.probes(
            sqlserver_plans.INDEXES, {"claim": sqlserver_plans.read(showplan(**given))}, {}
        )
        if each.id == "plan:claim"
    )
    assert probe.verdict(None, "heap").outcome is Outcome.DOES_NOT_HOLD


def test_a_statement_is_explained_with_what_the_driver_declares():
    statement = Statement.parse("SELECT RowVersion FROM [dbo].[it's] WHERE RowVersion > :after AND Id = :id")
    given = {"after": -7, "id": "o'"}
    assert sqlserver_plans.as_executed(statement, given) == (
        "EXEC sys.sp_executesql N'SELECT RowVersion FROM [dbo].[it''s] WHERE RowVersion > @given_after AND "
        "Id = @given_id', N'@given_after bigint, @given_id nvarchar(4000)', @given_after = -7, "
        "@given_id = N'o'''"
    )
    assert sqlserver_plans.as_declared(statement, {**given, "id": "x" * 2_001}).startswith(
        "DECLARE @given_after bigint = -7;\nDECLARE @given_id nvarchar(max) = N'xxx"
    )
    assert sqlserver_plans.as_executed(Statement.parse("SELECT 1"), {}) == "SELECT 1"


def test_each_plan_is_told_in_tsql():
    from tests.support.tsql import NAMES, READING

    told = {}
    for name in sorted(plans.WAYS.keys() & set(NAMES) - READING):
        statement = SQLSERVER.statement(name)
        parts = [
            part if number % 2 else re.sub(r"\{(\w+)\}", r"[\1]", part)
            for number, part in enumerate(statement.parts)
        ]
        statement = Statement(tuple(parts))
        given = {
            each: 7 if each in ("after", "count", "up_to") else "[[1,2]]" for each in statement.parameters
        }
        told[f"{name}, declared"] = sqlserver_plans.as_declared(statement, given)
        told[f"{name}, executed"] = sqlserver_plans.as_executed(statement, given)
    assert refused(told) == []
