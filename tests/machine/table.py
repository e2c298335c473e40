"""Measures how soon the machine finds what each fix is for, and writes the table of docs/testing-stories.md.

Run it with ``python -m tests.machine.table``.
"""

import logging
import re
from pathlib import Path

from tests.machine.search import Searched, own_world, search
from tests.machine.support import EXAMPLES
from tests.machine.without import FIXES, Fix

PAGE = Path("docs/testing-stories.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
#: Maximum characters of a line; errors are longer.
_WIDTH = 150


def main() -> None:
    logging.disable(logging.CRITICAL)
    found = {fix: _measured(fix) for fix in FIXES}
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{_table(found)}\n{END}{after}", encoding="utf-8")


def _measured(fix: Fix) -> Searched:
    with own_world() as world, fix():
        done = search(world, FIXES[fix], EXAMPLES[FIXES[fix]])
    print(f"{_name(fix)}: {done.found_after} of {done.examples}", flush=True)
    return done


def _table(found: dict[Fix, Searched]) -> str:
    lines = ["", "| without | family | found after | seconds |", "|---|---|---|---|"]
    for fix, done in found.items():
        after = "not found" if done.found_after is None else f"{done.found_after} scenarios"
        seconds = "" if done.found_seconds is None else f"{done.found_seconds:.1f}"
        lines.append(f"| {_name(fix)}: {_said(fix)} | {FIXES[fix]} | {after} | {seconds} |")
    for fix, done in found.items():
        lines += ["", f"Without {_name(fix)}:", "", "```text", *_story(done), "```"]
    return "\n".join([*lines, ""])


def _name(fix: Fix) -> str:
    return fix.__name__.replace("_", " ")


def _said(fix: Fix) -> str:
    said = " ".join((fix.__doc__ or "").split()).rstrip(".")
    return said[:1].lower() + said[1:]


def _story(done: Searched) -> list[str]:
    """The lines of the story, without what differs from run to run;
    a line that comes again and again stands there once.
    """
    setup, *told = done.story.strip().splitlines()
    lines = [setup]
    for line in told:
        short = re.sub(r"127\.0\.0\.1:\d+", "the server", line)
        short = short if len(short) <= _WIDTH else f"{short[:_WIDTH]}…"
        if short not in lines or not short.startswith(("(at last)", " ")):
            lines.append(short)
    return lines


if __name__ == "__main__":
    main()
