"""The verdict of ServiceControl on a row of its error queue: taken, refused, dropped, or its reading stops.

The rules were observed on its error instance 6.19 with PostgreSQL. It reads headers more strictly than a .NET
endpoint does: a JSON object whose values are strings or ``null``, with nothing before or behind it. An id
that is longer than its columns stops its reading.
"""

from __future__ import annotations

import json
import re
import uuid
from enum import Enum
from typing import NamedTuple

from sqlqueue_spark.messages.message import MESSAGE_ID, TIME_SENT, parse_time
from sqlqueue_spark.messages.outgoing import CONVERSATION_ID

FAILED_QUEUE = "NServiceBus.FailedQ"
PROCESSING_ENDPOINT = "NServiceBus.ProcessingEndpoint"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
EXCEPTION_INFO = "NServiceBus.ExceptionInfo."
#: By which it knows a message that it had retried.
RETRY_ID = "ServiceControl.Retry.UniqueMessageId"
#: Says in a control message that a message was handled which it had retried.
RETRY_SUCCESSFUL = "ServiceControl.Retry.Successful"

#: Longer ids fit neither into the columns of its database nor into those of an outbox. Other texts have more
#: room.
LONGEST_ID, LONGEST_NAME = 200, 450

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z")
_HALF = re.compile("[\ud800-\udfff]")
#: The types of the values that it reads.
_STRINGS = {str, type(None)}


class Verdict(Enum):
    """What ServiceControl does with a row."""

    TAKEN = "taken"
    #: Put aside among the failed imports, which ServicePulse does not show.
    REFUSED = "refused"
    #: Gone without a word.
    DROPPED = "dropped"
    #: It stays in the queue; its reading stops, or the row is stepped over for ever.
    STOPS = "stops"


class Ingestion(NamedTuple):
    """The verdict on a row, and the reason; the reason is empty where the row is taken."""

    verdict: Verdict
    why: str = ""


def ingestion(headers: str | None, *, unreadable_body: bool = False, expired: bool = False) -> Ingestion:
    """What ServiceControl makes of a row.

    :param headers: as they stand in the table.
    :param unreadable_body: whether the body is NULL on an engine where the transport cannot read that.
    :param expired: whether the row's time to be received is over.
    """
    if expired:
        return Ingestion(Verdict.DROPPED, "it has expired")
    if unreadable_body:
        return Ingestion(Verdict.STOPS, "its body is NULL")
    read = _read(headers)
    if isinstance(read, str):
        return Ingestion(Verdict.STOPS, read)
    if len(read.get(MESSAGE_ID, "")) > LONGEST_ID:
        return Ingestion(Verdict.STOPS, f"its message id has more than {LONGEST_ID} characters")
    if RETRY_SUCCESSFUL in read:
        return Ingestion(Verdict.TAKEN)
    why = _refusal(read)
    return Ingestion(Verdict.REFUSED, why) if why else Ingestion(Verdict.TAKEN)


def is_wire_time(text: str) -> bool:
    """Whether a time has exactly the form in which .NET endpoints write it; another one is refused."""
    return _TIME.fullmatch(text) is not None and parse_time(text) is not None


def is_guid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _read(text: str | None) -> dict[str, str] | str:
    """The headers, or why they cannot be read."""
    if not text:
        return {}
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        return "its headers are no JSON"
    if headers is None:
        return "its headers are the JSON null"
    if not isinstance(headers, dict) or not {type(each) for each in headers.values()} <= _STRINGS:
        return "its headers are not a JSON object of strings"
    if ("\\u" in text or not text.isascii()) and any(
        _HALF.search(each) for member in headers.items() for each in member if each
    ):
        return "its headers hold half of an astral character"
    return {name: value for name, value in headers.items() if value is not None}


def _refusal(headers: dict[str, str]) -> str:
    """Why readable headers are refused; empty where they are not."""
    for name in (FAILED_QUEUE, MESSAGE_ID):
        if name not in headers:
            return f"it has no header {name}"
    for name in (TIME_OF_FAILURE, TIME_SENT):
        if name in headers and not is_wire_time(headers[name]):
            return f"its header {name} has another form than yyyy-MM-dd HH:mm:ss:ffffff Z"
    for name in (FAILED_QUEUE, PROCESSING_ENDPOINT, CONVERSATION_ID):
        if len(headers.get(name, "")) > LONGEST_NAME:
            return f"its header {name} has more than {LONGEST_NAME} characters"
    if RETRY_ID in headers and not is_guid(headers[RETRY_ID]):
        return f"its header {RETRY_ID} is no GUID"
    if "\0" in headers.get(f"{EXCEPTION_INFO}Message", ""):
        return "there is a NUL in the message of its exception"
    return ""
