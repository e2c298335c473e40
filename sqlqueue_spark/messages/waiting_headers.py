"""The headers with which a message waits in a table of delayed messages.

It waits until it is tried again, as a .NET endpoint writes it, or because its database is down.
ForwardDestination names the queue of the message, so that any mover puts it back there.

Formats: ``NServiceBus.Retries`` counts the delayed retries of NServiceBus. A message loses it on the way to
an error queue. ``sqlqueue.GiveUpAt`` stays until the message is delivered: if the database goes down again,
the wait does not begin anew. ``sqlqueue.WaitsFor`` names the option that leads to the database. Only
ForwardDestination stands behind it.
"""

import re
from datetime import datetime

from sqlqueue_spark.messages.header_json import changed_headers, format_member, parse_headers
from sqlqueue_spark.messages.message import (
    DELIVER_AT,
    FORWARD_DESTINATION,
    GIVE_UP_AT,
    ORIGIN,
    RETRIES,
    RETRIES_TIMESTAMP,
    WAITS_FOR,
    format_time,
    parse_time,
)

#: A count of retries, for Python and for the JVM. No endpoint has written one of more digits.
RETRY_COUNT = "[0-9]{1,9}"


def retry_headers(
    text: str | None, *, queue: str, row_id: str, origin: str, now: datetime, due: datetime
) -> str:
    """The headers with which a message waits until it is tried again, as JSON.

    All others stay byte for byte, the time to be received, too. Parameters as of :func:`waiting_headers`.
    """
    added = {
        RETRIES: str(retries_of((parse_headers(text) or {}).get(RETRIES)) + 1),
        RETRIES_TIMESTAMP: format_time(now),
        ORIGIN: origin,
        DELIVER_AT: format_time(due),
        FORWARD_DESTINATION: queue,
    }
    return changed_headers(text, (WAITS_FOR, GIVE_UP_AT), added, row_id=row_id)


def retries_of(header: str | None) -> int:
    """How often a message was tried again later, by ``NServiceBus.Retries``; 0 where that is no count."""
    return int(header) if header and re.fullmatch(RETRY_COUNT, header) else 0


def waiting_headers(
    text: str | None, *, row_id: str, origin: str, queue: str, database: str, now: datetime, latest: datetime
) -> tuple[str, datetime]:
    """The headers with which a message waits for a database, as JSON, and when it is given up.

    :param text: the message's headers as they were received, which can be read.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param origin: the value of the header of the origin, and ``queue`` the full address of the queue.
    :param latest: when it is given up if it has not waited before, or its time is over and it waits on.
    """
    told = given_up_at(text)
    end = told if told is not None and now < told <= latest else latest  # we never write a later one
    added = {GIVE_UP_AT: format_time(end), ORIGIN: origin, WAITS_FOR: database, FORWARD_DESTINATION: queue}
    return changed_headers(text, [DELIVER_AT], added, row_id=row_id), end


def given_up_at(text: str | None) -> datetime | None:
    """When a message is given up that has waited, by its headers; None where they do not tell."""
    return parse_time((parse_headers(text) or {}).get(GIVE_UP_AT))


def begin_of(database: str | None) -> str:
    """How the last headers of messages begin that wait for a database; for None, that wait for any."""
    return f',"{WAITS_FOR}":"' if database is None else f",{format_member(WAITS_FOR, database)}"


def waits_for(end: str) -> str | None:
    """The database that a message waits for, by the end of its headers; None where it does not wait."""
    return (parse_headers("{" + end[1:]) or {}).get(WAITS_FOR)
