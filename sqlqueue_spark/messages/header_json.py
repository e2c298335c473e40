"""Headers as the JSON in a row: which text can be read, and how it is written and changed.

Headers are a JSON object of strings. They are read as leniently as .NET endpoints read them. A number or a
boolean is a text, and a value ``null`` is no header. ``[]``, ``{}``, ``null``, empty text and NULL are no
headers. All else is poison: it is passed on as it is, and is never an error here.
"""

import json
import re
from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from json.encoder import encode_basestring as _quoted

from sqlqueue_spark.messages.message import MESSAGE_ID, TIME_SENT, parse_time

_ASTRAL = re.compile("[\U00010000-\U0010ffff]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
#: Any escape of JSON; ``digits`` are those of one that names a character by its number.
_ESCAPE = re.compile(r"\\(?:u(?P<digits>[0-9a-fA-F]{4})|.)", re.DOTALL)
#: Half of an astral character: an escape can name it, but no text can hold it.
_HALF = re.compile("[\ud800-\udfff]")
#: A text of any JSON. What has matched is never tried in another way, however long a text of a stranger is.
TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
#: A member of a flat JSON object, and an object of texts.
_MEMBER = re.compile(
    rf"\s*+(?P<name>{TEXT})\s*+:\s*+(?P<value>{TEXT}|[^\s,{{}}\[\]\"]++)\s*+(?:,|(?=\}}))", re.DOTALL
)
_OBJECT_OF_TEXTS = re.compile(
    rf"\s*+\{{\s*+(?:{TEXT}\s*+:\s*+{TEXT}\s*+(?:,\s*+{TEXT}\s*+:\s*+{TEXT}\s*+)*)?\}}\s*+"
)
#: Made once: to make one takes as long as to read the headers of a message.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_STRING = {str}
_SCALARS = {str, bool, type(None)}
_BOOLEANS: Mapping[object, str] = {True: "true", False: "false"}


def parse_headers(text: str | None) -> dict[str, str] | None:
    """Headers from their JSON; ``{}`` where there are none, None where they are poison."""
    if not text or text.isspace():
        return {}
    try:
        headers, end = _DECODER.raw_decode(text) if text[0] == "{" else (None, 0)
        if end < len(text):  # hardly any: there are blanks, or a mark of the byte order
            headers = _DECODER.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if headers is None or headers == []:
        return {}
    if not isinstance(headers, dict):
        return None
    if "\\u" in text and holds_half(headers):
        return None
    types = set(map(type, headers.values()))
    if types <= _STRING:
        return headers
    if not types <= _SCALARS:
        return None
    return {name: _BOOLEANS.get(value) or value for name, value in headers.items() if value is not None}


def holds_half(headers: Mapping[str, object]) -> bool:
    """Whether a name or a value of decoded JSON holds half of an astral character."""
    return any(_HALF.search(each) for member in headers.items() for each in member if isinstance(each, str))


def is_object_of_texts(text: str) -> bool:
    """Whether readable headers are an object of texts, with nothing before or behind it."""
    return _OBJECT_OF_TEXTS.fullmatch(text) is not None


def format_headers(headers: Mapping[str, str]) -> str:
    """Headers as the .NET senders write them: compact, with slashes and astral characters escaped."""
    members = [f"{_quoted(name)}:{_quoted(value)}" for name, value in headers.items()]
    return f"{{{escaped(','.join(members))}}}"


def format_member(name: str, value: str) -> str:
    """One header as it stands in the JSON."""
    return escaped(f"{_quoted(name)}:{_quoted(value)}")


def escaped(text: str) -> str:
    """JSON of headers with slashes and astral characters escaped as by .NET: with capital digits."""
    if "\\u" in text:
        text = _ESCAPE.sub(_in_capitals, text)
    if "/" in text:
        text = text.replace("/", "\\/")
    return text if text.isascii() else _ASTRAL.sub(_unit_escapes, text)


def ascii_json(text: str) -> str:
    """The same JSON without a letter beyond ASCII, for columns that cannot keep every letter."""
    return text if text.isascii() else _NOT_ASCII.sub(_unit_escapes, text)


def _unit_escapes(found: re.Match[str]) -> str:
    """The escapes of a character in JSON, one for each of its UTF-16 code units."""
    digits = found[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


def _in_capitals(found: re.Match[str]) -> str:
    return found[0] if found["digits"] is None else f"\\u{found['digits'].upper()}"


def without_headers(text: str, names: Container[str]) -> str:
    """Headers as JSON without those of these names; all others stay byte for byte.

    :param text: a JSON object that :func:`parse_headers` can read.
    """
    members, end = [], text.index("{") + 1
    while member := _MEMBER.match(text, end):  # to search for the next one would try each blank as its begin
        members.append(member)
        end = member.end()
    if not members:
        return text
    left = [text[: members[0].start("name")]]
    for number, each in enumerate(members):
        name = each["name"]
        if (json.loads(name) if "\\" in name else name[1:-1]) not in names:
            begin = members[number - 1].end("value") if len(left) > 1 else each.start("name")
            left.append(text[begin : each.end("value")])
    return "".join([*left, text[members[-1].end("value") :]])


def changed_headers(
    text: str | None, lost: Iterable[str], more: Mapping[str, str], *, row_id: str | None = None
) -> str:
    """Headers as JSON without those of some names, and with others behind them, which replace their like.

    The headers that stay do so byte for byte where all are texts, as .NET endpoints write them. Else they are
    written anew.

    :param text: JSON that :func:`parse_headers` can read.
    :param row_id: the Id of the received row, by which a message is known that has no id; None where it stays
        without.
    """
    headers = parse_headers(text) or {}
    if row_id is not None and not headers.get(MESSAGE_ID):
        more = {MESSAGE_ID: row_id, **more}
    lost = {*lost, *more}
    if text is None or not is_object_of_texts(text) or lost.issuperset(headers):
        return format_headers({**{name: each for name, each in headers.items() if name not in lost}, **more})
    kept = without_headers(text.strip(), lost)
    return kept.removesuffix("}").rstrip() + "," + format_headers(more)[1:] if more else kept


def time_sent(headers: str | None) -> datetime | None:
    """When a message was sent, by its headers' JSON; None where they do not tell."""
    return parse_time((parse_headers(headers) or {}).get(TIME_SENT))
