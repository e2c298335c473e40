"""The headers of a failed message as it goes back into a queue: what its failure has added is taken off.

ServiceControl takes off the same headers when it retries a message. All others stay byte for byte, also the
headers by which ServiceControl knows a message that it had retried.
"""

from __future__ import annotations

from sqlqueue_spark.messages.failure_headers import RAW_HEADERS
from sqlqueue_spark.messages.message import RETRIES, parse_headers, without_headers
from sqlqueue_spark.messages.servicecontrol import EXCEPTION_INFO, FAILED_QUEUE, TIME_OF_FAILURE

#: The beginnings of the names of headers that are taken off.
TAKEN_OFF = (RETRIES, FAILED_QUEUE, TIME_OF_FAILURE, EXCEPTION_INFO, "ServiceControl.EditOf")


def put_back_headers(text: str | None) -> str:
    """The headers with which a message goes back.

    Where the header ``sqlqueue.RawHeaders`` keeps the headers that the message had, those go back. Poison
    goes back as it was.
    """
    headers = parse_headers(text)
    if headers is not None and RAW_HEADERS in headers:
        text = headers[RAW_HEADERS]
        headers = parse_headers(text)
    lost = {name for name in headers or () if name.startswith(TAKEN_OFF)}
    return without_headers(text or "", lost) if lost else text or ""
