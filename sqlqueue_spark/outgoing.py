"""A message on its way out: what a well-behaved sender writes into its headers and columns.

Format: the headers of NServiceBus. A header that is there is never overwritten.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
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

#: What fits into the columns CorrelationId and ReplyToAddress; a longer value stands in its header only.
_COLUMN_CHARACTERS = 255


class Outgoing(NamedTuple):
    """One row to insert; ``headers`` is JSON, ``ttl_ms`` counts from now by the database's clock."""

    id: str
    headers: str
    body: bytes | None
    ttl_ms: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None


def outgoing(headers: Mapping[str, str], body: bytes | None, ttl: timedelta | None = None) -> Outgoing:
    """A row with these headers, under a new Id (never the message id, which is a header)."""
    return Outgoing(
        id=str(uuid.uuid4()),
        headers=format_headers(headers),
        body=body,
        ttl_ms=None if ttl is None else ttl // timedelta(milliseconds=1),
        correlation_id=_fitting(headers.get(CORRELATION_ID)),
        reply_to=_fitting(headers.get(REPLY_TO_ADDRESS)),
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
