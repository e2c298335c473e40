"""Carries all experiments out on SQL Server."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from tests.verdict import (
    sqlserver,
    sqlserver_held,
    sqlserver_lock_rules,
    sqlserver_plans,
    sqlserver_statement_rules,
)
from tests.verdict.probes import Probe, Verdict, to_the_end
from tests.verdict.report import Report, today
from tests.verdict.sqlserver import SqlServerPlace


def rules() -> list[Probe[SqlServerPlace]]:
    return [*sqlserver_lock_rules.PROBES, *sqlserver_statement_rules.PROBES]


def on_sqlserver(url: str, say: Callable[[str], None], *, scratch: bool = False) -> Report:
    """:param scratch: the url's own database is empty and may be used."""
    began = time.monotonic()
    found: list[Verdict] = []
    with sqlserver.places(url, scratch=scratch) as places:
        for place in places:
            for part, look in _PARTS.items():
                say(f"{part}: {place.where}")
                found += to_the_end(part, place.where, partial(look, place))
    version, edition = sqlserver.version(url)
    return Report(
        engine=sqlserver.NAME,
        title=sqlserver.TITLE,
        version=version,
        edition=edition,
        date=today(),
        seconds=time.monotonic() - began,
        verdicts=_in_order(found),
    )


def _rules(place: SqlServerPlace) -> Iterator[Verdict]:
    place.prepare()
    for probe in rules():
        with place.experiment():
            yield probe.verdict(place, place.where)


def _plans(place: SqlServerPlace) -> Iterable[Verdict]:
    place.prepare()
    return sqlserver_plans.verdicts(place)


def _held(place: SqlServerPlace) -> Iterable[Verdict]:
    place.prepare()
    return sqlserver_held.verdicts(place)


_PARTS: Mapping[str, Callable[[SqlServerPlace], Iterable[Verdict]]] = {
    "rules": _rules,
    "plans": _plans,
    "locks": _held,
}


def _in_order(found: list[Verdict]) -> list[Verdict]:
    """Verdicts of one experiment stand together, wherever it was carried out."""
    first = {each.id: number for number, each in reversed(list(enumerate(found)))}
    groups = itertools.groupby(sorted(found, key=lambda each: first[each.id]), key=lambda each: each.id)
    return [each for _, group in groups for each in group]
