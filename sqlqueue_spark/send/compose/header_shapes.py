"""Reads and completes the headers of messages on their way out, and writes them as the .NET senders do.

Most rows come from a queue, so their headers are written in that way already. The headers of one sender have
the same names in the same order: they have the same *shape*. One regular expression a shape, run in C over a
whole column, checks these rows and reads the headers that are needed. Then nothing is parsed or written
again: the missing headers are added at the end of the JSON.

Headers of received rows stay byte for byte, but for an empty message id, in whose place the row's id is
added. Only headers that are no JSON object of strings are written anew. Headers of one hop (:data:`ONE_HOP`)
are taken out of all messages.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa

from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.header_json import (
    format_headers,
    format_member,
    is_object_of_texts,
    parse_headers,
    without_headers,
)
from sqlqueue_spark.messages.message import (
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    MESSAGE_ID,
    ONE_HOP,
    ORIGIN,
    STORED,
    STORED_EVENT,
    STORED_FOR,
)
from sqlqueue_spark.messages.outgoing import COMPLETED, CORRELATION_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED
from sqlqueue_spark.send.compose.column_values import in_order, mapped, mapped_once, told

#: The headers whose values are always read.
_ASKED = (MESSAGE_ID, CORRELATION_ID, REPLY_TO_ADDRESS)
#: Those whose values are read where some message needs them.
_WANTED = (TIME_TO_BE_RECEIVED, ENCLOSED_MESSAGE_TYPES)
#: Those of one hop whose values are read.
_HOPS = (FORWARD_DESTINATION, STORED_FOR, STORED_EVENT, ORIGIN, STORED)
#: A character of a header as .NET writes most of them: all ASCII, and nothing escaped. A value may also have
#: the slash and the quotation mark, which .NET escapes; a name may not. (Addresses have quotation marks on
#: PostgreSQL.)
_PLAIN = r"[\x20\x21\x23-\x2e\x30-\x5b\x5d-\x7e]"
_NAME = re.compile(f"{_PLAIN}*")
_CHARACTER = rf'(?:{_PLAIN}|\\[/"])'
#: The most shapes of a column that are learned; a row of any further shape is parsed by itself.
_SHAPES = 8
#: Headers with more names, or with more characters in their names, have no shape: RE2 refuses an expression
#: that is too large.
_MOST_NAMES, _LONGEST_NAMES = 200, 16_384


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Rows of a column that are completed together, because they lack the same headers of :data:`COMPLETED`.

    :param positions: the positions of the rows in the column.
    :param names: the headers that they have, at least those of :data:`COMPLETED`.
    :param texts: their headers as JSON.
    :param bare: whether they have no headers at all, so that their JSON is ``{}``.
    :param asked: the values of the headers that are read, of those that the rows have. Those of one hop are
        among them, even where ``texts`` has lost them.
    """

    positions: pa.Array
    names: Collection[str]
    texts: pa.Array
    bare: bool
    asked: Mapping[str, pa.Array]
    poison: bool = False

    def value(self, name: str) -> pa.Array:
        """The values of a header of :data:`COMPLETED`; NULL for each row where they have none."""
        if name in self.asked or name not in self.names:
            return self.asked.get(name, pa.nulls(len(self.positions), pa.string()))
        _, values, _ = _around(self.texts.cast(pa.binary()), list(self.names), name)
        return _unescaped(values.cast(pa.string()))

    def completed(self, standard: Mapping[str, str], own: Sequence[pa.Array]) -> pa.Array:
        """The rows' headers as JSON: those that they have, the standard ones that they lack, and ``own``.

        :param standard: the same for every row: members of the JSON as :func:`format_member` writes them, by
            header name.
        :param own: different from row to row: columns of members, for headers that the rows lack. A
            value is NULL where a row gets none.
        """
        lacking = ",".join(member for name, member in standard.items() if name not in self.names)
        more = [each.cast(pa.binary()) for each in own]
        if lacking:
            more.insert(0, pa.scalar(lacking.encode()))
        if not more:
            return self.texts
        if not self.bare:
            more.insert(0, pc.binary_slice(self.texts.cast(pa.binary()), 1, -1))
        members = pc.binary_join_element_wise(*more, b",", null_handling="skip")
        return pc.binary_join_element_wise(b"{", members, b"}", b"").cast(pa.string())


def alike(column: pa.Array, *, received: bool, lost: AbstractSet[str] = ONE_HOP) -> list[Alike]:
    """Group the rows of a column by the headers that they have. A row's headers are JSON, a map or NULL.

    Rows whose headers are poison make a group of their own.

    :param received: whether the rows were received. Then their headers stay as they are.
    :param lost: the headers that do not go out.
    """
    column = in_texts(column)
    found = column.is_valid()
    positions, lacking = (pc.indices_nonzero(its).cast(pa.int32()) for its in (found, pc.invert(found)))
    groups: list[Alike] = []
    if len(lacking):  # all rows of a frame that has no headers
        empty = pa.repeat("{}", len(lacking))
        groups = [Alike(positions=lacking, names=frozenset(), texts=empty, bare=True, asked={})]
        column = column.drop_null()
    odd: list[tuple[int, str]] = []
    learned = 0
    while len(column) and learned < _SHAPES:
        text = column[0].as_py()
        shape = _Shape.of(text) if text else None
        if shape is not None:
            learned += 1
            values = pc.extract_regex(column, shape.pattern)
            if values[0].is_valid:
                its, others = values.is_valid(), values.is_null()
                groups.append(
                    shape.alike(positions.filter(its), column.filter(its), values.filter(its), lost)
                )
                positions, column = positions.filter(others), column.filter(others)
                continue
        odd.append((positions[0].as_py(), text))
        positions, column = positions[1:], column[1:]
    odd += zip(positions.to_pylist(), column.to_pylist(), strict=True)
    return groups + _parsed(odd, received, lost)


def in_texts(headers: pa.Array) -> pa.Array:
    """Headers as JSON, where they are maps or all NULL."""
    if not pa.types.is_map(headers.type):
        return headers.cast(pa.string())
    return mapped(lambda its: format_headers({k: v for k, v in its if v is not None}), headers, pa.string())


def poisoned(groups: Iterable[Alike]) -> dict[int, str]:
    """The headers of the rows that are poison, by position."""
    return dict(itertools.chain.from_iterable(_pairs(its, its.texts) for its in groups if its.poison))


def asked(name: str, groups: Iterable[Alike]) -> dict[int, str]:
    """The values of a header that is read, by position; an empty one is none."""
    having = (_pairs(its, its.asked[name]) for its in groups if name in its.asked)
    return {at: value for at, value in itertools.chain.from_iterable(having) if value}


def asked_column(name: str, groups: Sequence[Alike]) -> pa.Array:
    """The value of a header that is read of each row; NULL for none, and for an empty one."""
    return told(in_order([group.positions for group in groups], [group.value(name) for group in groups]))


def _pairs(group: Alike, values: pa.Array) -> Iterator[tuple[int, str]]:
    return zip(group.positions.to_pylist(), values.to_pylist(), strict=True)


def members(name: str, values: pa.Array) -> pa.Array:
    """Of each value: the header of this name as a member of the JSON; NULL where the value is NULL."""
    if pc.all(pc.match_substring_regex(values, rf"\A{_PLAIN}*\z")).as_py():
        return pc.binary_join_element_wise(f'"{name}":"', values, '"', "")
    # Content types and reply addresses are few, and never plain.
    return mapped_once(functools.partial(format_member, name), values)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The names of a row's headers, in order. ``pattern`` matches JSON of just these, as .NET writes it.

    It has few groups, by the names in ``asked``: RE2 is several times slower with more than three.
    """

    names: tuple[str, ...]
    asked: Mapping[str, str]
    pattern: str

    @classmethod
    def of(cls, text: str) -> _Shape | None:
        """The shape of a row's headers; None if no other row could share it."""
        parts = text.replace('\\"', "'").split('"')
        names = parts[1::4]
        if (
            len(names) > _MOST_NAMES
            or sum(map(len, names)) > _LONGEST_NAMES
            or len(set(names)) < len(names)
            or len(parts) != 4 * len(names) + 1
            or not all(map(_NAME.fullmatch, names))
        ):
            return None
        asked = {name: f"v{number}" for number, name in enumerate(each for each in names if each in _ASKED)}
        written = (_member(name, asked.get(name)) for name in names)
        # The empty group is there because an expression without any group cannot be asked what it found.
        return cls(tuple(names), asked, rf"\A\{{{','.join(written)}\}}(?P<end>)\z")

    def alike(self, positions: pa.Array, texts: pa.Array, values: pa.Array, lost: AbstractSet[str]) -> Alike:
        """The rows of this shape as a group; ``values`` are what the expression found in each."""
        asked = {name: _unescaped(pc.struct_field(values, group)) for name, group in self.asked.items()}
        texts, names = texts.cast(pa.binary()), list(self.names)
        for name in filter(lost.__contains__, self.names):
            before, value, behind = _around(texts, names, name)
            if name == names[-1] and len(names) > 1:  # a comma stands before it
                before = pc.binary_slice(before, 0, -1)
            texts = pc.binary_join_element_wise(before, behind, b"")
            names.remove(name)
            if name in _HOPS:
                asked[name] = _unescaped(value.cast(pa.string()))
        texts = texts.cast(pa.string())
        return Alike(positions=positions, names=names, texts=texts, bare=not names, asked=asked)


def _around(texts: pa.Array, names: Sequence[str], name: str) -> tuple[pa.Array, pa.Array, pa.Array]:
    """What stands before a header, its value, and how the JSON of just these headers goes on without it.

    The texts are split where a name begins, which takes a sixth of what an expression takes. Within a value
    of a text that has a shape each quotation mark has a backslash before it. So ``"name":"`` stands nowhere
    else.
    """
    before, rest = _split(texts, f'"{name}":"')
    if name == names[-1]:
        return before, pc.binary_slice(rest, 0, -2), b"}"
    following = f'"{names[names.index(name) + 1]}":"'
    value, rest = _split(rest, f'",{following}')
    return before, value, pc.binary_join_element_wise(following.encode(), rest, b"")


def _split(texts: pa.Array, pattern: str) -> tuple[pa.Array, pa.Array]:
    """What stands before and behind the first place of a pattern."""
    parts = pc.split_pattern(texts, pattern.encode(), max_splits=1)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def _member(name: str, group: str | None = None) -> str:
    """What matches a header in the JSON, with a group around its value. An empty message id is no id."""
    value = f"{_CHARACTER}{'+' if name == MESSAGE_ID else '*'}"
    return rf'"\Q{name}\E":"{value if group is None else f"(?P<{group}>{value})"}"'


def _unescaped(values: pa.Array) -> pa.Array:
    return pc.replace_substring(pc.replace_substring(values, "\\/", "/"), '\\"', '"')


def _parsed(rows: Iterable[tuple[int, str]], received: bool, hops: AbstractSet[str]) -> list[Alike]:
    """Read rows one by one, and group them; as :func:`alike`.

    :param rows: the headers of each row, behind the row's position.
    """
    groups: dict[tuple[frozenset[str], bool, bool], list[tuple[int, Mapping[str, str], str]]] = {}
    for position, given in rows:
        if (headers := parse_headers(given)) is None:
            groups.setdefault((frozenset(), False, True), []).append((position, {}, given))
            continue
        lost = {name for name, value in headers.items() if name in hops or (name == MESSAGE_ID and not value)}
        names = frozenset(headers) - lost
        text = _text(given, headers, lost, received)
        groups.setdefault((COMPLETED & names, not names, False), []).append((position, headers, text))
    return [
        Alike(
            positions=pa.array([position for position, *_ in found], pa.int32()),
            names=names,
            texts=pa.array([text for *_, text in found], pa.string()),
            bare=bare,
            asked={
                name: pa.array([headers.get(name) for _, headers, _ in found], pa.string())
                for name in (*_ASKED, *_WANTED, *_HOPS)
                if any(name in headers for _, headers, _ in found)
            },
            poison=unreadable,
        )
        for (names, bare, unreadable), found in groups.items()
    ]


def _text(given: str, headers: Mapping[str, str], lost: AbstractSet[str], received: bool) -> str:
    """The headers that go out, as JSON: those of received rows as they were, others as .NET writes them."""
    if not received or not is_object_of_texts(given):
        return format_headers({name: value for name, value in headers.items() if name not in lost})
    return without_headers(given.strip(), lost) if lost else given.strip()
