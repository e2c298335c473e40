"""The exact set of RowVersions that a micro-batch owns, kept as runs of consecutive numbers.

A contiguous claim of any size costs a few bytes; the worst case, every second row, stays below three
bytes a row. Runs hold two machine integers each, so a claim of a million scattered rows is 16 MB.
"""

import base64
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Self, TypeVar

_Row = TypeVar("_Row")

#: The lowest and the highest number that a RowVersion can be.
LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1


class RowSet:
    """An ascending set of RowVersions, as inclusive runs. Grows at its end only."""

    __slots__ = ("_firsts", "_lasts", "_rows")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._rows = 0
        for first, last in runs:
            self.append(first, last)

    @classmethod
    def of(cls, rows: Iterable[int]) -> Self:
        """The set of these rows, in whatever order they come."""
        return cls((row, row) for row in sorted(rows))

    def append(self, first: int, last: int | None = None) -> None:
        """Add the rows ``first`` to ``last`` (or just ``first``), all above what is there."""
        last = first if last is None else last
        if self._lasts and first <= self._lasts[-1]:
            raise ValueError(f"RowVersion {first} does not come after {self._lasts[-1]}.")
        if self._lasts and first == self._lasts[-1] + 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        self._rows += last - first + 1

    def __len__(self) -> int:
        """How many rows, not how many runs."""
        return self._rows

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSet) and (self._firsts, self._lasts) == (other._firsts, other._lasts)

    def __hash__(self) -> int:
        return hash((self._firsts.tobytes(), self._lasts.tobytes()))

    def __repr__(self) -> str:
        runs = len(self._firsts)
        return f"RowSet({list(self)})" if runs <= 8 else f"RowSet({runs} runs, {self._rows} rows)"

    @property
    def first(self) -> int:
        return self._firsts[0]

    @property
    def last(self) -> int:
        return self._lasts[-1]

    @property
    def cubes(self) -> int:
        """The sum of the cubes of the RowVersions."""
        return sum((last * (last + 1)) ** 2 - (first * (first - 1)) ** 2 for first, last in self) // 4

    def rows(self) -> Iterator[int]:
        """Every RowVersion, ascending."""
        for first, last in self:
            yield from range(first, last + 1)

    def between(self, first: int, last: int) -> "RowSet":
        """The rows of this set from ``first`` to ``last``, both included."""
        runs = slice(bisect_left(self._lasts, first), bisect_right(self._firsts, last))
        pairs = zip(self._firsts[runs], self._lasts[runs], strict=True)
        return RowSet((max(start, first), min(end, last)) for start, end in pairs)

    def cut(self, sizes: Iterable[int]) -> "Iterator[RowSet]":
        """Contiguous pieces of the given numbers of rows; the sizes add up to ``len(self)``."""
        runs = iter(self)
        first, last = 0, -1
        for size in sizes:
            piece = RowSet()
            while (missing := size - len(piece)) > 0:
                if first > last:
                    first, last = next(runs)
                end = min(last, first + missing - 1)
                piece.append(first, end)
                first = end + 1
            yield piece

    def chunks(self, rows: int) -> "Iterator[RowSet]":
        """Contiguous pieces of at most ``rows`` rows, so that no statement locks more."""
        yield from self.cut(min(rows, self._rows - at) for at in range(0, self._rows, rows))

    def spans(self, gap: int) -> "Iterator[RowSet]":
        """Pieces whose neighbouring runs are at most ``gap`` numbers apart: each is read by one range."""
        piece = RowSet()
        for first, last in self:
            if len(piece) and first - piece.last > gap + 1:
                yield piece
                piece = RowSet()
            piece.append(first, last)
        if len(piece):
            yield piece

    def spread(self, count: int) -> list[int]:
        """At most ``count`` RowVersions spread evenly over the rows, first and last among them."""
        count = min(count, self._rows)
        positions = sorted({round(i * (self._rows - 1) / max(1, count - 1)) for i in range(count)})
        # How many rows there are up to the end of each run.
        ends = array("q", accumulate(last - first + 1 for first, last in self))
        runs = [bisect_right(ends, position) for position in positions]
        return [self._lasts[run] - ends[run] + 1 + at for run, at in zip(runs, positions, strict=True)]

    def encode(self) -> str:
        """Base64 of deflated LEB128 numbers: for every run the gap before it, then its length less one."""
        numbers = bytearray()
        previous = 0
        for first, last in self:
            _varint(first - previous, numbers)
            _varint(last - first, numbers)
            previous = last
        return base64.b64encode(zlib.compress(bytes(numbers), 6)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> Self:
        """The inverse of :meth:`encode`."""
        runs, previous = cls(), 0
        numbers = _numbers(zlib.decompress(base64.b64decode(text)))
        for gap, more in zip(numbers, numbers, strict=True):
            runs.append(previous + gap, previous + gap + more)
            previous += gap + more
        return runs


def balanced(sizes: Iterable[int], pieces: int) -> list[int]:
    """Cut a sequence of row sizes (bytes) into at most ``pieces`` contiguous parts of similar bytes.

    :returns: the number of rows of each part; none is empty.
    """
    if not (totals := array("q", accumulate(sizes))):
        return []
    shares = [-(-totals[-1] * piece // pieces) for piece in range(1, pieces)]  # each part ends at its share
    ends = {*(bisect_left(totals, share) + 1 for share in shares), len(totals)}
    return [end - begin for begin, end in pairwise([0, *sorted(ends)])]


def bounded(sizes: Sequence[int], most_rows: int, most_bytes: int) -> list[int]:
    """Cut a sequence of row sizes (bytes) into parts of limited rows and bytes; a larger row is one part.

    :returns: the number of rows of each part.
    """
    totals = array("q", accumulate(sizes))
    counts, start, before = [], 0, 0
    while start < len(totals):
        fit = bisect_right(totals, before + most_bytes, start, min(len(totals), start + most_rows))
        end = max(fit, start + 1)
        counts.append(end - start)
        start, before = end, totals[end - 1]
    return counts


def portions(
    rows: Iterable[_Row], size: Callable[[_Row], int], most_rows: int, most_bytes: int
) -> Iterator[list[_Row]]:
    """Yield rows in portions of limited rows and bytes; a larger row is a portion of its own."""
    portion: list[_Row] = []
    held = 0
    for row in rows:
        if portion and held + size(row) > most_bytes:
            yield portion
            portion, held = [], 0
        portion.append(row)
        held += size(row)
        if len(portion) == most_rows:  # it need not wait for the next row
            yield portion
            portion, held = [], 0
    if portion:
        yield portion


def _varint(number: int, into: bytearray) -> None:
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    while zigzag > 0x7F:
        into.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    into.append(zigzag)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield (number >> 1) ^ -(number & 1)
            number = shift = 0
