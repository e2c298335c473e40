"""Shows values: as text for people, as one JSON object a line for programs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click

from sqlqueue_spark.administration.database_overview import TableOverview
from sqlqueue_spark.administration.delayed_tables import Length as DelayedLength
from sqlqueue_spark.administration.length_probe import ASKED, Probe
from sqlqueue_spark.administration.message_lines import to_line
from sqlqueue_spark.administration.outbox_tables import Report
from sqlqueue_spark.administration.queue_tables import Inspection, Length
from sqlqueue_spark.inspection.doctor import Check, State
from sqlqueue_spark.options.fields import Described, camel
from sqlqueue_spark.plain_text import plain

_MARKS = {
    State.FINE: click.style("✓", fg="green"),
    State.WRONG: click.style("✗", fg="red"),
    State.OPEN: "-",
}


#: A column that becomes narrower has at least so many characters, and a text that goes on below itself so many.
NARROWEST, _LEAST_TEXT = 16, 24


def as_json(value: dict[str, Any]) -> str:
    return to_line(value)


def say(text: str) -> None:
    """Print a line; what could steer a terminal is escaped."""
    click.echo(plain(text))


def counted(count: int, noun: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def check_text(check: Check) -> str:
    """A check as a line; its colours are left out where the line goes to no terminal."""
    return f"{_MARKS[check.state]} {check.name:10}  {printable(check.said)}"


def check_json(check: Check) -> dict[str, Any]:
    return {"name": check.name, "state": check.state.name.lower(), "said": check.said}


def length_json(length: Length) -> dict[str, Any]:
    return {
        "queue": length.queue,
        "rows": length.rows,
        "expired": length.expired,
        "bytes": length.bytes,
        "oldestSent": iso(length.oldest_sent),
        "oldestSeconds": _seconds(length.oldest_age),
    }


def length_text(length: Length) -> Iterator[str]:
    yield printable(length.queue)
    yield f"  rows     {length.rows:,}"
    yield f"  expired  {length.expired:,}"
    yield f"  bytes    {length.bytes:,}"
    if length.oldest_sent is not None and length.oldest_age is not None:
        yield f"  oldest   sent {length.oldest_sent:%Y-%m-%d %H:%M:%S} UTC, {age(length.oldest_age)} ago"


def probe_json(probe: Probe) -> dict[str, Any]:
    beyond = {"rows": probe.too_many, "age": probe.too_old or probe.age_unknown}
    return {
        "queue": probe.queue,
        "within": probe.within,
        "beyond": [name for name, is_so in beyond.items() if is_so],
        "rows": probe.rows,
        "maxRows": probe.max_rows,
        "oldestSent": iso(probe.oldest_sent),
        "oldestSeconds": _seconds(probe.oldest_age),
        "maxAgeSeconds": _seconds(probe.max_age),
    }


def probe_text(probe: Probe) -> str:
    """One line: what was found, and what of it is beyond its bound."""
    said = []
    if probe.rows is not None:
        said.append(
            f"more than {probe.max_rows:,} messages wait"
            if probe.too_many
            else f"{counted(probe.rows, 'message')} wait{'s' if probe.rows == 1 else ''}"
        )
    if probe.age_unknown:
        said.append(f"none of the first {ASKED} messages tells when it was sent")
    elif probe.oldest_age is not None and probe.max_age is not None:
        over = f", more than {age(probe.max_age)}" if probe.too_old else ""
        said.append(f"the oldest was sent {age(probe.oldest_age)} ago{over}")
    elif probe.max_age is not None and probe.rows is None:
        said.append("no message waits")
    return f"{printable(probe.queue)}: {'ok' if probe.within else 'beyond'}: {'; '.join(said)}"


def overview_json(found: TableOverview) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "table": found.table,
        "rows": found.rows,
        "exact": found.exact,
        "oldestSent": iso(found.oldest_sent),
        "oldestSeconds": _seconds(found.oldest_age),
        "overdueSeconds": _seconds(found.overdue),
        "problem": found.problem,
    }


def overview_text(tables: Iterable[TableOverview]) -> Iterator[str]:
    """A table with a line a table."""
    rows = [_overview_row(each) for each in tables]
    yield from table(("kind", "table", "rows", "oldest sent", ""), rows) if rows else ["no table of a queue"]


def inspection_json(inspection: Inspection) -> Any:
    columns = [column._asdict() for column in inspection.columns]
    return _camel_cased({**asdict(inspection), "columns": columns})


def inspection_text(inspection: Inspection) -> Iterator[str]:
    yield printable(inspection.queue)
    columns = [
        (
            f"  {printable(c.name)}",
            printable(c.type),
            "" if c.nullable else "not null",
            "computed" if c.computed else "",
        )
        for c in inspection.columns
    ]
    yield from table(("  column", "type", "", ""), columns)
    indexes = [
        (f"  {printable(i.name)}", printable(", ".join(i.columns)), "unique" if i.unique else "", i.kind, printable(i.filter or ""))
        for i in inspection.indexes
    ]  # fmt: skip
    yield from table(("  index", "columns", "", "kind", ""), indexes)
    settings = [
        (f"  {printable(each.name)}", printable(each.value), each.meaning) for each in inspection.settings
    ]
    yield from table(("  setting", "value", "meaning"), settings)
    for setting in inspection.settings:
        if setting.remedy_sql:
            yield f"to change {setting.name}:"
            yield from _indented(setting.remedy_sql)
    for finding in inspection.findings:
        yield f"finding: {printable(finding.message)}"
        yield from _indented(finding.remedy_sql)
    if not inspection.findings:
        yield "nothing found"


def report_json(report: Report) -> dict[str, Any]:
    oldest, now = report.found.oldest_dispatched_at, report.found.now
    return {
        "outbox": report.outbox,
        "rows": report.found.rows,
        "undispatched": report.found.undispatched,
        "oldestDispatchedAt": iso(oldest),
        "oldestSeconds": None if oldest is None else round((now - oldest).total_seconds(), 3),
    }


def report_text(report: Report) -> Iterator[str]:
    found = report.found
    yield printable(report.outbox)
    yield f"  rows          {found.rows:,}"
    yield f"  undispatched  {found.undispatched:,}"
    if found.oldest_dispatched_at is not None:
        ago = age(max(found.now - found.oldest_dispatched_at, timedelta(0)))
        yield f"  oldest        dispatched {found.oldest_dispatched_at:%Y-%m-%d %H:%M:%S} UTC, {ago} ago"
    if found.undispatched:
        yield (
            "finding: rows that are not dispatched hold messages that a .NET endpoint stored and has not sent; no cleanup "
            "deletes them. If their number does not fall while the endpoint runs, see its logs."
        )


def delayed_json(length: DelayedLength) -> dict[str, Any]:
    first = length.first_due_in
    return {
        "table": length.table,
        "rows": length.rows,
        "due": length.due,
        "firstDueInSeconds": None if first is None else round(first.total_seconds(), 3),
    }


def delayed_text(length: DelayedLength) -> Iterator[str]:
    yield printable(length.table)
    yield f"  rows   {length.rows:,}"
    yield f"  due    {length.due:,}"
    if length.first_due_in is not None:
        overdue = length.first_due_in <= timedelta(0)
        yield f"  first  {f'due since {age(-length.first_due_in)}' if overdue else f'due in {age(length.first_due_in)}'}"


def options_text(described: Iterable[Described]) -> Iterator[str]:
    rows = [
        (each.name, each.kind, each.default.replace("`", ""), each.meaning.replace("`", ""))
        for each in described
    ]
    yield from table(("option", "value", "default", "meaning"), rows)


def options_markdown(described: Iterable[Described]) -> Iterator[str]:
    """The options as a table of docs/options.md."""
    yield "| option | value | default | meaning |"
    yield "|---|---|---|---|"
    for each in described:
        yield f"| `{each.name}` | {each.kind} | {each.default} | {each.meaning} |"


def _overview_row(found: TableOverview) -> tuple[str, ...]:
    ago = "" if found.oldest_age is None else f"{age(found.oldest_age)} ago"
    odd = [] if found.problem is None else [found.problem]
    if found.overdue is not None and found.overdue > timedelta(0):
        odd.append(f"due {age(found.overdue)} ago")
    count = f"{'' if found.exact else '~'}{found.rows:,}"
    return (found.kind, printable(found.table), count, ago, printable("; ".join(odd)))


def _indented(sql: str) -> Iterator[str]:
    yield from (f"  {printable(line)}" for line in sql.split("\n"))


def table(
    heads: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    *,
    names: Sequence[int] = (),
    texts: Sequence[int] = (),
    whole: bool = False,
) -> Iterator[str]:
    """The lines of a table. On a terminal they are no wider than it is, if that can be: the last column goes on below itself.

    :param names: columns that become narrower where that is not enough, and lose the beginnings of their cells.
    :param texts: likewise, and they lose the ends.
    :param whole: the lines stay as they are, because people copy what stands in them.
    """
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if not whole and (most := terminal_width()) is not None:
        _fit(widths, most, [*names, *texts])
    for *cells, end in lines:
        first, *more = (
            textwrap.wrap(end, widths[-1], break_long_words=False, break_on_hyphens=False)
            if widths[-1] < len(end)
            else [end]
        )
        yield joined([*cells, first], widths, texts)
        yield from (joined([*("" for _ in cells), line], widths) for line in more)


def _fit(widths: list[int], most: int, narrower: Sequence[int]) -> None:
    """Make columns narrower until a line has so many characters, as far as they can: the last one first."""
    over = sum(widths) + 2 * (sum(map(bool, widths)) - 1) - most
    last = max(min(widths[-1], _LEAST_TEXT), widths[-1] - max(0, over))
    over -= widths[-1] - last
    widths[-1] = last
    while over > 0 and (wide := [at for at in narrower if widths[at] > NARROWEST]):
        widths[max(wide, key=widths.__getitem__)] -= 1
        over -= 1


def joined(cells: Sequence[str], widths: Sequence[int], texts: Sequence[int] = ()) -> str:
    """A line of a table; a cell that is too long loses its beginning, in a column of texts its end."""
    fitted = (
        cell if len(cell) <= width
        else f"{cell[: width - 1]}…" if at in texts
        else f"…{cell[len(cell) - width + 1 :]}"
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )  # fmt: skip
    return "  ".join(cell.ljust(width) for cell, width in zip(fitted, widths, strict=True)).rstrip()


def terminal_width() -> int | None:
    """How many characters a line of the terminal has; None where stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """The text, with a replacement for each character that could steer a terminal: it keeps the width of a table's cell."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _camel_cased(value: Any) -> Any:
    """The same value, with all its names in camelCase."""
    if isinstance(value, dict):
        return {camel(name): _camel_cased(each) for name, each in value.items()}
    return [_camel_cased(each) for each in value] if isinstance(value, list | tuple) else value


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else round(span.total_seconds(), 3)


def age(span: timedelta) -> str:
    """A length of time in the unit that people would take."""
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
