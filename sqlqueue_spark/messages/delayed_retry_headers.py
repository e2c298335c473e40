"""The headers of a message that has failed and is to be tried again later, as a .NET endpoint writes them.

Format: the headers of NServiceBus. ``NServiceBus.Retries`` counts the delayed retries. A message loses it on
the way to an error queue.
"""

from __future__ import annotations

from datetime import datetime

from sqlqueue_spark.messages.message import (
    DELIVER_AT,
    FORWARD_DESTINATION,
    ORIGIN,
    RETRIES,
    RETRIES_TIMESTAMP,
    changed_headers,
    format_time,
    parse_headers,
)

#: Headers that a retry writes anew. All others stay byte for byte, the time to be received, too.
_WRITTEN = {RETRIES, RETRIES_TIMESTAMP, ORIGIN, DELIVER_AT, FORWARD_DESTINATION}


def retry_headers(
    text: str | None, *, queue: str, row_id: str, origin: str, now: datetime, due: datetime
) -> str:
    """The headers with which a message waits until it is tried again, as JSON.

    :param text: the message's headers as they were received, which can be read.
    :param queue: the queue that it comes back to, a full address.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param origin: the value of the header of the origin, for the row that waits.
    """
    added = {
        RETRIES: str(retries_of((parse_headers(text) or {}).get(RETRIES)) + 1),
        RETRIES_TIMESTAMP: format_time(now),
        ORIGIN: origin,
        DELIVER_AT: format_time(due),
        FORWARD_DESTINATION: queue,
    }
    return changed_headers(text, _WRITTEN, added, row_id=row_id)


def retries_of(header: str | None) -> int:
    """How often a message was tried again later, by ``NServiceBus.Retries``; 0 where that is no count."""
    return int(header) if header and header.isascii() and header.isdecimal() and len(header) < 10 else 0
