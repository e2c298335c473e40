"""Reports what a run against a SQL Server has shown: which server that was, what it can do,
and how the tests ended.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.support.versions import SQLSERVER_VARIABLE

_OUTCOMES = {"passed": "passed", "failed": "failed", "error": "broke off", "skipped": "skipped"}
_FACTS = (
    "SELECT @@VERSION, CAST(SERVERPROPERTY('Edition') AS nvarchar(128)), "
    "CAST((SELECT is_read_committed_snapshot_on FROM sys.databases WHERE database_id = DB_ID()) AS int)"
)


def lines(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The report.

    :param stats: pytest's own lists of reports, by outcome.
    """
    import pyodbc  # which is there where a server was tested

    try:
        yield from server()
        yield from abilities(stats)
    except pyodbc.Error as error:
        yield f"the server does not answer any more: {error.args[-1]}"
    yield from layers(stats)


def server() -> Iterator[str]:
    """Which server it is, and what its new databases are like."""
    from tests.support.sqlserver import SqlServerEngine, fresh_database

    with fresh_database(os.environ[SQLSERVER_VARIABLE], f"sqlqueue_report_{os.getpid()}") as url:
        ((version, edition, row_versions),) = SqlServerEngine(url).fetch(_FACTS)
    yield f"server: {str(version).splitlines()[0]}"
    yield f"edition: {edition}"
    yield f"READ_COMMITTED_SNAPSHOT of a new database: {'on' if row_versions else 'off'}"


def abilities(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Which abilities that tests need the server has and lacks,
    and how many tests were skipped for each that it lacks.
    """
    from tests.support import lookalikes

    found = asdict(lookalikes.given())
    if all(found.values()):
        yield "it is SQL Server: every test is meant for it"
        return
    cost = lacking(stats)
    yield f"it is not SQL Server, but can: {', '.join(name for name, able in found.items() if able)}"
    cannot = (f"{name} ({cost[name]})" for name, able in found.items() if not able)
    yield f"and cannot (tests skipped for it): {', '.join(cannot)}"


def lacking(stats: Mapping[str, Sequence[Any]]) -> Counter[str]:
    """How many tests were skipped because the server lacks an ability, by ability."""
    said = (
        re.search(r"lacks what the test needs: (\w+)", str(each.longrepr)) for each in _of(stats, "skipped")
    )
    return Counter(found[1] for found in said if found)


def layers(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """How the tests ended, by their folders."""
    counted = Counter((_layer(each.nodeid), outcome) for outcome in _OUTCOMES for each in _of(stats, outcome))
    for layer in sorted({layer for layer, _ in counted}):
        said = (
            f"{counted[layer, outcome]} {word}"
            for outcome, word in _OUTCOMES.items()
            if counted[layer, outcome]
        )
        yield f"{layer}: {', '.join(said)}"


def _of(stats: Mapping[str, Sequence[Any]], outcome: str) -> list[Any]:
    """The reports of tests. A report of a file that could not even be collected is left out."""
    return [each for each in stats.get(outcome, ()) if hasattr(each, "nodeid")]


def _layer(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[0].removeprefix("tests/") or "tests"
