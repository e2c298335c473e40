"""The headers of a parked message: it waits in a table of delayed messages, because its database is down.

Two headers are added at the end. ``sqlqueue.GiveUpAt`` stays until the message is delivered: if the database
goes down again, the wait does not begin anew. ``sqlqueue.WaitsFor`` names the option that leads to the
database. It is taken off when the message goes back into its queue.
"""

from __future__ import annotations

from datetime import datetime

from sqlqueue_spark.messages.message import (
    DELIVER_AT,
    FORWARD_DESTINATION,
    GIVE_UP_AT,
    WAITS_FOR,
    changed_headers,
    format_member,
    parse_headers,
    parse_time,
)

#: How the last header begins, which names the database.
_BEGIN = f',"{WAITS_FOR}":"'


def parked_headers(text: str | None, *, row_id: str, database: str, give_up_at: str) -> str:
    """The headers with which a message waits for a database, as JSON.

    :param text: the message's headers as they were received, which can be read.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param give_up_at: when it is given up if it has not waited before, as headers carry a time.
    """
    known = (parse_headers(text) or {}).get(GIVE_UP_AT)
    added = {GIVE_UP_AT: known if known and parse_time(known) else give_up_at, WAITS_FOR: database}
    lost = {GIVE_UP_AT, WAITS_FOR, FORWARD_DESTINATION, DELIVER_AT}
    return changed_headers(text, lost, added, row_id=row_id)


def given_up_at(text: str) -> datetime | None:
    """When a parked message is given up, by its headers; None where they do not tell."""
    return parse_time((parse_headers(text) or {}).get(GIVE_UP_AT))


def waits_for(text: str) -> str | None:
    """The database that a message waits for, by its headers or their end; None where it is not parked."""
    place = text.rfind(_BEGIN)
    return (parse_headers("{" + text[place + 1 :]) or {}).get(WAITS_FOR) if place >= 0 else None


def end_of(database: str | None) -> str:
    """The end of the headers of messages that wait for a database; for None, how the end begins for any."""
    return _BEGIN if database is None else f",{format_member(WAITS_FOR, database)}}}"
