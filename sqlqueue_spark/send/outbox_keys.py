"""Makes the keys by which an outbox knows a send and the outcome of a received message.

A send is known by its message id and its final address, and by nothing else.

Neither the sink's options nor the database's name are part of a key. So a batch that is tried again under other options or
in a renamed database neither loses nor doubles messages, and one message may go to many queues. As text a key is the id, a
``>``, and a digest::

    368ab41b-cf63-4e0f-84ba-850c83c7ef95>4qblcojrfl   an id of lower-case hexadecimal digits and hyphens, as most are
    Order-42>8f99f06ea394950c34cc88b3a1f2ed5d         any other id: the digest covers the id too

A send that failed has another key, of the received row and the final address. That there are any is said by a key a day
(:func:`day_key`), so that no sender looks for them where nothing failed. The outcome of a received message has other keys of the same form: its origin (``<row id>-<RowVersion>``, with the queue in the
digest), and, where it was handled, its id (with the queue in the digest). The digest says which of them a key is.

So two ids that a collation takes for the same (by case, accents, trailing blanks) have two keys. And an id fits that is too
long for the column, or that has characters which a database keeps in no text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.send.column_values import grouped, in_order
from sqlqueue_spark.tables.outbox_ids import (
    DIGEST_CHARACTERS,
    LONGEST_ID,
    MARK,
    NOT_SHOWN,
    PLAIN,
    SHOWN,
    id_length,
    process_key,
)

#: This version wrote keys of another form (:func:`earlier_keys`). The column PersistenceVersion tells who wrote a row.
EARLIER_VERSION = "sqlqueue 0.1.0"

#: The digest behind a plain id has 50 bits, which tell the addresses of one message apart: the chance that two of a thousand
#: have the same digest is 1 to 2,000,000,000. The digest behind any other id has 128 bits, which tell the messages of an
#: outbox apart. With 13 characters for an address each message would write 14 bytes more on PostgreSQL, and cost 2 % more of
#: the processor.
_ADDRESS_CHARACTERS = 10
#: What a key tells beside id and address: a received row (by its origin) has its outcome in this queue; a message was handled here, whatever
#: row it came as; a send of this row, or of a message that was not received, has failed.
OF_ORIGIN, OF_HANDLED, OF_FAILED = "\0origin", "\0handled", "\0error"
#: What a key of a day tells.
FAILED, PARKED = "errors", "parked"
#: So many days are looked for at most: nobody runs a batch again after a longer time.
_MOST_DAYS = 1_000


def keys(ids: pa.Array, address: str, what: str = "") -> pa.Array:
    """The keys of messages to one final address (:attr:`QueueTable.address`); each key is 1 to 200 characters of ASCII.

    :param what: what they tell beside that: :data:`OF_ORIGIN`, :data:`OF_HANDLED` or :data:`OF_FAILED`.
    """
    address += what
    own = pc.binary_join_element_wise(ids, _address_digest(address), MARK)
    plain = pc.and_(
        pc.match_substring_regex(ids, rf"\A{PLAIN}\z"), pc.less_equal(pc.binary_length(own), LONGEST_ID)
    )
    if pc.all(plain).as_py():
        return own
    odd = pc.invert(plain)
    return pc.replace_with_mask(own, odd, _of_odd(ids.filter(odd), address))


def origins(row_ids: pa.Array, row_versions: pa.Array) -> pa.Array:
    """What tells received rows apart within their queue: row id and RowVersion. A row that is put back gets another RowVersion."""
    return pc.binary_join_element_wise(pc.utf8_lower(row_ids), row_versions.cast(pa.string()), "-")


def keys_by_queue(queues: pa.Array, values: pa.Array, what: str, final: Callable[[str], str]) -> list[str]:
    """The keys of received rows, in their order.

    :param queues: the address of the queue of each, ``values`` what its key is made of, and ``what`` as for :func:`keys`.
    :param final: gives the final address of the queue at an address.
    """
    made = [(its, keys(values.take(its), final(address), what)) for address, its in grouped(queues)]
    return in_order(*zip(*made, strict=True)).to_pylist() if made else []


def day_key(what: str, day: date) -> str:
    """The key that says that messages failed or were parked on a day (UTC); it is added with the keys of these messages.

    :param what: :data:`FAILED` or :data:`PARKED`.
    """
    return process_key(f"{what} {day.isoformat()}")


def day_keys(what: str, now: datetime, keep: timedelta) -> list[str]:
    """The keys of the days that an outbox still knows of.

    One more at each end: clocks differ, and an outbox is not cleaned at the very moment.
    """
    today, days = now.astimezone(UTC).date(), -(-keep // timedelta(days=1))
    return [day_key(what, today - timedelta(days=each)) for each in range(-1, min(days, _MOST_DAYS) + 2)]


def earlier_keys(message_id: str, table: str, *, own: bool) -> Iterator[str]:
    """The keys by which version 0.1.0 may have known a message to a table.

    :param table: the table's full name, with the database's.
    :param own: whether the table is that of the option ``queue``. Version 0.1.0 knew a message to that table by its id
        alone, and a message to another table by its id and the table.
    """
    if "\0" in message_id or not 0 < id_length(message_id) <= LONGEST_ID:
        return  # version 0.1.0 could not send such an id
    if own:
        yield message_id
    copy = MARK + hashlib.sha256(table.encode()).hexdigest()[:16]
    if len(message_id) + len(copy) > LONGEST_ID:
        message_id = hashlib.sha256(message_id.encode()).hexdigest()
    yield message_id + copy


def _of_odd(ids: pa.Array, address: str) -> pa.Array:
    shown = pc.utf8_slice_codeunits(pc.replace_substring_regex(ids, NOT_SHOWN, ""), 0, SHOWN)
    begin = hashlib.sha256(hashlib.sha256(address.encode()).digest())
    digests = []
    for each in ids.cast(pa.binary()).to_pylist():
        digest = begin.copy()
        digest.update(each)
        digests.append(digest.hexdigest()[:DIGEST_CHARACTERS])
    return pc.binary_join_element_wise(shown, pa.array(digests, pa.string()), MARK)


@functools.cache
def _address_digest(address: str) -> str:
    digest = base64.b32hexencode(hashlib.sha256(address.encode()).digest())
    return digest.decode().lower()[:_ADDRESS_CHARACTERS]
