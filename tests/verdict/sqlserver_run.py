"""Carries all experiments out on SQL Server."""

import itertools
import time
from collections.abc import Callable, Iterable

from tests.support.sqlserver import emptied
from tests.verdict import (
    sqlserver,
    sqlserver_held,
    sqlserver_lock_rules,
    sqlserver_plans,
    sqlserver_statement_rules,
)
from tests.verdict.probes import Outcome, Probe, Verdict
from tests.verdict.report import Report, today
from tests.verdict.sqlserver import SqlServerPlace

Part = Callable[[SqlServerPlace], Iterable[Verdict]]


def rules() -> list[Probe[SqlServerPlace]]:
    return [*sqlserver_lock_rules.PROBES, *sqlserver_statement_rules.PROBES]


def on_sqlserver(url: str, say: Callable[[str], None], *, scratch: bool = False) -> Report:
    """:param scratch: the url's own database is empty and may be used."""
    began = time.monotonic()
    found: list[Verdict] = []
    with sqlserver.places(url, scratch=scratch) as places:
        for place in places:
            for title, part in (
                ("rules", _rules),
                ("plans", sqlserver_plans.verdicts),
                ("locks", sqlserver_held.verdicts),
            ):
                say(f"{title}: {place.where}")
                found += _carried_out(title, part, place)
                emptied(place.url)
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


def _rules(place: SqlServerPlace) -> Iterable[Verdict]:
    for probe in rules():
        with place.experiment():
            yield probe.verdict(place, place.where)


def _carried_out(title: str, part: Part, place: SqlServerPlace) -> list[Verdict]:
    """The verdicts of a part. Where it comes to no end, the other parts are carried out all the same."""

    def broken(_: SqlServerPlace) -> dict[str, object]:
        found.extend(part(place))
        return {}

    found: list[Verdict] = []
    whole = Probe(
        id=f"{title}:to-the-end",
        rule=f"All experiments of this part ({title}) can be carried out.",
        done="They are carried out one after the other.",
        expected=({},),
        look=broken,
    ).verdict(place, place.where)
    return found if whole.outcome is Outcome.HOLDS else [*found, whole]


def _in_order(found: list[Verdict]) -> list[Verdict]:
    """Verdicts of one experiment stand together, wherever it was carried out."""
    first = {each.id: number for number, each in reversed(list(enumerate(found)))}
    groups = itertools.groupby(sorted(found, key=lambda each: first[each.id]), key=lambda each: each.id)
    return [each for _, group in groups for each in group]
