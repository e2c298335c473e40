"""Runs the comparisons of all benchmarks and renders one page of them, with a plot: `make bench`.

Each benchmark is a program of its own, and its tables are what it prints. The page is `benchmarks/latest.md`,
the plot `benchmarks/latest.svg`. A part that fails is named on the page, and the others go on.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from machine import COMPARISONS, run_by

_HERE = Path(__file__).parent
#: What is run, in this order.
PARTS: tuple[tuple[str, str], ...] = (
    ("Draining into Delta", "drain.py --only delta"),
    ("Draining", "drain.py --only compare"),
    ("Beside an old transaction", "old_transaction.py --messages 1000000 --rounds 1"),
    ("Beside one-row receivers", "neighbours.py --sinks delta --starts cold --orders newcomers --rounds 1"),
    ("Sending", "send.py --only compare --rounds 2"),
    ("Queue to queue", "send.py --only forward --rounds 2"),
    ("Latency", "latency.py --only latency --seconds 10"),
)
_RATE = "messages/s"
#: A row of comparisons (`machine.compared`).
_RATIO = re.compile(r"\| \d+\.\d\d \| (?:≥|\|)|\| \d+\.\d\d \|  \|")


class Table(NamedTuple):
    """A table as a benchmark prints it: its lines, and the messages a second that its second column gives,
    if it gives some.
    """

    lines: tuple[str, ...]
    rates: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--part",
        action="append",
        choices=[title for title, _ in PARTS],
        help="some parts alone; give it again for more",
    )
    parser.add_argument(
        "--page", type=Path, default=_HERE / "latest.md", help="the page; the plot lies beside it"
    )
    chosen = parser.parse_args()
    said = {
        title: run(command, chosen.rounds)
        for title, command in PARTS
        if title in (chosen.part or dict(PARTS))
    }
    plot = chosen.page.with_suffix(".svg")
    found = {title: [each for each in tables(text or "") if each.rates] for title, text in said.items()}
    rated = any(found.values())
    if rated:  # latencies alone give no plot
        draw(found, plot)
    chosen.page.write_text(page(said, plot.name if rated else None, chosen.rounds))
    print(f"{chosen.page} and {plot}" if rated else chosen.page)
    if missing := [title for title, text in said.items() if text is None]:
        sys.exit(f"These parts failed: {', '.join(missing)}; look above to see why.")


def run(command: str, rounds: int) -> str | None:
    """What a benchmark says; None if it failed."""
    if "--rounds" not in command:
        command += f" --rounds {rounds}"
    print(f"$ python benchmarks/{command}", flush=True)
    arguments = [sys.executable, *shlex.split(f"{_HERE}/{command}")]
    ran = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=False)
    print(ran.stdout, flush=True)
    return ran.stdout if ran.returncode == 0 else None


def tables(said: str) -> Iterator[Table]:
    """The tables in what a benchmark says."""
    for block in re.findall(r"(?:^\|.*\n)+", said, re.MULTILINE):
        lines = tuple(block.splitlines())
        heads, _, *rows = (_cells(line) for line in lines)
        rated = len(heads) > 1 and heads[1].endswith(_RATE)
        yield Table(
            lines, {row[0]: float(row[1].replace(",", "")) for row in rows if row[1]} if rated else {}
        )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def page(said: Mapping[str, str | None], plot: str | None, rounds: int) -> str:
    """The page: a section a part, each with its command."""
    lines = ["# The latest run of all benchmarks", "", f"`make bench`, medians of {rounds}: {run_by()}."]
    compared = [line for text in said.values() for line in (text or "").splitlines() if _RATIO.match(line)]
    if compared:
        lines += ["", *COMPARISONS.splitlines(), *compared]
    if plot is not None:
        lines += ["", f"![messages a second]({plot})"]
    for title, text in said.items():
        command = dict(PARTS)[title]
        lines += ["", f"## {title}", "", f"`python benchmarks/{command}`"]
        if text is None:
            lines += ["", "This part failed."]
        for table in tables(text or ""):
            if not any(map(_RATIO.match, table.lines)):
                lines += ["", *table.lines]
    return "\n".join(lines) + "\n"


def draw(found: Mapping[str, Sequence[Table]], to: Path) -> None:
    """Bars of the messages a second: a panel a table, ours in a colour of their own."""
    panels = [(title, table.rates) for title, each in found.items() for table in each]
    figure, axes = plt.subplots(
        len(panels), figsize=(9, 1 + 0.35 * sum(len(rates) + 2 for _, rates in panels)), squeeze=False,
        gridspec_kw={"height_ratios": [len(rates) + 1 for _, rates in panels]},
    )  # fmt: skip
    for axis, (title, rates) in zip(axes[:, 0], panels, strict=True):
        names, colours = (
            [*rates][::-1],
            ["tab:blue" if name.startswith("our ") else "tab:gray" for name in rates][::-1],
        )
        axis.barh(names, [rates[name] for name in names], color=colours)
        axis.set_title(title, loc="left")
        axis.set_xlabel(_RATE)
    figure.tight_layout()
    figure.savefig(to)


if __name__ == "__main__":
    main()
