"""The headers of a message that has failed, as a .NET endpoint writes them and ServiceControl reads them.

When the message goes back into a queue, those are taken off that ServiceControl takes off. The headers that
name the host and the endpoint in which it failed stay, until it is processed again.

Format: the failure headers of NServiceBus, FailedQ among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

from sqlqueue_spark.errors import UnreadableHeaders, type_name
from sqlqueue_spark.messages.header_json import (
    changed_headers,
    format_headers,
    parse_headers,
    without_headers,
)
from sqlqueue_spark.messages.host import host_headers
from sqlqueue_spark.messages.message import (
    FORWARD_DESTINATION,
    GIVE_UP_AT,
    MESSAGE_ID,
    ORIGIN,
    RETRIES,
    STORED,
    WAITS_FOR,
    format_time,
)
from sqlqueue_spark.messages.outgoing import TIME_TO_BE_RECEIVED
from sqlqueue_spark.messages.servicecontrol import (
    EXCEPTION_INFO,
    FAILED_QUEUE,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    PROCESSING_ENDPOINT,
    RETRY_SUCCESSFUL,
    TIME_OF_FAILURE,
    cleaned,
    readable,
)

#: The headers as they were, where they could not go to an error queue so.
RAW_HEADERS = "sqlqueue.RawHeaders"

#: The UTF-16 code units that we write of other texts than an exception's message.
_LONGEST_TEXT = 65_536
#: How a line begins that tells a frame as .NET writes it.
FRAME = "   at "
_MOST_DATA = 50
#: Headers with which a message would expire, be moved on, or count as an acknowledgement in the error queue;
#: and those of hops before.
_LOST = {TIME_TO_BE_RECEIVED, FORWARD_DESTINATION, RETRY_SUCCESSFUL}
_LOST |= {RETRIES, WAITS_FOR, GIVE_UP_AT, ORIGIN, STORED}
#: The beginnings of the names of headers that are taken off when a message goes back.
_TAKEN_OFF = (RETRIES, GIVE_UP_AT, FAILED_QUEUE, TIME_OF_FAILURE, EXCEPTION_INFO, "ServiceControl.EditOf")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a message failed. Texts may have any length and character: they are cut and cleaned on the way out.

    :param exception_type: the full name, by which people group failures: ``package.module.Error``.
    :param data: what else is known, as the headers ``NServiceBus.ExceptionInfo.Data.<name>``.
    :param time: when it failed; None for now.
    :param retry_after: after how long it is tried again; None where it goes to the error queue at once.
    :param error_queue: the address of that; None for the one of the sink.
    :param failed_for: the address that it could not reach, where a retry is to send it there.
    :param waits_for: the database for which the message waits, because it is down; None for none.
    """

    exception_type: str
    message: str = ""
    stack_trace: str = ""
    inner_exception_type: str | None = None
    help_link: str | None = None
    source: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    time: datetime | None = None
    retry_after: timedelta | None = None
    error_queue: str | None = None
    failed_for: str | None = None
    waits_for: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the message goes to an error queue: it is not tried again and waits for no database."""
        return self.retry_after is None and self.waits_for is None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The failure by an exception, without a stack trace: an error of ours names the remedy."""
        inner = error.__cause__
        return cls(
            exception_type=type_name(error),
            message=_cut(said_by(error), LONGEST_MESSAGE),
            inner_exception_type=None if inner is None else type_name(inner),
        )


def failed_headers(text: str | None, failure: Failure, queue: str, endpoint: str, *, row_id: str) -> str:
    """The headers with which a message goes to an error queue, as JSON.

    The headers of the message stay byte for byte where ServiceControl can read them. Else they are written so
    that it can, and :data:`RAW_HEADERS` keeps them as they were. Headers that are poison stand there alone.

    :param text: the message's headers as they were received.
    :param queue: the full address of the queue that it failed for, to which a retry sends it, and
        ``endpoint``, whose queue that is. Both are cut where they are longer than the address of any table.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    """
    headers = parse_headers(text)
    added = _added(failure, queue, endpoint)
    if headers is None:
        return format_headers({MESSAGE_ID: row_id, **added, RAW_HEADERS: text or ""})
    lost = {*_LOST, *added, *(name for name in headers if name.startswith(EXCEPTION_INFO))}
    if not headers.get(MESSAGE_ID):
        lost.add(MESSAGE_ID)
    kept = {name: value for name, value in headers.items() if name not in lost}
    taken = readable(kept)
    if taken != kept:
        return format_headers({MESSAGE_ID: row_id, **taken, **added, RAW_HEADERS: text or ""})
    return changed_headers(text, lost, added, row_id=row_id)


def put_back_headers(text: str | None) -> str:
    """The headers with which a failed message goes back; those that are not taken off stay byte for byte.

    Those by which ServiceControl knows a message that it had retried stay, too. Where :data:`RAW_HEADERS`
    keeps the headers that the message had, those go back. Poison goes back as it was.
    """
    headers = parse_headers(text)
    if headers is not None and RAW_HEADERS in headers:
        since = {name: value for name, value in headers.items() if name.startswith("ServiceControl.")}
        text, headers = headers[RAW_HEADERS], parse_headers(headers[RAW_HEADERS])
        known = {*(since if headers is None else headers), "ServiceControl.EditOf"}
        later = {name: value for name, value in since.items() if name not in known}
        text = changed_headers(text, (), later) if later else text
    lost = {name for name in headers or () if name.startswith(_TAKEN_OFF)}
    return without_headers(text or "", lost) if lost else text or ""


def poison(text: str | None) -> Failure:
    """The failure of a row whose headers cannot be read."""
    return Failure.of(
        UnreadableHeaders(
            "The headers of the message are not a JSON object of strings; they stand in the header "
            f"{RAW_HEADERS}, and the body is as it was: {(text or '')[:80]!r}."
        )
    )


def _added(failure: Failure, queue: str, endpoint: str) -> dict[str, str]:
    """The headers that say why, where and when."""
    told = {
        "ExceptionType": failure.exception_type[:LONGEST_NAME],
        "InnerExceptionType": failure.inner_exception_type,
        "HelpLink": failure.help_link,
        "Message": _cut(failure.message, LONGEST_MESSAGE),
        "Source": failure.source,
        "StackTrace": cut_stack_trace(failure.stack_trace),
    }
    data = {f"Data.{name}": value for name, value in list(failure.data.items())[:_MOST_DATA]}
    exception = {
        EXCEPTION_INFO + cleaned(name): cleaned(_cut(value, _LONGEST_TEXT))
        for name, value in {**told, **data}.items()
        if value is not None
    }
    endpoint = cleaned(_cut(endpoint, LONGEST_NAME))
    return {
        **host_headers(endpoint),
        PROCESSING_ENDPOINT: endpoint,
        FAILED_QUEUE: cleaned(_cut(queue, LONGEST_NAME)),
        **exception,
        TIME_OF_FAILURE: format_time(failure.time or datetime.now(UTC)),
    }


def _cut(text: str, units: int, *, end: bool = False) -> str:
    """At most this number of UTF-16 code units of a text, of its beginning or of its end."""
    if 2 * len(text) <= units:
        return text
    encoded = (text[-units:] if end else text[:units]).encode("utf-16-le", "surrogatepass")
    kept = encoded[-2 * units :] if end else encoded[: 2 * units]
    return kept.decode("utf-16-le", "ignore")


def cut_stack_trace(text: str) -> str:
    """A stack trace that fits into a header: its end, and its first line where that is a frame of .NET."""
    first = ""
    if text.startswith(FRAME):
        line, end, text = text.partition("\n")
        first = _cut(line, _LONGEST_TEXT // 2) + end
    return first + _cut(text, _LONGEST_TEXT - len(first.encode("utf-16-le", "surrogatepass")) // 2, end=True)


def said_by(error: BaseException) -> str:
    """The text of an exception. Its class may be a user's."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 -- the class is a user's, and may do anything
        return f"(its text cannot be had: {type(another).__name__})"
