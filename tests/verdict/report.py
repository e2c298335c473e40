"""Writes what was found, to be committed: a page for people and the same as JSON.

Neither names a host, a login or a secret.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.verdict.probes import FINE, Outcome, Verdict


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run of ``make verdict``."""

    engine: str
    title: str
    #: The server's version and edition.
    version: str
    edition: str = ""
    date: str
    seconds: float
    verdicts: Sequence[Verdict]

    @property
    def holds(self) -> bool:
        return bool(self.verdicts) and all(each.outcome in FINE for each in self.verdicts)

    @property
    def name(self) -> str:
        """The name of its files, without the ending."""
        return f"{self.engine}-{self.version}-{self.date}"

    def counted(self) -> Counter[Outcome]:
        return Counter(each.outcome for each in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "version": self.version,
            "edition": self.edition,
            "date": self.date,
            "seconds": round(self.seconds),
            "holds": self.holds,
            "summary": {outcome.value: self.counted()[outcome] for outcome in Outcome},
            "lines": [asdict(each) for each in self.verdicts],
        }

    def as_markdown(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def summary(self) -> list[str]:
        """The first lines, for people who read no more; what is not fine follows."""
        counted = ", ".join(
            f"{self.counted()[outcome]} {outcome}" for outcome in Outcome if self.counted()[outcome]
        )
        bad = [each for each in self.verdicts if each.outcome not in FINE]
        return [
            (
                f"{'Everything is as expected' if self.holds else 'NOT everything is as expected'}: "
                f"{counted or 'nothing was looked at'}."
            ),
            *(f"{each.outcome.upper()} {each.id} ({each.where}): {each.seen}" for each in bad),
        ]

    def write(self, folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        page, data = (folder / f"{self.name}.{ending}" for ending in ("md", "json"))
        page.write_text(self.as_markdown(), encoding="utf-8")
        data.write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return [page, data]

    def _lines(self) -> Iterator[str]:
        edition = f", {self.edition}" if self.edition else ""
        yield f"# {self.title} {self.version}{edition}, {self.date}"
        yield ""
        yield f"Written by `make verdict` in {round(self.seconds)} seconds. {self.summary()[0]}"
        for title, outcomes in (
            ("Not as expected", set(Outcome) - FINE),
            ("Known not to hold", {Outcome.KNOWN}),
        ):
            found = [each for each in self.verdicts if each.outcome in outcomes]
            if found:
                yield from ("", f"## {title}", "", *_table(found))
        for title, prefix in (("Rules", ""), ("Plans", "plan:"), ("Locks held", "locks:")):
            found = [each for each in self.verdicts if _kind(each) == prefix]
            if found:
                yield from ("", f"## {title}", "", *_table(found))


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def _kind(verdict: Verdict) -> str:
    head, colon, _ = verdict.id.partition(":")
    return head + colon if colon else ""


def _table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """A line for each experiment and each thing that was seen;
    places that have shown the same share a line.
    """
    places: dict[tuple[str, ...], list[str]] = {}
    for each in verdicts:
        places.setdefault((each.id, each.rule, each.done, each.seen, each.outcome.value), []).append(
            each.where
        )
    yield "| id | rule | done | seen | where | verdict |"
    yield "|---|---|---|---|---|---|"
    for (name, rule, done, seen, outcome), where in places.items():
        cells = (
            f"`{name}`",
            rule,
            done,
            seen,
            "; ".join(where),
            f"**{outcome}**" if outcome != "holds" else outcome,
        )
        yield f"| {' | '.join(each.replace('|', '∣') for each in cells)} |"
