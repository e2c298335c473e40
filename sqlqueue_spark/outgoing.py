"""A message on its way out: what a well-behaved sender writes into its headers and columns.

Format: the headers of NServiceBus. A header that is there is never overwritten.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages import (
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    TIME_SENT,
    format_headers,
    format_time,
)

CONTENT_TYPE = "NServiceBus.ContentType"
CONVERSATION_ID = "NServiceBus.ConversationId"
CORRELATION_ID = "NServiceBus.CorrelationId"
MESSAGE_INTENT = "NServiceBus.MessageIntent"
ORIGINATING_ENDPOINT = "NServiceBus.OriginatingEndpoint"
ORIGINATING_MACHINE = "NServiceBus.OriginatingMachine"
REPLY_TO_ADDRESS = "NServiceBus.ReplyToAddress"
TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"

#: What fits into the columns CorrelationId and ReplyToAddress; a longer value stands in its header only.
_COLUMN_CHARACTERS = 255

_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,8})\.)?(?P<hours>\d\d):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d{1,7}))?"
)
#: Longer times to be received mean never; no database's dates go so far.
_LONGEST_DAYS = 365_000


class Outgoing(NamedTuple):
    """One row to insert; ``headers`` is JSON. ``ttl_ms`` counts from now by the database's clock, and then ``expires``
    (in UTC) is not given but reckoned.
    """

    id: str
    headers: str
    body: bytes | None
    ttl_ms: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expires: datetime | None = None


def new_ids(count: int) -> Iterator[str]:
    """Random UUIDs (version 4), from one look at the source of randomness."""
    digits = os.urandom(16 * count).hex()
    for at in range(0, 32 * count, 32):
        yield (
            f"{digits[at : at + 8]}-{digits[at + 8 : at + 12]}-4{digits[at + 13 : at + 16]}"
            f"-a{digits[at + 17 : at + 20]}-{digits[at + 20 : at + 32]}"
        )


def expiring(messages: Sequence[Outgoing], now: datetime) -> list[Outgoing]:
    """The messages with their times to be received turned into times, by the database's clock."""
    return [
        message
        if message.ttl_ms is None
        else message._replace(ttl_ms=None, expires=now + timedelta(milliseconds=message.ttl_ms))
        for message in messages
    ]


def outgoing(
    headers: Mapping[str, str],
    body: bytes | None,
    ttl: timedelta | None = None,
    *,
    id: str | None = None,  # noqa: A002 -- the column's name
    expires: datetime | None = None,
) -> Outgoing:
    """A row with these headers, under a new Id (never the message id, which is a header) unless one is given."""
    return Outgoing(
        id=id or str(uuid.uuid4()),
        headers=format_headers(headers),
        body=body,
        ttl_ms=None if ttl is None else ttl // timedelta(milliseconds=1),
        correlation_id=_fitting(headers.get(CORRELATION_ID)),
        reply_to=_fitting(headers.get(REPLY_TO_ADDRESS)),
        expires=expires,
    )


def fill_in(
    given: Mapping[str, str],
    body: bytes | None,
    *,
    message_type: str | None,
    endpoint: str,
    machine: str,
    now: datetime,
) -> dict[str, str]:
    """The given headers and those that every receiver expects.

    :raises ConfigurationError: nobody says what type the message has.
    """
    if message_type is None and ENCLOSED_MESSAGE_TYPES not in given:
        raise ConfigurationError(
            "A message needs a type, or no receiver knows what to do with it; give --type "
            f"'Namespace.Name, Assembly', or the header {ENCLOSED_MESSAGE_TYPES}."
        )
    message_id = given.get(MESSAGE_ID) or str(uuid.uuid4())
    standard = {
        MESSAGE_ID: message_id,
        MESSAGE_INTENT: "Send",
        CONVERSATION_ID: str(uuid.uuid4()),
        CORRELATION_ID: message_id,
        ORIGINATING_MACHINE: machine,
        ORIGINATING_ENDPOINT: endpoint,
        CONTENT_TYPE: content_type(body),
        ENCLOSED_MESSAGE_TYPES: message_type or "",
        TIME_SENT: format_time(now),
    }
    return {**standard, **given}


def format_time_span(span: timedelta) -> str:
    """A length of time as .NET writes it: ``[d.]hh:mm:ss[.fffffff]``.

    Format: https://learn.microsoft.com/dotnet/standard/base-types/standard-timespan-format-strings, "c".
    """
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{span.days}." if span.days else ""
    fraction = f".{span.microseconds * 10:07d}" if span.microseconds else ""
    return f"{days}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


def parse_time_span(text: str | None) -> timedelta | None:
    """The inverse of :func:`format_time_span`; None where the text is no such length, and for .NET's "never"."""
    match = _TIME_SPAN.fullmatch(text or "")
    if match is None or int(match["days"] or 0) > _LONGEST_DAYS:
        return None
    days, hours, minutes, seconds, fraction = (int(each or 0) for each in match.groups())
    digits = len(match["fraction"] or "")
    return timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction * 10**6 // 10**digits
    )


def content_type(body: bytes | None) -> str:
    """What a body looks like; serializers are chosen by it."""
    text = (body or b"").removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        return "text/xml"
    try:
        json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return "application/octet-stream"
    return "application/json"


def ascii_json(text: str) -> str:
    """The same JSON without a letter beyond ASCII, for columns that cannot keep every letter."""
    return text if text.isascii() else re.sub(r"[^\x00-\x7f]", lambda c: json.dumps(c[0])[1:-1], text)


def _fitting(value: str | None) -> str | None:
    return value if value is not None and len(value) <= _COLUMN_CHARACTERS else None
