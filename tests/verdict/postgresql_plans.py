"""Plans on PostgreSQL: EXPLAIN in the package's own sessions.

Of empty tables, of 100,000 real rows with the statistics of the empty tables,
and of these rows after ANALYZE.

A statement has two plans: one for the values that it gets, and one for any values, which the server may take
from a prepared statement's sixth run on.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.open_connection import connect
from sqlqueue_spark.engines.statements import Parameters, Statement
from tests.verdict import plans
from tests.verdict.places import Place
from tests.verdict.plans import TABLES, Plan
from tests.verdict.probes import Verdict
from tests.verdict.said import DESTINATION, QUEUE, Tables, create

ROWS = 100_000
INDEXES = {
    "row version": f"{QUEUE}_seq_key",
    "expires": f"{QUEUE}_seq_key",  # there is no other; see the statement
    "message id": "Verdict_OutboxData_pkey",
    "dispatched at": "Verdict_OutboxData_DispatchedAt",
    "oldest": "Verdict_OutboxData_DispatchedAt",
    "mark": "Verdict.Outgoing_task_idx",
    "due": "Verdict.Delayed_Due",
}
#: In an empty outbox the other index costs the same.
EMPTY_INDEXES = {**INDEXES, "oldest": "Verdict_OutboxData_Dispatched"}
_EXPLAIN = "EXPLAIN (FORMAT JSON) "
_FILL_OUTBOX = f"""
INSERT INTO "Verdict_OutboxData" ("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion",
  "Operations")
SELECT lpad(number::text, 36, '0'), true, now() AT TIME ZONE 'UTC' - interval '1 hour' * (number % 400),
       'sqlqueue 0.2.0', '[]'
FROM generate_series(1, {ROWS}) AS number
"""
_FILL_DELAYED = f"""
INSERT INTO "Verdict.Delayed" (headers, body, due)
SELECT repeat('h', 500), repeat('b', 200)::bytea, now() + interval '1 minute' * (number - 1000)
FROM generate_series(1, {ROWS}) AS number
"""
#: What the statistics of the empty table do to a table that has filled since.
KNOWN_STALE: Mapping[str, str] = {}
#: How long a statement may take that was only said to see its plan.
_PATIENCE = timedelta(seconds=2)
_BULK = ("insert", "stage_insert")


def verdicts(place: Place) -> list[Verdict]:
    """The plans of empty tables, and of full ones."""
    queue, _ = (place.new_queue(name) for name in (QUEUE, DESTINATION))
    with connect(place.target(command_timeout=_PATIENCE)) as connection:
        tables = create(connection)
        empty = of_empty_tables(connection, tables)
        place.engine.execute("ANALYZE")
        queue.insert(ROWS)
        place.engine.execute(_FILL_OUTBOX)
        place.engine.execute(_FILL_DELAYED)
        stale = _looks(connection, f"{ROWS:,} rows, statistics of the empty tables")
        full = _looks(connection, f"{ROWS:,} rows, statistics of these rows")
        found = plans.verdicts(connection, tables, stale, INDEXES, KNOWN_STALE)
        place.engine.execute("ANALYZE")
        return [*empty, *found, *plans.verdicts(connection, tables, full, INDEXES)]


def of_empty_tables(connection: Connection, tables: Tables) -> list[Verdict]:
    return plans.verdicts(connection, tables, _looks(connection, "empty tables"), EMPTY_INDEXES)


def _looks(connection: Connection, where: str) -> dict[str, plans.Look]:
    def looking(explain: Callable[[Connection, Statement, Parameters], Any]) -> plans.Look:
        return lambda name, statement, parameters: (
            None if name in _BULK else read(explain(connection, statement, parameters))
        )

    return {where: looking(_for_these_values), f"{where}, plan for any values": looking(_for_any_values)}


def _for_these_values(connection: Connection, statement: Statement, parameters: Parameters) -> Any:
    first, *rest = statement.parts
    return connection.execute(replace(statement, parts=(_EXPLAIN + first, *rest)), parameters)[0][0]


def _for_any_values(connection: Connection, statement: Statement, _: Parameters) -> Any:
    names = list(dict.fromkeys(statement.parameters))
    text = statement.written_out({name: f"${number}" for number, name in enumerate(names, 1)})
    connection.execute("SELECT set_config('plan_cache_mode', 'force_generic_plan', true)")
    connection.execute(f"PREPARE verdict AS {text}")
    given = f"({', '.join(['NULL'] * len(names))})" if names else ""
    found = connection.execute(f"{_EXPLAIN}EXECUTE verdict{given}")[0][0]
    connection.execute("DEALLOCATE verdict")
    connection.execute("SELECT set_config('plan_cache_mode', 'auto', true)")
    return found


def read(explained: Any) -> Plan:
    """The answer of EXPLAIN (FORMAT JSON)."""
    whole = json.loads(explained) if isinstance(explained, str | bytes) else explained
    nodes = list(_nodes(whole[0]["Plan"]))
    used = [str(each["Index Name"]) for each, _ in nodes if "Index Name" in each]
    looked_up = [
        name for each, _ in nodes for name in each.get("Conflict Arbiter Indexes", ())
    ]  # ON CONFLICT
    return Plan(
        indexes=frozenset([*used, *looked_up]),
        scans=frozenset(
            str(each["Relation Name"]) for each, limited in nodes if _scans(each) and not limited
        ),
        parallel=any(each.get("Parallel Aware") for each, _ in nodes),
    )


def _scans(node: Mapping[str, Any]) -> bool:
    """Whether a node reads a table from end to end; an index without a condition is one way to do it."""
    if node.get("Relation Name") not in TABLES:
        return False
    if "Index Scan" in node["Node Type"] or "Index Only Scan" in node["Node Type"]:
        return "Index Cond" not in node
    return "Seq Scan" in node["Node Type"]


def _nodes(node: Mapping[str, Any], limited: bool = False) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """The nodes of a plan, each with whether a limit above it ends its work."""
    yield node, limited
    sorts = node["Node Type"] in (
        "Sort",
        "Aggregate",
        "WindowAgg",
    )  # these want all rows, whatever stands above
    for below in node.get("Plans", ()):
        yield from _nodes(below, (limited or node["Node Type"] == "Limit") and not sorts)
