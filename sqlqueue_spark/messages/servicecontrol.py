"""What ServiceControl can read: its verdict on a row of its error queue, and headers as it can take them.

The rules were observed on its error instance 6.19 with PostgreSQL. It reads headers more strictly than a .NET
endpoint does: a JSON object whose values are strings or ``null``, with nothing before or behind it. An id
that is longer than its columns stops its reading.
"""

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from sqlqueue_spark.messages.header_json import holds_half
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

#: Longer ids fit neither into the columns of its database nor into those of an outbox. Other texts have room.
LONGEST_ID, LONGEST_NAME = 200, 450
#: The UTF-16 code units that a .NET endpoint writes of an exception's message.
LONGEST_MESSAGE = 16_384

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z")
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
    lacking = (f"it has no header {name}" for name in (FAILED_QUEUE, MESSAGE_ID) if name not in read)
    why = next(lacking, None) or next(iter(refused(read).values()), None)
    return Ingestion(Verdict.REFUSED, why) if why else Ingestion(Verdict.TAKEN)


def refused(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of readable headers for which it refuses a row, each with the reason."""
    found = {}
    for name in (TIME_OF_FAILURE, TIME_SENT):
        if name in headers and not is_wire_time(headers[name]):
            found[name] = f"its header {name} has another form than yyyy-MM-dd HH:mm:ss:ffffff Z"
    for name in (FAILED_QUEUE, PROCESSING_ENDPOINT, CONVERSATION_ID):
        if len(headers.get(name, "")) > LONGEST_NAME:
            found[name] = f"its header {name} has more than {LONGEST_NAME} characters"
    if RETRY_ID in headers and not _is_guid(headers[RETRY_ID]):
        found[RETRY_ID] = f"its header {RETRY_ID} is no GUID"
    if "\0" in headers.get(f"{EXCEPTION_INFO}Message", ""):
        found[f"{EXCEPTION_INFO}Message"] = "there is a NUL in the message of its exception"
    return found


def readable(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of the headers that it can read, as it can read them."""
    made = {cleaned(name): cleaned(value) for name, value in headers.items()}
    lost = {*refused(made), *([] if 0 < len(made.get(MESSAGE_ID, "")) <= LONGEST_ID else [MESSAGE_ID])}
    return {name: value for name, value in made.items() if name not in lost}


def cleaned(text: str) -> str:
    """The text without NUL and halves of astral characters, which not every reader can take."""
    return re.sub("[\0\ud800-\udfff]", "", text)


def is_wire_time(text: str) -> bool:
    """Whether a time has exactly the form in which .NET endpoints write it; another one is refused."""
    return _TIME.fullmatch(text) is not None and parse_time(text) is not None


def _is_guid(text: str) -> bool:
    with suppress(ValueError):
        return bool(uuid.UUID(text))
    return False


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
    if ("\\u" in text or not text.isascii()) and holds_half(headers):
        return "its headers hold half of an astral character"
    return {name: value for name, value in headers.items() if value is not None}
