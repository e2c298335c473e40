"""Realistic messages whose ids follow from their number, so that a test knows what must arrive."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

MESSAGE_TYPE = "Shop.Messages.OrderPlaced, Shop.Messages, Version=3.1.0.0"
# Sent headers are compact JSON with `/` escaped. {n} is the number as twelve hexadecimal digits.
HEADERS = json.dumps(
    {
        "NServiceBus.MessageId": "10000000-0000-4000-8000-{n}",
        "NServiceBus.MessageIntent": "Publish",
        "NServiceBus.ConversationId": "20000000-0000-4000-8000-{n}",
        "NServiceBus.CorrelationId": "10000000-0000-4000-8000-{n}",
        "NServiceBus.ReplyToAddress": "Shop.Web@[dbo]@[shop]",
        "NServiceBus.OriginatingMachine": "WEB-07",
        "NServiceBus.OriginatingEndpoint": "Shop.Web",
        "$.diagnostics.originating.hostid": "7d2e5b0f4c8a4f0f9d6c1b2a39485766",
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": MESSAGE_TYPE,
        "NServiceBus.Version": "9.2.3",
        "NServiceBus.TimeSent": "2025-11-20 08:15:30:123456 Z",
    },
    separators=(",", ":"),
).replace("/", "\\/")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a queue table."""

    id: UUID
    headers: str
    body: bytes | None
    row_version: int
    expires: datetime | None = None


def row_id(number: int) -> UUID:
    """The Id column of message ``number``."""
    return UUID(f"00000000-0000-4000-8000-{number:012x}")


def message_id(number: int) -> str:
    """The message id in the headers of message ``number``; not the row's Id."""
    return f"10000000-0000-4000-8000-{number:012x}"


def headers(number: int) -> str:
    return HEADERS.replace("{n}", f"{number:012x}")


def body(number: int, size: int = 64) -> bytes:
    """A JSON document of at least ``size`` bytes."""
    start = f'{{"order":{number},"note":"'
    return (start + "x" * (size - len(start) - 2) + '"}').encode()


def row_ids(numbers: Iterable[int]) -> list[UUID]:
    return [row_id(number) for number in numbers]


def message_ids(numbers: Iterable[int]) -> list[str]:
    return [message_id(number) for number in numbers]


def number_of(id: UUID | str) -> int:
    """The number of the message that has this Id."""
    return int(str(id)[-12:], 16)
