"""A queue row as a line of JSON, and back: ``send --from`` restores the row that ``peek --json`` printed.

Headers and body have a readable field. An exact field stands beside it where the readable one loses bytes:

=====================================  ===========================================================
``id``                                 the row's Id
``correlationId``, ``recoverable``,    the columns of these names; null also if the table lacks them
``replyToAddress``
``expires``                            ISO 8601 in UTC, with at most six decimals, or null
``headers``                            an object of strings; the stored text if it is no such object
``headersText``                        the stored text, or null
``body``                               the body as text, without a byte-order mark, or null
``bodyBase64``                         the bytes of the body, if ``body`` is missing or not exact
``rowVersion``, ``messageId``,         for information; ignored when a line is read
``expired``
=====================================  ===========================================================

If both fields are given they must agree. So an edit of one of them is not silently ignored.
"""

import base64
import binascii
import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.header_json import format_headers, parse_headers
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.messages.outgoing import new_row_ids
from sqlqueue_spark.plain_text import is_unicode, plain, plain_json
from sqlqueue_spark.tables.queue_admin import Message

#: Fields that are ignored when a line is read: those of ``peek``, ``errors discard`` and ``errors show``.
_TOLD = ("rowVersion", "messageId", "expired", "queue", "discarded", "kind", "serviceControl", "why")
_SENT = (
    *("id", "correlationId", "replyToAddress", "recoverable", "expires"),
    *("headers", "headersText", "body", "bodyBase64"),
)
_KNOWN = frozenset((*_TOLD, *_SENT))
#: Maximum characters of a wrong value in an error.
_SHOWN = 40
#: What lines may be instead.
_BODY = "with --type a line is a body"


class NoMessage(ValueError):
    """A line is no message. The text says why, without a full stop."""


class StoredMessage(NamedTuple):
    """A row out of a line, by columns of :data:`STORED`. Without an ``id`` it gets one when it is sent."""

    id: bytes | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    recoverable: bool | None = None
    expires: datetime | None = None
    headers: str | None = None
    body: bytes | None = None


def to_line(value: Mapping[str, Any]) -> str:
    """Return a value as one line of JSON, with terminal control characters escaped."""
    return plain_json(json.dumps(value, ensure_ascii=False))


def to_json(message: Message) -> dict[str, Any]:
    headers = parse_headers(message.headers)
    return {
        "rowVersion": message.row_version,
        "id": message.id,
        "messageId": message_id(headers, message.id),
        "correlationId": message.correlation_id,
        "replyToAddress": message.reply_to_address,
        "recoverable": message.recoverable,
        "expires": iso(message.expires),
        "expired": message.expired,
        "headers": message.headers if headers is None else headers,
        "headersText": message.headers,
        **_readable_body(message.body),
    }


def message_id(headers: Mapping[str, str] | None, row_id: str) -> str:
    return (headers or {}).get(MESSAGE_ID) or row_id


def from_line(line: bytes) -> StoredMessage:
    """Read the message of a line, or raise NoMessage."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise NoMessage(f"byte {error.start + 1} is no UTF-8") from None
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise NoMessage(f"it is no JSON ({error.msg} at character {error.pos + 1}); {_BODY}") from None
    except (ValueError, RecursionError):
        raise NoMessage("it is no JSON that can be read") from None
    if not isinstance(given, dict):
        raise NoMessage(f"it is no JSON object; {_BODY}")
    if unknown := sorted(given.keys() - _KNOWN):
        raise NoMessage(
            f"{_quoted(unknown[0])} is nothing that a message has, which is {', '.join(_SENT)}; {_BODY}"
        )
    expires = _expires(given.get("expires"))
    if expires is None and given.get("expired") is True:
        raise NoMessage("it has expired, at a time that the line does not tell")
    if not isinstance(recoverable := given.get("recoverable"), bool | None):
        raise NoMessage(f"recoverable is {_quoted(recoverable)}, and none of true, false and null")
    return StoredMessage(
        id=_id(given.get("id")),
        correlation_id=_text(given, "correlationId"),
        reply_to=_text(given, "replyToAddress"),
        recoverable=recoverable,
        expires=expires,
        headers=_headers(given),
        body=_body(given),
    )


def to_rows(messages: Iterable[StoredMessage], *, new_ids: bool) -> "pa.RecordBatch":
    from sqlqueue_spark.messages.outgoing_schema import STORED

    rows = [each._asdict() for each in messages]
    for row, new_id in zip(rows, new_row_ids(len(rows)).to_pylist(), strict=True):
        if row["id"] is None or new_ids:
            row["id"] = new_id
    return pa.RecordBatch.from_pylist(rows, STORED)


def _readable_body(body: bytes | None) -> dict[str, Any]:
    if body is None:
        return {"body": None}
    as_base64 = {"bodyBase64": base64.b64encode(body).decode("ascii")}
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return as_base64
    return {"body": text, **({} if text.encode() == body else as_base64)}


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _quoted(value: object) -> str:
    """Return a value for an error message, shortened, with terminal control characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")


def _id(given: object) -> bytes | None:
    if given is None:
        return None
    with contextlib.suppress(ValueError):
        found = uuid.UUID(str(given))
        if str(found) == str(given).lower():
            return found.bytes
    raise NoMessage(f"its id {_quoted(given)} is no UUID")


def _expires(given: object) -> datetime | None:
    if given is None:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(given) if isinstance(given, str) else None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    raise NoMessage(f"expires is {_quoted(given)}, and no time like 2026-01-31T12:00:00Z")


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise NoMessage(f"{name} is {_quoted(value)}, and neither a text nor null")
    if value is not None and not is_unicode(value):
        raise NoMessage(f"{name} holds half of a character (a lone surrogate)")
    return value


def _headers(given: Mapping[str, object]) -> str | None:
    """Return the text of the headers: ``headersText`` if it is given."""
    if "headers" not in given:
        if "headersText" not in given:
            raise NoMessage("it has neither headers nor headersText")
        return _text(given, "headersText")
    read = given["headers"]
    if isinstance(read, dict):
        for name, value in read.items():
            if not isinstance(value, str):
                raise NoMessage(f"the value of the header {_quoted(name)} is {_quoted(value)}, and no text")
            if not (is_unicode(name) and is_unicode(value)):
                raise NoMessage(f"the header {_quoted(name)} holds half of a character (a lone surrogate)")
    elif read is not None and not isinstance(read, str):
        raise NoMessage(f"headers is {_quoted(read)}, and no object of texts")
    if "headersText" not in given:
        return format_headers(read) if isinstance(read, dict) else _text(given, "headers")
    stored = _text(given, "headersText")
    parsed = parse_headers(stored)
    if (stored if parsed is None else parsed) != read:
        raise NoMessage("headers and headersText differ; leave out the one that you did not change")
    return stored


def _body(given: Mapping[str, object]) -> bytes | None:
    """Return the bytes of the body: ``bodyBase64`` if it is given."""
    if "body" not in given and "bodyBase64" not in given:
        raise NoMessage("it has neither body nor bodyBase64")
    text, coded = _text(given, "body"), _text(given, "bodyBase64")
    if coded is None:
        return None if text is None else text.encode()
    try:
        body = base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        raise NoMessage("bodyBase64 is no Base64") from None
    if "body" in given and _readable_body(body).get("body") != text:
        raise NoMessage("body and bodyBase64 differ; leave out the one that you did not change")
    return body
