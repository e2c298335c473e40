"""By what an outbox knows a send: its message id and its final address, and nothing else.

Neither the options of the sink nor the name of the database belong to it: a batch that is tried again under others neither
loses nor doubles, and one message may go to many queues. As text a key is the id, a mark, and a digest::

    368ab41b-cf63-4e0f-84ba-850c83c7ef95>4qblcojrfl   an id of small hexadecimal digits and hyphens, as most are
    Order-42>8f99f06ea394950c34cc88b3a1f2ed5d         any other one: the digest covers the id too

So ids that a collation takes for the same (by case, accents, trailing blanks) stay two, and ids fit that are too long for the
column or hold what a database keeps in no text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sqlqueue_spark.tables.outbox import LONGEST_ID

#: The rows of this version have keys of another form (:func:`earlier_keys`); PersistenceVersion tells who wrote a row.
EARLIER_VERSION = "sqlqueue 0.1.0"

_MARK = ">"
#: No collation takes two of these for the same: letters, and some marks, it may.
_PLAIN = r"\A[0-9a-f-]+\z"
#: 50 bits tell the addresses of one message apart (that two of a thousand are the same has a chance of 1 to 2,000,000,000), 128
#: the messages of an outbox. With 13 characters for the former each message would write 14 bytes more on PostgreSQL, and cost 2 %
#: more of the processor.
_ADDRESS_CHARACTERS, _DIGEST_CHARACTERS = 10, 32
_SHOWN = LONGEST_ID - len(_MARK) - _DIGEST_CHARACTERS
_NOT_SHOWN = "[^!-~]"


def keys(ids: pa.Array, address: str) -> pa.Array:
    """The keys of messages to one final address (:attr:`QueueTable.address`), each of 1 to 200 characters of ASCII."""
    own = pc.binary_join_element_wise(ids, _address_digest(address), _MARK)
    plain = pc.and_(pc.match_substring_regex(ids, _PLAIN), pc.less_equal(pc.binary_length(own), LONGEST_ID))
    if pc.all(plain).as_py():
        return own
    odd = pc.invert(plain)
    return pc.replace_with_mask(own, odd, _of_odd(ids.filter(odd), address))


def earlier_keys(message_id: str, table: str, *, own: bool) -> Iterator[str]:
    """By what version 0.1.0 may have known a message to a table.

    :param table: the table's full name, the database's with it.
    :param own: the table is that of the option ``queue``. Version 0.1.0 knew what went there by its id alone, and what went
        elsewhere by id and table.
    """
    if "\0" in message_id or not 0 < _length(message_id) <= LONGEST_ID:
        return  # those it could not send
    if own:
        yield message_id
    copy = _MARK + hashlib.sha256(table.encode()).hexdigest()[:16]
    if len(message_id) + len(copy) > LONGEST_ID:
        message_id = hashlib.sha256(message_id.encode()).hexdigest()
    yield message_id + copy


def _of_odd(ids: pa.Array, address: str) -> pa.Array:
    shown = pc.utf8_slice_codeunits(pc.replace_substring_regex(ids, _NOT_SHOWN, ""), 0, _SHOWN)
    begin = hashlib.sha256(hashlib.sha256(address.encode()).digest())
    digests = []
    for each in ids.cast(pa.binary()).to_pylist():
        digest = begin.copy()
        digest.update(each)
        digests.append(digest.hexdigest()[:_DIGEST_CHARACTERS])
    return pc.binary_join_element_wise(shown, pa.array(digests, pa.string()), _MARK)


@functools.cache
def _address_digest(address: str) -> str:
    digest = base64.b32hexencode(hashlib.sha256(address.encode()).digest())
    return digest.decode().lower()[:_ADDRESS_CHARACTERS]


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
