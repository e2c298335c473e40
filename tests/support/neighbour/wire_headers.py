"""Headers as real endpoints read and write them."""

import json
from datetime import UTC, datetime, timedelta

FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
MESSAGE_ID = "NServiceBus.MessageId"
CONVERSATION_ID = "NServiceBus.ConversationId"
CORRELATION_ID = "NServiceBus.CorrelationId"
REPLY_TO = "NServiceBus.ReplyToAddress"
RETRIES = "NServiceBus.Retries"
RETRIES_TIMESTAMP = "NServiceBus.Retries.Timestamp"
DELIVER_AT = "NServiceBus.DeliverAt"
ENCLOSED_TYPES = "NServiceBus.EnclosedMessageTypes"
Headers = dict[str, str]


class PoisonError(Exception):
    """The text is no headers."""


class NullHeadersError(Exception):
    """The text is JSON's null, at which the transport fails."""


def read(text: str | None) -> Headers:
    """Numbers and booleans are read as texts; an empty text, ``{}`` and ``[]`` are no headers."""
    if text is None or not text.strip():
        return {}
    try:
        found = json.loads(text, parse_int=str, parse_float=str)
    except ValueError as error:
        raise PoisonError(text) from error
    if found is None:
        raise NullHeadersError
    if found == []:
        return {}
    if not isinstance(found, dict) or any(isinstance(each, list | dict) for each in found.values()):
        raise PoisonError(text)
    return {name: _text(each) for name, each in found.items() if each is not None}


def write(headers: Headers) -> str:
    return json.dumps(headers, separators=(",", ":")).replace("/", "\\/")


def now(after: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + after).strftime("%Y-%m-%d %H:%M:%S:%f Z")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
