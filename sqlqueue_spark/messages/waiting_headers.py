"""The headers of a message that waits in a table of delayed messages, because its database is down.

``sqlqueue.GiveUpAt`` stays until the message is delivered: if the database goes down again, the wait does not
begin anew. ``sqlqueue.WaitsFor`` names the option that leads to the database. ForwardDestination behind it
names the queue of the message, so that any mover puts it back there.
"""

from __future__ import annotations

from datetime import datetime

from sqlqueue_spark.messages.message import (
    DELIVER_AT,
    FORWARD_DESTINATION,
    GIVE_UP_AT,
    ORIGIN,
    WAITS_FOR,
    changed_headers,
    format_member,
    format_time,
    parse_headers,
    parse_time,
)


def waiting_headers(
    text: str | None, *, row_id: str, origin: str, queue: str, database: str, now: datetime, latest: datetime
) -> tuple[str, datetime]:
    """The headers with which a message waits for a database, as JSON, and when it is given up.

    :param text: the message's headers as they were received, which can be read.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param origin: the value of the header of the origin, and ``queue`` the full address of the queue.
    :param latest: when it is given up if it has not waited before, or its time is over and it waits on.
    """
    known = (parse_headers(text) or {}).get(GIVE_UP_AT)
    told = parse_time(known)
    end = told if told is not None and now < told <= latest else latest  # we never write a later one
    added = {
        GIVE_UP_AT: format_time(end),
        ORIGIN: origin,
        WAITS_FOR: database,
        FORWARD_DESTINATION: queue,
    }
    return changed_headers(text, {*added, DELIVER_AT}, added, row_id=row_id), end


def given_up_at(text: str | None) -> datetime | None:
    """When a message is given up that has waited, by its headers; None where they do not tell."""
    return parse_time((parse_headers(text) or {}).get(GIVE_UP_AT))


def begin_of(database: str | None) -> str:
    """How the last headers of messages begin that wait for a database; for None, that wait for any."""
    return f',"{WAITS_FOR}":"' if database is None else f",{format_member(WAITS_FOR, database)}"


def waits_for(end: str) -> str | None:
    """The database that a message waits for, by the end of its headers; None where it does not wait."""
    return (parse_headers("{" + end[1:]) or {}).get(WAITS_FOR)
