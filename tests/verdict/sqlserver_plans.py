"""Plans on SQL Server: SHOWPLAN_XML of each statement, of empty tables and with the
statistics of a million rows.

The server gives the plan of ``sp_executesql`` with the values that the package binds, as the driver sends it;
where it gives none for that, the plan of the same text with declared variables counts.
"""

import contextlib
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pyodbc

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import connect
from sqlqueue_spark.engines.statements import Parameters, Statement
from tests.support.sqlserver import connected
from tests.verdict import plans
from tests.verdict.plans import TABLES, Plan
from tests.verdict.probes import Verdict
from tests.verdict.said import DELAYED, DESTINATION, QUEUE, Tables, create
from tests.verdict.sqlserver import SqlServerPlace

ROWS = 1_000_000
PAGES = 250_000
INDEXES = {
    "row version": "Index_RowVersion",
    "expires": "Index_Expires",
    "message id": "PK__",  # the server adds a name of its own
    "dispatched at": "Index_DispatchedAt",
    "oldest": "Index_DispatchedAt",
    "mark": "Index_Mark",
    "due": "Index_Due",
    "delayed row": "Index_Due",
}
#: It has no hint, and an empty table may be scanned: it gets a new plan when it has filled.
UNJUDGED_EMPTY = ("outbox_oldest",)
_SPACE = {"s": "http://schemas.microsoft.com/sqlserver/2004/07/showplan"}
_TRUE = ("1", "true")


def verdicts(place: SqlServerPlace) -> list[Verdict]:
    """The plans of empty tables, and of tables that the server believes to be full."""
    for name in (QUEUE, DESTINATION):
        place.new_queue(name)
    with connect(place.target()) as connection, showing(place.url) as show:
        tables = create(connection)
        empty = _judged(connection, tables, show, f"{place.where}, empty tables", UNJUDGED_EMPTY)
        _believe_full(place.url)
        return [*empty, *_judged(connection, tables, show, f"{place.where}, {ROWS:,} rows", ())]


def _judged(
    connection: Connection, tables: Tables, show: pyodbc.Connection, where: str, unjudged: tuple[str, ...]
) -> list[Verdict]:
    def look(_: str, statement: Statement, parameters: Parameters) -> Plan:
        return read(plan_of(show, statement, parameters))

    return plans.verdicts(connection, tables, {where: look}, INDEXES, unjudged=unjudged)


@contextlib.contextmanager
def showing(url: str) -> Iterator[pyodbc.Connection]:
    """A connection on which statements are not run, but answered with their plans."""
    with connected(url, autocommit=True) as connection:
        connection.execute("SET SHOWPLAN_XML ON")
        yield connection


def _believe_full(url: str) -> None:
    with connected(url, autocommit=True) as connection:
        for table in (QUEUE, DESTINATION, DELAYED, "Verdict_OutboxData"):
            connection.execute(f"UPDATE STATISTICS dbo.[{table}] WITH ROWCOUNT = {ROWS}, PAGECOUNT = {PAGES}")
        connection.execute("ALTER DATABASE SCOPED CONFIGURATION CLEAR PROCEDURE_CACHE")


def plan_of(show: pyodbc.Connection, statement: Statement, parameters: Parameters) -> list[str]:
    """The plans of a statement with these parameters, as XML;
    of a batch with several statements it has several.
    """
    found: list[str] = []
    for text in (as_executed(statement, parameters), as_declared(statement, parameters)):
        with contextlib.closing(show.cursor()) as cursor:
            cursor.execute(text)
            found = []
            while True:
                found += [str(row[0]) for row in cursor.fetchall()] if cursor.description else []
                if not cursor.nextset():
                    break
        if any("<RelOp" in each for each in found):
            return found
    return found


def as_executed(statement: Statement, parameters: Parameters) -> str:
    """The call that Microsoft's driver makes of a statement with parameters."""
    if not statement.parameters:
        return _named(statement)
    declared = ", ".join(f"@{name} {type_}" for name, type_, _ in _given(statement, parameters))
    given = ", ".join(f"@{name} = {literal}" for name, _, literal in _given(statement, parameters))
    text = SQLSERVER.literal(_named(statement))
    return f"EXEC sys.sp_executesql {text}, {SQLSERVER.literal(declared)}, {given}"


def as_declared(statement: Statement, parameters: Parameters) -> str:
    """The same text with variables in the place of parameters."""
    declared = (
        f"DECLARE @{name} {type_} = {literal};\n" for name, type_, literal in _given(statement, parameters)
    )
    return "".join(declared) + _named(statement)


def _named(statement: Statement) -> str:
    return statement.written_out({name: f"@given_{name}" for name in statement.parameters})


def _given(statement: Statement, parameters: Parameters) -> Iterator[tuple[str, str, str]]:
    """Name, type and literal of each parameter, as the package's connection declares them."""
    for name in dict.fromkeys(statement.parameters):
        value = parameters[name]
        if isinstance(value, int):
            yield f"given_{name}", "bigint", str(value)
        else:
            text = str(value)
            yield (
                f"given_{name}",
                "nvarchar(4000)" if len(text) <= 2_000 else "nvarchar(max)",
                SQLSERVER.literal(text),
            )


def read(documents: list[str]) -> Plan:
    """The answers of SHOWPLAN_XML: https://schemas.microsoft.com/sqlserver/2004/07/showplan/."""
    trees = [ET.fromstring(each) for each in documents]  # noqa: S314 -- the server that is examined wrote it
    return Plan(
        indexes=frozenset(_bare(each.get("Index", "")) for tree in trees for each in _objects(tree)) - {""},
        scans=frozenset(table for tree in trees for table in _scanned(tree, limited=False)),
        conversions=frozenset(column for tree in trees for column in _converted(tree)),
        memory_kb=max((_memory(tree) for tree in trees), default=0),
        reads_ahead=any(
            loop.get(word) in _TRUE
            for tree in trees
            for loop in tree.iterfind(".//s:NestedLoops", _SPACE)
            for word in ("WithOrderedPrefetch", "WithUnorderedPrefetch")
        ),
        parallel=any(
            each.get("Parallel") in _TRUE for tree in trees for each in tree.iterfind(".//s:RelOp", _SPACE)
        ),
    )


def _objects(tree: ET.Element) -> Iterator[ET.Element]:
    """The indexes and tables that are read."""
    for kind in ("IndexScan", "TableScan"):
        yield from tree.iterfind(f".//s:{kind}/s:Object", _SPACE)


def _scanned(node: ET.Element, *, limited: bool) -> Iterator[str]:
    """The tables that are read from end to end: scans without a TOP above that ends them."""
    for below in node:
        if below.tag != f"{{{_SPACE['s']}}}RelOp":
            yield from _scanned(below, limited=limited)
            continue
        operator = below.get("PhysicalOp", "")
        if operator.endswith("Scan") and not limited:
            found = [
                *below.iterfind("s:IndexScan/s:Object", _SPACE),
                *below.iterfind("s:TableScan/s:Object", _SPACE),
            ]
            yield from TABLES & {_bare(each.get("Table", "")) for each in found}
        # A sort and a hash want all rows, whatever stands above them.
        wants_all = operator in ("Sort", "Hash Match", "Table Spool", "Index Spool")
        yield from _scanned(below, limited=(limited or operator == "Top") and not wants_all)


def _converted(tree: ET.Element) -> Iterator[str]:
    """The columns that are converted where an index is to be sought."""
    for convert in tree.iterfind(".//s:SeekPredicates//s:Convert", _SPACE):
        if convert.get("Implicit") in _TRUE:
            column = convert.find("s:ScalarOperator/s:Identifier/s:ColumnReference", _SPACE)
            if column is not None and _bare(column.get("Table", "")) in TABLES:
                yield column.get("Column", "")
    for warning in tree.iterfind(".//s:PlanAffectingConvert", _SPACE):
        if warning.get("ConvertIssue") == "Seek Plan":
            expression = warning.get("Expression", "")
            yield from (column for column in plans.COLUMNS.values() if f"[{column}]" in expression)


def _memory(tree: ET.Element) -> int:
    """The kilobytes that the largest statement of a batch asks for."""
    asked = (each.get("SerialDesiredMemory") or "0" for each in tree.iterfind(".//s:MemoryGrantInfo", _SPACE))
    return max(map(int, asked), default=0)


def _bare(name: str) -> str:
    return name.removeprefix("[").removesuffix("]").replace("]]", "]")
