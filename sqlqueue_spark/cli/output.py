"""What the commands print: text for people, which steers no terminal, or one JSON object a line for programs.

Only this module writes to stdout and stderr for a command.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import click

from sqlqueue_spark.administration.database_overview import TableOverview
from sqlqueue_spark.administration.delayed_tables import DelayedLength
from sqlqueue_spark.administration.length_probe import ASKED, Probe
from sqlqueue_spark.administration.message_lines import iso, to_line
from sqlqueue_spark.administration.outbox_tables import Report
from sqlqueue_spark.administration.queue_tables import Inspection
from sqlqueue_spark.cli.text_table import TextTable
from sqlqueue_spark.inspection.doctor import Check, State
from sqlqueue_spark.options.fields import Described, camel
from sqlqueue_spark.plain_text import age, moment, plain
from sqlqueue_spark.tables.ddl import Created
from sqlqueue_spark.tables.queue_admin import Length

_MARKS = {State.FINE: click.style("✓", fg="green"), State.WRONG: click.style("✗", fg="red"), State.OPEN: "-"}
#: Fields that are spans of time, which JSON has in seconds.
_SPANS = {
    "oldest_age": "oldest_seconds",
    "max_age": "max_age_seconds",
    "overdue": "overdue_seconds",
    "first_due_in": "first_due_in_seconds",
    "first_given_up_in": "first_given_up_in_seconds",
}


def as_json(value: Any) -> bytes:
    """A line of JSON, in UTF-8 in every locale."""
    return to_line(value).encode()


def told(value: Any) -> Any:
    """A value as JSON has it: names in camelCase, moments as text, spans in seconds."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {camel(_SPANS.get(name) or name): told(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [told(each) for each in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    if isinstance(value, Enum):
        return value.name.lower()
    return iso(value) if isinstance(value, datetime) else value


def say(text: str | bytes = "", *, mark: str = "", err: bool = False) -> None:
    """Print a line, with terminal control characters escaped but for those of a mark of ours."""
    click.echo(text if isinstance(text, bytes) else mark + plain(text), err=err)


def exactly(text: str) -> None:
    """Print what is not read but run, or fed to a program, in UTF-8: nothing in it is escaped."""
    click.echo(text.encode(), nl=False)


def lines(texts: Iterable[str | bytes]) -> None:
    for text in texts:
        say(text)


def show(json_: bool, value: dict[str, Any], text: Iterable[str]) -> None:
    lines([as_json(value)] if json_ else text)


def created(made: Created) -> None:
    say(f"created {made.table}" if made.new else f"{made.table} was there already")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_check(json_: bool, check: Check) -> None:
    """Print a check as a line. Its colours are dropped by click if stdout is no terminal."""
    if json_:
        say(as_json(told(check)))
    else:
        first, *more = TextTable("", "", longest=None).lines([(f"  {check.name:10}", check.said)])
        say(first[1:], mark=_MARKS[check.state])
        lines(more)


def length_text(length: Length) -> Iterator[str]:
    yield length.queue
    yield f"  rows     {length.rows:,}"
    yield f"  expired  {length.expired:,}"
    yield f"  bytes    {length.bytes:,}"
    if length.oldest_sent is not None and length.oldest_age is not None:
        yield f"  oldest   sent {moment(length.oldest_sent)}, {age(length.oldest_age)} ago"


def probe_text(probe: Probe) -> str:
    said = []
    if probe.rows is not None:
        said.append(
            f"more than {probe.max_rows:,} messages wait"
            if "rows" in probe.beyond
            else f"{counted(probe.rows, 'message')} wait{'s' if probe.rows == 1 else ''}"
        )
    if probe.oldest_age is not None and probe.max_age is not None:
        over = f", more than {age(probe.max_age)}" if "age" in probe.beyond else ""
        said.append(f"the oldest was sent {age(probe.oldest_age)} ago{over}")
    elif "age" in probe.beyond:
        said.append(f"none of the first {ASKED} messages tells when it was sent")
    elif probe.max_age is not None and probe.rows is None:
        said.append("no message waits")
    return f"{probe.queue}: {'ok' if probe.within else 'beyond'}: {'; '.join(said)}"


def overview_text(tables: Iterable[TableOverview]) -> Iterator[str]:
    rows = [_overview_row(each) for each in tables]
    heads = ("kind", "table", "rows", "oldest sent", "")
    yield from TextTable(*heads).lines(rows) if rows else ["no table of a queue"]


def inspection_text(inspection: Inspection) -> Iterator[str]:
    yield inspection.queue
    columns = [
        (f"  {c.name}", c.type, "" if c.nullable else "not null", "computed" if c.computed else "")
        for c in inspection.columns
    ]
    yield from TextTable("  column", "type", "", "").lines(columns)
    indexes = [
        (f"  {i.name}", ", ".join(i.columns), "unique" if i.unique else "", i.kind, i.filter or "")
        for i in inspection.indexes
    ]
    yield from TextTable("  index", "columns", "", "kind", "").lines(indexes)
    settings = [(f"  {each.name}", each.value, each.meaning) for each in inspection.settings]
    yield from TextTable("  setting", "value", "meaning").lines(settings)
    for setting in inspection.settings:
        if setting.remedy_sql:
            yield f"to change {setting.name}:"
            yield from indented(setting.remedy_sql.split("\n"))
    for finding in inspection.findings:
        yield f"finding: {finding.message}"
        yield from indented(finding.remedy_sql.split("\n"))
    if not inspection.findings:
        yield "nothing found"


def report_text(report: Report) -> Iterator[str]:
    found = report.found
    yield report.outbox
    yield f"  rows          {found.rows:,}"
    yield f"  undispatched  {found.undispatched:,}"
    if found.oldest_dispatched_at is not None and found.oldest_age is not None:
        at = moment(found.oldest_dispatched_at)
        yield f"  oldest        dispatched {at}, {age(found.oldest_age)} ago"
    if found.undispatched:
        yield (
            "finding: rows that are not dispatched hold messages that a .NET endpoint stored and has not "
            "sent; no cleanup deletes them. If their number does not fall while the endpoint runs, see its "
            "logs."
        )


def delayed_text(length: DelayedLength) -> Iterator[str]:
    yield length.table
    yield f"  rows   {length.rows:,}"
    yield f"  due    {length.due:,}"
    if length.first_due_in is not None:
        overdue = length.first_due_in <= timedelta(0)
        yield f"  first  due {'since' if overdue else 'in'} {age(abs(length.first_due_in))}"
    if length.waiting:
        end = length.first_given_up_in or timedelta(0)
        when = f"in {age(end)}" if end > timedelta(0) else "as soon as the job looks"
        yield (
            f"  wait   {length.waiting:,} for {', '.join(length.waits_for)}: they go when it answers again; "
            f"the first is given up {when}"
        )


def options_text(described: Iterable[Described]) -> Iterator[str]:
    rows = [
        (each.name, each.kind, each.default.replace("`", ""), each.meaning.replace("`", ""))
        for each in described
    ]
    yield from TextTable("option", "value", "default", "meaning").lines(rows)


def options_markdown(described: Iterable[Described]) -> Iterator[str]:
    """Yield the lines of a table of docs/options.md."""
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
    return (found.kind, found.table, count, ago, "; ".join(odd))


def indented(texts: Iterable[str]) -> Iterator[str]:
    yield from (f"  {text}" for text in texts)
