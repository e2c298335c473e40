"""A message on its way out: ids, times and columns as a well-behaved sender writes them.

Format: the headers of NServiceBus. A header that is there is never overwritten.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from json.encoder import encode_basestring as _quoted

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.arrow import pa, pc
from sqlqueue_spark.messages.message import (
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    MESSAGE_ID,
    TIME_SENT,
)

CONTENT_TYPE = "NServiceBus.ContentType"
CONVERSATION_ID = "NServiceBus.ConversationId"
CORRELATION_ID = "NServiceBus.CorrelationId"
MESSAGE_INTENT = "NServiceBus.MessageIntent"
ORIGINATING_ENDPOINT = "NServiceBus.OriginatingEndpoint"
ORIGINATING_MACHINE = "NServiceBus.OriginatingMachine"
REPLY_TO_ADDRESS = "NServiceBus.ReplyToAddress"
TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"

#: The headers that a message may get where it has none of its own.
COMPLETED = frozenset({
    CONTENT_TYPE, CONVERSATION_ID, CORRELATION_ID, DELIVER_AT, ENCLOSED_MESSAGE_TYPES, FORWARD_DESTINATION,
    MESSAGE_ID, MESSAGE_INTENT, ORIGINATING_ENDPOINT, ORIGINATING_MACHINE, REPLY_TO_ADDRESS, TIME_SENT,
    TIME_TO_BE_RECEIVED,
})  # fmt: skip

#: The namespace of :func:`derived_ids`. With another one, what goes out again would have another id.
_DERIVED = uuid.UUID("b1c0a3ce-55d2-4a3e-9d3e-6f2f8e6f3a51").bytes
_VERSION_4, _VERSION_5 = (bytes(each & 0x0F | mark for each in range(256)) for mark in (0x40, 0x50))
_VARIANT = bytes(each & 0x3F | 0x80 for each in range(256))
#: Version 7 has 12 bits to count within a millisecond.
_COUNTED = 1 << 12

#: The bytes of UTF-8 that fit into the columns CorrelationId and ReplyToAddress. A varchar of SQL Server has
#: room for bytes, and no code page needs more bytes for a letter than UTF-8. A longer value stands in its
#: header only. So does a value with a NUL, because not every database keeps a NUL in a text.
COLUMN_BYTES = 255

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,8})\.)?(?P<hours>\d\d):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d{1,7}))?"
)
#: A longer time to be received means never: no database's dates go so far.
_LONGEST_DAYS = 365_000


def new_row_ids(count: int) -> pa.Array:
    """Ids of rows as their 16 bytes: UUIDs that ascend with time (version 7) and within the array.

    The queues of PostgreSQL have an index on Id. Random ids land on pages all over it, and each costs as much
    as the rest of its row. Ascending ids fill page after page. Format:
    https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-7, with a counter of 12 bits after the
    milliseconds.
    """
    ids = _random_uuids(count)
    begins = array("Q")
    for moment, first in enumerate(range(0, count, _COUNTED), time.time_ns() // 1_000_000):
        begin = moment << 16 | 7 << 12
        begins.extend(range(begin, begin + min(_COUNTED, count - first)))
    if sys.byteorder == "little":
        begins.byteswap()
    first_halves = begins.tobytes()
    for at in range(8):
        ids[at::16] = first_halves[at::8]
    return pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(bytes(ids))])


def derived_ids(message_ids: Iterable[str], row_ids: Iterable[str], positions: Iterable[int]) -> pa.Array:
    """The ids of messages that were sent because other ones were received, and have no ids of their own.

    Each is a UUID of version 5 of a compact JSON array, like ``["message id","row id",0]``. It is the same
    when the received message is handled again, and another one for an equal message of another database.

    :param message_ids: of each the id of the received message, and ``row_ids`` the Id of the row as which it
        was first received.
    :param positions: of each its place among the messages that were sent because of that one, from 0.
    """
    told = zip(message_ids, row_ids, positions, strict=True)
    names = (f"[{_quoted(each)},{_quoted(row)},{at}]".encode() for each, row, at in told)
    # uuid.uuid5 takes four times as long, and fails where a policy forbids SHA-1 for what must be secure.
    hashes = (hashlib.sha1(_DERIVED + each, usedforsecurity=False) for each in names)
    return _uuid_texts(_marked(b"".join(each.digest()[:16] for each in hashes), _VERSION_5))


def new_id_texts(count: int) -> pa.Array:
    """Random UUIDs (version 4) as people write them."""
    return _uuid_texts(_random_uuids(count))


def _uuid_texts(uuids: bytes | bytearray) -> pa.Array:
    count, digits = len(uuids) // 16, pa.py_buffer(uuids.hex().encode())
    whole = pa.Array.from_buffers(pa.binary(32), count, [None, digits]).cast(pa.binary())
    ends = (0, 8, 12, 16, 20, 32)
    parts = [pc.binary_slice(whole, first, last) for first, last in itertools.pairwise(ends)]
    return pc.binary_join_element_wise(*parts, b"-").cast(pa.string())


def _random_uuids(count: int) -> bytearray:
    return _marked(os.urandom(16 * count), _VERSION_4)


def _marked(made: bytes, version: bytes) -> bytearray:
    """UUIDs that say their version and variant."""
    marked = bytearray(made)
    marked[6::16] = marked[6::16].translate(version)
    marked[8::16] = marked[8::16].translate(_VARIANT)
    return marked


def uuid_text(given: bytes | bytearray) -> str:
    """A UUID as people write it."""
    digits = given.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def lasting(headers: Sequence[str], bodies: pa.Array) -> pa.RecordBatch:
    """Messages (:data:`OUTGOING`) of these headers and bodies, with new row ids. They never expire.

    Messages that expire would be gone from an error queue before an operator looks at them.
    """
    from sqlqueue_spark.messages.outgoing_schema import OUTGOING

    count = len(headers)
    nothing = [pa.nulls(count, each.type) for each in list(OUTGOING)[3:]]
    return pa.RecordBatch.from_arrays(
        [new_row_ids(count), pa.array(headers, pa.string()), bodies, *nothing], schema=OUTGOING
    )


def waiting(messages: pa.RecordBatch) -> pa.Array:
    """Which of the messages wait until they are due."""
    return pc.or_(messages["due"].is_valid(), messages["delay_ms"].is_valid())


def expiring(messages: pa.RecordBatch, now: datetime) -> pa.RecordBatch:
    """The messages with their times to be received turned into times of expiry, by the database's clock."""
    ttl = messages["ttl_ms"]
    counted = pc.add(
        pa.scalar(now, pa.timestamp("us", tz="UTC")), ttl.cast(pa.duration("ms")).cast(pa.duration("us"))
    )
    return replaced(
        messages, ttl_ms=pa.nulls(len(ttl), ttl.type), expires=pc.coalesce(counted, messages["expires"])
    )


def replaced(messages: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    """The messages with these columns in the place of their own."""
    arrays = [columns.get(name, messages[name]) for name in messages.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=messages.schema)


def body_of(
    value: object, what: str = "A body", kind: Callable[[str], Exception] = ConfigurationError
) -> bytes:
    """A body: bytes and text as they are, anything else as JSON.

    :raises ConfigurationError: it cannot be JSON; or an error of another kind, which calls it ``what``.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        return (value if isinstance(value, str) else _JSON.encode(value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise kind(f"{what} cannot be JSON: {error}; give it bytes, text, or what JSON knows.") from error


def milliseconds(ttl: timedelta | None) -> int | None:
    """A time to be received in milliseconds; None where there is none, or no database's dates go so far."""
    return None if ttl is None or ttl.days > _LONGEST_DAYS else ttl // timedelta(milliseconds=1)


def format_time_span(span: timedelta) -> str:
    """A length of time as .NET writes it: ``[d.]hh:mm:ss[.fffffff]``.

    Format: https://learn.microsoft.com/dotnet/standard/base-types/standard-timespan-format-strings, "c".
    """
    if span < timedelta(0):
        return "-" + format_time_span(-span)
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{span.days}." if span.days else ""
    fraction = f".{span.microseconds * 10:07d}" if span.microseconds else ""
    return f"{days}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


def parse_time_span(text: str | None) -> timedelta | None:
    """The inverse of :func:`format_time_span`; None for a text of another form, and for .NET's "never"."""
    match = _TIME_SPAN.fullmatch(text or "")
    if match is None or int(match["days"] or 0) > _LONGEST_DAYS:
        return None
    days, hours, minutes, seconds, fraction = (int(each or 0) for each in match.groups())
    digits = len(match["fraction"] or "")
    return timedelta(
        days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=fraction * 10**6 // 10**digits
    )
