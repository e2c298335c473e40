"""Tables of text that steer no terminal: there no wider than it is, elsewhere a line for each row.

Where a terminal is too narrow, the last columns stand below, as many beside one another as fit, and long
texts are wrapped.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate
from wcwidth import wcswidth

from sqlqueue_spark.plain_text import is_terminal, plain

#: The least width of a terminal that tables are fitted to, and of a column whose texts are wrapped.
_LEAST, _LEAST_TEXT = 60, 24
#: Maximum characters of a cell: a long one would make each line as long.
_LONGEST = 500


class TextTable:
    """A table that may grow: its heads stand there once, and its columns become no narrower."""

    def __init__(self, *heads: str, longest: int | None = _LONGEST) -> None:
        """:param longest: maximum characters of a cell; None where it is a sentence, whose end counts."""
        self._heads = heads
        self._longest = longest
        self._widths = [*map(len, heads)]
        self._least = [_LEAST_TEXT] * len(heads)
        self._width = terminal_width()
        self._begun = False

    def lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """Yield the lines of these rows, the first time below the heads, unless these are empty."""
        for lines in self.parts([rows]):
            yield from lines

    def parts(self, parts: Iterable[Iterable[Sequence[str]]]) -> Iterator[list[str]]:
        """Yield the lines of each part of these rows. All parts together choose the widths of the columns."""
        known = [[[self._bounded(cell) for cell in row] for row in part] for part in parts]
        for part in known:
            for row in part:
                self._widths = [*map(max, self._widths, map(wcswidth, row))]
                words = (max(map(len, cell.split()), default=0) for cell in row)
                self._least = [*map(max, self._least, words)]
        widths = self._widths
        if self._width is not None:
            widths = _fitted(widths, self._least, max(self._width, _LEAST))
        *beside, last = _stacked(self._heads, widths, self._widths)
        heads = [*map(str.ljust, beside, widths), last]
        for part in known:
            rows = [heads, *(_stacked(row, widths, self._widths) for row in part)]
            text = tabulate(rows, tablefmt="plain", disable_numparse=True, preserve_whitespace=True)
            lines = [line.rstrip() for line in text.split("\n")]
            yield lines[last.count("\n") + 1 :] if self._begun or not any(self._heads) else lines
            self._begun = True

    def _bounded(self, cell: str) -> str:
        shown = plain(cell)
        most = self._longest
        return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}…"


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def _fitted(widths: list[int], least: list[int], most: int) -> list[int]:
    """Return the widths of the columns that stand side by side; the last one has all others below itself.

    :param least: how narrow a column may become, because its texts are wrapped.
    """
    if len(widths) > 2 and not widths[-1]:
        return _fitted(widths[:-1], least, most)
    for count in range(len(widths) - 1, 1, -1):
        left = most - sum(widths[:count]) - 2 * count
        if max(map(min, widths[count:], least[count:])) <= left:
            return [*widths[:count], left]
    first = min(widths[0], most - _LEAST_TEXT - 2)
    return [first, most - first - 2]


def _stacked(row: Sequence[str], widths: Sequence[int], whole: Sequence[int]) -> list[str]:
    """Return the cells of a row for columns of these widths; ``whole`` are the widths of all its cells."""
    *beside, most = widths
    at, lines = 0, [""]
    for cell, width in zip(row[len(beside) :], whole[len(beside) :], strict=True):
        if at + width > most:
            at, lines = 0, [*lines, ""]
        lines[-1] += " " * (at - wcswidth(lines[-1])) + _wrapped(cell, most)
        at += width + 2
    return [*map(_wrapped, row, beside), "\n".join(filter(str.strip, lines))]


def _wrapped(cell: str, width: int) -> str:
    return cell if wcswidth(cell) <= width else textwrap.fill(cell, width, break_on_hyphens=False)
