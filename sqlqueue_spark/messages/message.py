"""A message as the stream shows it: its columns, its headers, its times.

Formats: the headers and times of NServiceBus. Headers are a JSON object of strings. They are read as
leniently as .NET endpoints read them. A number or a boolean is a text, and a value ``null`` is no header.
``[]``, ``{}``, ``null``, empty text and NULL are no headers. All else is poison: it is passed on as it is,
and is never an error here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring as _quoted

MESSAGE_ID = "NServiceBus.MessageId"
TIME_SENT = "NServiceBus.TimeSent"
ENCLOSED_MESSAGE_TYPES = "NServiceBus.EnclosedMessageTypes"
#: Says ``True`` in a message that has no type, because endpoints exchange it among themselves.
CONTROL_MESSAGE = "NServiceBus.ControlMessage"
#: Where a delayed message is to go from the queue of its sender.
FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"

#: When a delayed message is due.
DELIVER_AT = "NServiceBus.DeliverAt"

#: How often a message was tried again later.
RETRIES = "NServiceBus.Retries"
RETRIES_TIMESTAMP = "NServiceBus.Retries.Timestamp"

#: Where a store-and-forward job sends a message in the other database, or the type of event as which it
#: publishes it.
STORED_FOR = "$.store-and-forward.destination"
STORED_EVENT = "$.store-and-forward.eventtype"
#: The database for which a message waits that is down, and until when it does.
WAITS_FOR = "sqlqueue.WaitsFor"
GIVE_UP_AT = "sqlqueue.GiveUpAt"
#: Which row a message was at first that we have moved since.
ORIGIN = "sqlqueue.Origin"
#: The message is only on its way to another database: we have stored it. The value is what it is known by
#: there.
STORED = "sqlqueue.Stored"

#: The headers of one hop. They are for the receiver of the message: a message that is passed on loses them.
ONE_HOP = frozenset({
    FORWARD_DESTINATION,
    RETRIES,
    RETRIES_TIMESTAMP,
    STORED_FOR,
    STORED_EVENT,
    WAITS_FOR,
    GIVE_UP_AT,
    ORIGIN,
    STORED,
})  # fmt: skip

#: The further column of messages that go out as they once stood in a table.
RECOVERABLE = "recoverable"

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
_TIME = "%Y-%m-%d %H:%M:%S:%f Z"
#: The most characters of a text that is remembered: longer ones would fill the memory for good.
_REMEMBERED = 1_000


def parse_headers(text: str | None) -> dict[str, str] | None:
    """Headers from their JSON; ``{}`` where there are none, None where they are poison."""
    if not text or text.isspace():
        return {}
    try:
        headers = _decoded(text)
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


def _decoded(text: str) -> object:
    if text[0] == "{":
        headers, end = _DECODER.raw_decode(text)
        if end == len(text):  # as nearly all: no blanks to look for
            return headers
    return _DECODER.decode(text.removeprefix("\ufeff"))


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


def type_names(enclosed: str) -> tuple[str, ...]:
    """The full names of types, without their assemblies, each once, the most derived one first.

    :param enclosed: the header EnclosedMessageTypes as .NET writes it: assembly-qualified names with
        semicolons between them. The arguments of a generic type stand in brackets and belong to its name.
    """
    remembered = len(enclosed) <= _REMEMBERED
    return (_type_names if remembered else _type_names.__wrapped__)(enclosed)


@functools.lru_cache(maxsize=1000)
def _type_names(enclosed: str) -> tuple[str, ...]:
    names, depth, begin, end = [], 0, 0, None
    for at, character in enumerate(f"{enclosed};"):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth <= 0 and character in ",;":
            end = at if end is None else end
            if character == ";":
                names.append(enclosed[begin:end].strip())
                begin, end = at + 1, None
    return tuple(name for name in dict.fromkeys(names) if name)


def format_time(moment: datetime) -> str:
    """A time as headers carry it: exactly 28 characters, in UTC."""
    return moment.astimezone(UTC).strftime(_TIME)


def time_sent(headers: str | None) -> datetime | None:
    """When a message was sent, by its headers' JSON; None where they do not tell."""
    return parse_time((parse_headers(headers) or {}).get(TIME_SENT))


def since(at: datetime | None, now: datetime) -> timedelta | None:
    """How long ago a time was that another clock told: at least no time, also where that one is ahead."""
    return None if at is None else max(timedelta(0), now - at)


def parse_time(text: str | None) -> datetime | None:
    """The inverse of :func:`format_time`; None where the text has another form."""
    try:
        return datetime.strptime(text or "", _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
