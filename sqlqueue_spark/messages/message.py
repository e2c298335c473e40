"""What the headers of a message are called, and what its types and times say.

Formats: the headers and times of NServiceBus.
"""

import functools
from datetime import UTC, datetime, timedelta

MESSAGE_ID = "NServiceBus.MessageId"
TIME_SENT = "NServiceBus.TimeSent"
ENCLOSED_MESSAGE_TYPES = "NServiceBus.EnclosedMessageTypes"
#: Says ``True`` in a message that has no type, because endpoints exchange it among themselves.
CONTROL_MESSAGE = "NServiceBus.ControlMessage"
#: Where a delayed message is to go from the queue of its sender.
FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"

#: When a delayed message is due.
DELIVER_AT = "NServiceBus.DeliverAt"

#: How often a message was tried again later.
RETRIES = "NServiceBus.Retries"
RETRIES_TIMESTAMP = "NServiceBus.Retries.Timestamp"

#: Where a store-and-forward job sends a message in the other database, or the type of event as which it
#: publishes it.
STORED_FOR = "$.store-and-forward.destination"
STORED_EVENT = "$.store-and-forward.eventtype"
#: The database for which a message waits that is down, and until when it does.
WAITS_FOR = "sqlqueue.WaitsFor"
GIVE_UP_AT = "sqlqueue.GiveUpAt"
#: Which row a message was at first that we have moved since.
ORIGIN = "sqlqueue.Origin"
#: The message is only on its way to another database: we have stored it. By the value it is known there.
STORED = "sqlqueue.Stored"

#: The headers of one hop. They are for the receiver of the message: a message that is passed on loses them.
ONE_HOP = frozenset({
    FORWARD_DESTINATION, RETRIES, RETRIES_TIMESTAMP, STORED_FOR, STORED_EVENT, WAITS_FOR, GIVE_UP_AT, ORIGIN,
    STORED,
})  # fmt: skip

#: The further column of messages that go out as they once stood in a table.
RECOVERABLE = "recoverable"

_TIME = "%Y-%m-%d %H:%M:%S:%f Z"
#: The most characters of a text that is remembered: longer ones would fill the memory for good.
_REMEMBERED = 1_000


def type_names(enclosed: str) -> tuple[str, ...]:
    """The full names of types, without their assemblies, each once, the most derived one first.

    :param enclosed: the header EnclosedMessageTypes as .NET writes it: assembly-qualified names with
        semicolons between them. The arguments of a generic type stand in brackets and belong to its name.
    """
    remembered = len(enclosed) <= _REMEMBERED
    return (_type_names if remembered else _type_names.__wrapped__)(enclosed)


@functools.lru_cache(maxsize=1000)
def _type_names(enclosed: str) -> tuple[str, ...]:
    names, depth, begin, end = [], 0, 0, None
    for at, character in enumerate(f"{enclosed};"):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth <= 0 and character in ",;":
            end = at if end is None else end
            if character == ";":
                names.append(enclosed[begin:end].strip())
                begin, end = at + 1, None
    return tuple(name for name in dict.fromkeys(names) if name)


def format_time(moment: datetime) -> str:
    """A time as headers carry it: exactly 28 characters, in UTC."""
    return moment.astimezone(UTC).strftime(_TIME).rjust(28, "0")  # strftime pads no year


def since(at: datetime | None, now: datetime) -> timedelta | None:
    """How long ago a time was that another clock told: at least no time, also where that one is ahead."""
    return None if at is None else max(timedelta(0), now - at)


def parse_time(text: str | None) -> datetime | None:
    """The inverse of :func:`format_time`; None where the text has another form."""
    try:
        return datetime.strptime(text or "", _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
