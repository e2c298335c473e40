"""What ``sqlqueue peek`` prints for people: a line for each message and, if wanted, its body.

A body that is UTF-8 text is printed as text, any other in hexadecimal digits. Terminal control characters are
escaped. On a terminal, table lines are no wider than it is.
"""

import codecs
import enum
from collections.abc import Iterator, Sequence

from sqlqueue_spark.administration.message_lines import message_id
from sqlqueue_spark.cli.text_table import TextTable, terminal_width
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, TIME_SENT, parse_time
from sqlqueue_spark.plain_text import moment, plain
from sqlqueue_spark.tables.queue_admin import Message

#: Maximum characters of the beginning of a body, and maximum bytes that are read for it.
_BEGINNING, _LOOKED_AT = 2_000, 8_000
_HEX_LINE = 32


class Bodies(enum.Enum):
    NONE = enum.auto()
    BEGINNING = enum.auto()
    WHOLE = enum.auto()


class MessageTable:
    """A table that grows while messages arrive: number, time, id, type, size, and what is unusual."""

    def __init__(self, bodies: Bodies = Bodies.NONE) -> None:
        self._bodies = bodies
        self._width = terminal_width()
        self._table = TextTable("number", "sent", "message id", "type", "body", "")

    def lines(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the lines of these messages, the first time below the heads of the columns."""
        rows = [_row(message) for message in messages]
        if self._bodies is Bodies.NONE:
            yield from self._table.lines(rows)
            return
        for message, lines in zip(messages, self._table.parts([row] for row in rows), strict=True):
            yield from lines
            if self._bodies is Bodies.WHOLE:
                yield from (f"  {line}" for line in whole_body(message.body))
            else:
                yield f"  {beginning(message.body, None if self._width is None else self._width - 2)}"


def beginning(body: bytes | None, width: int | None) -> str:
    """Return a line of at most ``width`` characters with the beginning of a body."""
    if not body:
        return "(no body: NULL)" if body is None else "(empty)"
    most = min(width or _BEGINNING, _BEGINNING)
    text = _text(body[:_LOOKED_AT], whole=len(body) <= _LOOKED_AT)
    shown = f"hex {body[:_BEGINNING].hex()}" if text is None else plain(" ".join(text.split()))
    more = len(body) > (_BEGINNING if text is None else _LOOKED_AT)
    return shown if len(shown) <= most and not more else f"{shown[: most - 1]}…"


def whole_body(body: bytes | None) -> Iterator[str]:
    if not body:
        yield beginning(body, None)
        return
    if (text := _text(body, whole=True)) is None:
        yield from (f"hex {body[at : at + _HEX_LINE].hex()}" for at in range(0, len(body), _HEX_LINE))
    else:
        yield from (line.expandtabs() for line in text.splitlines() or [""])


def body_line(body: bytes | None) -> bytes:
    """Return a body as it is, and a line feed; for a terminal the lines of :func:`whole_body`."""
    if terminal_width() is None:
        return (body or b"") + b"\n"
    return "".join(f"{plain(line)}\n" for line in whole_body(body)).encode()


def _text(body: bytes, *, whole: bool) -> str | None:
    """Return the text of a body without a byte-order mark; None if it is no UTF-8 or has control characters.

    :param whole: False if the last character may be cut.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(body, final=whole)
    except UnicodeDecodeError:
        return None
    return None if any(c < " " and c not in "\t\n\r\f" for c in text) else text


def _row(message: Message) -> tuple[str, ...]:
    headers = parse_headers(message.headers)
    odd = ["expired"] if message.expired else []
    odd += ["headers are not a JSON object of strings"] if headers is None else []
    known = headers or {}
    size = "none" if message.body is None else f"{len(message.body):,} B"
    message_type = known.get(ENCLOSED_MESSAGE_TYPES, "").partition(",")[0]
    told = known.get(TIME_SENT, "")
    sent = told if (at := parse_time(told)) is None else moment(at)
    shown = (sent, message_id(headers, message.id), message_type)
    return (str(message.row_version), *shown, size, ", ".join(odd))
