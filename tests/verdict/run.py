"""Carries all experiments out on one server."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.engines.engine_of_url import dialect_of
from tests.verdict import postgresql, postgresql_held, postgresql_plans, postgresql_rules
from tests.verdict.probes import Verdict, to_the_end
from tests.verdict.report import Report, today

Say = Callable[[str], None]


def on(url: str | None, say: Say = lambda _: None, *, scratch: bool = False) -> Report:
    """All experiments on the server of a URL, or on the PostgreSQL server that comes with the tests.

    :param scratch: on SQL Server, use the url's own database, which is empty.
    """
    if url is None:
        with embedded() as found:
            return on(found, say)
    if dialect_of(url).name == "postgresql":
        return on_postgresql(url, say)
    from tests.verdict import sqlserver_run  # which needs the driver's library

    return sqlserver_run.on_sqlserver(url, say, scratch=scratch)


def on_postgresql(url: str, say: Say) -> Report:
    began = time.monotonic()
    found: list[Verdict] = []
    with postgresql.places(url) as (rules, plans, held):
        parts: dict[str, Callable[[], Iterable[Verdict]]] = {
            "rules": lambda: _rules(rules),
            "plans": lambda: postgresql_plans.verdicts(plans),
            "locks": lambda: postgresql_held.verdicts(held),
        }
        for part, look in parts.items():
            say(part)
            found += to_the_end(part, rules.where, look)
    return Report(
        engine=postgresql.NAME,
        title=postgresql.TITLE,
        version=postgresql.version(url),
        date=today(),
        seconds=time.monotonic() - began,
        verdicts=found,
    )


def _rules(place: postgresql.PostgresPlace) -> Iterator[Verdict]:
    for probe in postgresql_rules.PROBES:
        with place.experiment():
            yield probe.verdict(place, place.where)


@contextlib.contextmanager
def embedded() -> Iterator[str]:
    """The URL of a PostgreSQL server that ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-verdict-"))
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 -- the server may run as another user
    try:
        with EmbeddedServer(folder / "data", settings={"fsync": "off"}) as server:
            yield server.url()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
