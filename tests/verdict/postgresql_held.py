"""Locks on PostgreSQL: those of pg_locks on tables, and the rows whose xmax is an open
transaction of the program.
"""

from collections import Counter
from collections.abc import Mapping

import psycopg

from tests.verdict import held
from tests.verdict.held import ROWS, Expected, Locks
from tests.verdict.places import Place
from tests.verdict.probes import Verdict

#: The shared lock by which a stream announces itself stops no session, and is left out.
_LOCKS = """
SELECT CASE l.locktype WHEN 'relation' THEN c.relname ELSE l.locktype END, l.mode
FROM pg_locks AS l
JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_class AS c ON c.oid = l.relation
WHERE a.application_name = %s AND l.database IN (0, (SELECT oid FROM pg_database
  WHERE datname = current_database()))
  AND NOT (l.locktype = 'advisory' AND l.mode = 'ShareLock')
  AND (l.locktype <> 'relation' OR (c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace))
"""
_HOLDERS = """
SELECT l.transactionid::text
FROM pg_locks AS l
JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE a.application_name = %s AND l.locktype = 'transactionid'
"""
_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"


def _expected(says: str, locks: Locks) -> Expected:
    return Expected(says=says, locks=(locks,))


_OWN = "AccessShareLock, RowExclusiveLock, RowShareLock"
_CLAIM: Mapping[str, object] = {"orders": _OWN, "rows of orders": ROWS}
_SOURCE: Mapping[str, object] = {"advisory": "ExclusiveLock", "rows of source": ROWS, "source": _OWN}
EXPECTED = {
    "idle": _expected("nothing.", {}),
    "claimed": _expected("the claim's rows, which are deleted in the open transaction.", _CLAIM),
    "slice being read": _expected(
        "the claim, and the reader's ACCESS SHARE.",
        {**_CLAIM, "orders": "AccessShareLock twice, RowExclusiveLock, RowShareLock"},
    ),
    "settling": _expected("the claim.", _CLAIM),
    "settled": _expected("nothing.", {}),
    "staging": _expected(
        "the claim, the source's advisory lock on the stage, and the rows that a task is just staging.",
        {**_SOURCE, "Forward.Outgoing": "RowExclusiveLock"},
    ),
    "sealed": _expected("the claim and the source's advisory lock on the stage.", _SOURCE),
    "settling a stage": _expected(
        "the claim, the source's advisory lock, the mark of the stage, and the rows that are just sent.",
        {**_SOURCE, "Forward.Outgoing": _OWN, "billing": "RowExclusiveLock", "rows of Forward.Outgoing": 1},
    ),
}


def verdicts(place: Place) -> list[Verdict]:
    with psycopg.connect(place.engine.url, autocommit=True) as connection:
        return held.verdicts(place, lambda program: snapshot(connection, program), EXPECTED)


def snapshot(connection: psycopg.Connection, program: str) -> Locks:
    """The locks of a program's sessions: of each table the modes, and how many rows its transactions hold."""
    modes = Counter(connection.execute(_LOCKS, [program]).fetchall())
    found: dict[str, object] = {}
    for table in {table for table, _ in modes}:
        counted = {mode: count for (each, mode), count in modes.items() if each == table}
        found[table] = ", ".join(mode if counted[mode] == 1 else f"{mode} twice" for mode in sorted(counted))
    holders = [int(number) for (number,) in connection.execute(_HOLDERS, [program])]
    if holders:
        for (table,) in connection.execute(_TABLES):
            name = table.replace('"', '""')
            statement = f'SELECT count(*) FROM "{name}" WHERE xmax::text::bigint = ANY (%s)'
            row = connection.execute(statement.encode(), [holders]).fetchone()
            if row and row[0]:
                found[f"rows of {table}"] = row[0]
    return dict(sorted(found.items()))
