"""Locks on SQL Server: those of sys.dm_tran_locks, beside the words of
docs/sqlserver-locking.md for each step.

Locks on pages are left out, for how many there are depends on where rows lie, and so are S on rows, of which
a reader has one at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.verdict import held
from tests.verdict.held import ROWS, Expected, Locks
from tests.verdict.places import Rows
from tests.verdict.probes import Verdict
from tests.verdict.sqlserver import SqlServerPlace, SqlServerSession

_LOCKS = """
SELECT l.resource_type, COALESCE(t.name, N''), COALESCE(i.name, N''), l.request_mode, COUNT(*)
FROM sys.dm_tran_locks AS l
JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
LEFT JOIN sys.partitions AS p ON l.resource_type IN ('KEY', 'RID')
  AND p.hobt_id = l.resource_associated_entity_id
LEFT JOIN sys.indexes AS i ON i.object_id = p.object_id AND i.index_id = p.index_id
LEFT JOIN sys.tables AS t
    ON t.object_id = CASE l.resource_type WHEN 'OBJECT' THEN l.resource_associated_entity_id
      ELSE p.object_id END
WHERE s.program_name = ? AND l.resource_database_id = DB_ID() AND l.request_status = 'GRANT'
  AND (l.resource_type IN ('APPLICATION', 'XACT')
       OR (l.resource_type IN ('OBJECT', 'KEY', 'RID') AND t.object_id IS NOT NULL
         AND l.request_mode <> 'Sch-S'))
GROUP BY l.resource_type, t.name, i.name, l.request_mode
"""
#: The words of docs/sqlserver-locking.md that are tested here.
WORDS = {
    "idle": "",
    "claimed": "U index key, then U row",
    "slice being read": "the statement ends, before a row of it is handed on",
    "settling": "U to X on own keys, then X on their keys in `Index_Expires`",
    "settled": "",
    "staging": "X new keys, at most 2 × 2,400",
    "sealed": "an application lock of the session",
    "settling a stage": "U on the mark, by its own index",
}


def verdicts(place: SqlServerPlace) -> list[Verdict]:
    with SqlServerSession(place.url) as session:
        return held.verdicts(place, lambda program: _snapshot(session, program), expected(place))


def _snapshot(session: SqlServerSession, program: str) -> Locks:
    rows = session.rows(_LOCKS, program)
    session.commit()
    return told(rows)


def told(rows: Rows) -> Locks:
    """Locks as the report says them; each row has kind, table, index, mode and number."""
    found: dict[str, set[str]] = {}
    for kind, table, index, mode, count in rows:
        if kind == "OBJECT":
            found.setdefault(table, set()).add(mode)
        elif kind == "KEY" and mode != "S":
            found.setdefault(f"{table} keys of {index}", set()).add(f"{count} {mode}")
        elif kind == "RID" and mode != "S":
            found.setdefault(f"{table} rows", set()).add(f"{count} {mode}")
        elif kind == "APPLICATION":
            found.setdefault("application lock", set()).add(mode)
        elif kind == "XACT":
            found.setdefault("transaction", set()).add(mode)
    return {name: ", ".join(sorted(modes)) for name, modes in sorted(found.items())}


@dataclass(frozen=True)
class _Shape:
    """How the locks of rows are said of a table of this shape."""

    heap: bool

    def rows(self, table: str, mode: str, count: int = ROWS) -> dict[str, str]:
        """Rows that were found by Index_RowVersion."""
        found = {table: "IX", f"{table} keys of Index_RowVersion": f"{count} {mode}"}
        return found | ({f"{table} rows": f"{count} {mode}"} if self.heap else {})

    def changed(self, table: str, count: int = ROWS) -> dict[str, str]:
        """Rows that were added or deleted. Rows that never expire have no key in a heap's Index_Expires."""
        expires = {} if self.heap else {f"{table} keys of Index_Expires": f"{count} X"}
        return self.rows(table, "X", count) | expires


def expected(place: SqlServerPlace) -> Mapping[str, Expected]:
    """The locks of each step, for the shape of a place."""
    shape, stage = _Shape(place.is_heap), {"Forward.Outgoing": "IX"}
    versions = place.settings.row_versions  # then a claim has deleted its rows already
    claim = shape.changed("orders") if versions else shape.rows("orders", "U")
    held_stage = {"application lock": "X"}
    staged = {**stage, "Forward.Outgoing keys of Index_RowVersion": "4 X"}
    mark = {
        **stage,
        "Forward.Outgoing keys of Index_Mark": "1 U",
        "Forward.Outgoing keys of Index_RowVersion": "1 X",
    }
    source = shape.changed("source") if versions else shape.rows("source", "U")
    steps: dict[str, dict[str, str]] = {
        "idle": {},
        "claimed": claim,
        "slice being read": claim,
        "settling": shape.changed("orders"),
        "settled": {},
        "staging": {**source, **held_stage, **staged},
        "sealed": {**source, **held_stage},
        "settling a stage": {**shape.changed("source"), **held_stage, **mark, **shape.changed("billing")},
    }
    return {
        step: Expected(locks=tuple(_ways(locks, place.settings.optimized)), says=_says(step))
        for step, locks in steps.items()
    }


def _ways(locks: Mapping[str, str], optimized: bool | None) -> list[Locks]:
    """With optimized locking X on rows gives way to one on the transaction's id;
    U that was there before may stay.
    """
    if not optimized or not any(mode.endswith(" X") for mode in locks.values()):
        return [locks]
    without = {name: mode for name, mode in locks.items() if not mode.endswith(" X")} | {"transaction": "X"}
    u_stays = {
        name: mode.replace(" X", " U")
        for name, mode in locks.items()
        if mode.endswith(" X") and name.startswith(("orders", "source")) and "Index_Expires" not in name
    }
    return [without, without | u_stays, {**locks, "transaction": "X"}]


def _says(step: str) -> str:
    words = WORDS[step]
    return f"“{words}”." if words else "nothing."
