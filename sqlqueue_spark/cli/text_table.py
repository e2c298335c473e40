"""Tables of text that steer no terminal: there no wider than it is, elsewhere as wide as their cells."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from sqlqueue_spark.plain_text import plain

#: The least width of a column that is made narrower, and of the last column, whose text is wrapped.
NARROWEST, _LEAST_TEXT = 16, 24
#: The most that a cell is filled up to: one long cell would make each line as long.
_WIDEST = 500


def table(
    heads: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    *,
    names: Sequence[int] = (),
    texts: Sequence[int] = (),
    whole: bool = False,
) -> Iterator[str]:
    """Yield the lines of a table. On a terminal the last column is wrapped, so that lines fit if possible.

    :param names: columns that are made narrower if wrapping is not enough; their cells lose their beginnings.
    :param texts: columns that are made narrower likewise; their cells lose their ends.
    :param whole: do not fit the lines to the terminal, so that users can copy whole values.
    """
    lines = [tuple(map(plain, cells)) for cells in (heads, *rows)]
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
    """Make columns narrower until a line has at most ``most`` characters, if possible; the last one first."""
    over = sum(widths) + 2 * (sum(map(bool, widths)) - 1) - most
    last = max(min(widths[-1], _LEAST_TEXT), widths[-1] - max(0, over))
    over -= widths[-1] - last
    widths[-1] = last
    while over > 0 and (wide := [at for at in narrower if widths[at] > NARROWEST]):
        widths[max(wide, key=widths.__getitem__)] -= 1
        over -= 1


def joined(cells: Sequence[str], widths: Sequence[int], texts: Sequence[int] = ()) -> str:
    """Return a line of a table. A cell that is too long loses its beginning, in a column of texts its end."""
    fitted = (
        cell if len(cell) <= width
        else f"{cell[: width - 1]}…" if at in texts
        else f"…{cell[len(cell) - width + 1 :]}"
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )  # fmt: skip
    return "  ".join(
        cell.ljust(min(width, _WIDEST)) for cell, width in zip(fitted, widths, strict=True)
    ).rstrip()


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
