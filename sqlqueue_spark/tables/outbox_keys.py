"""Makes the keys by which an outbox knows a send, the outcome of a received row, and an id to process.

A send is known by its message id and its final address, and by nothing else. Neither the sink's options nor
the database's name are part of a key. So a batch that is tried again under other options or in a renamed
database neither loses nor doubles messages, and one message may go to many queues. As text a key is the id, a
``>``, and a digest::

    368ab41b-cf63-4e0f-84ba-850c83c7ef95>4qblcojrfl   an id of hexadecimal digits and hyphens, as most are
    Order-42>8f99f06ea394950c34cc88b3a1f2ed5d         any other id: the digest covers the id too

The outcome of a received row has keys of the same form: its origin (``<row id>-<RowVersion>``, and how often
it was moved), and, where it was handled, its id with the queue in the digest. A plain message that failed for
a queue of another database has the key of its send with another digest. The digest says which of them a key
is.

So two ids that a collation takes for the same (by case, accents, trailing blanks) have two keys. And an id
fits that is too long for the column, or that has characters which a database keeps in no text.
"""

import base64
import hashlib
import re
from collections.abc import Iterator

from sqlqueue_spark.engines.database import length_in
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.arrow import pa, pc

#: What fits into the column MessageId.
LONGEST_ID = 200
#: Stands in a key between the shown part of the id and the digest.
_MARK = ">"
#: No collation takes two different ids of these characters for the same.
_PLAIN = "[0-9a-f-]+"
#: The digest behind a plain id has 50 bits, which tell the addresses of one message apart: the chance that
#: two of a thousand have the same digest is 1 to 2,000,000,000. The digest behind any other id has 128 bits,
#: which tell the messages of an outbox apart. With 13 characters for an address each message would write 14
#: bytes more on PostgreSQL, and cost 2 % more of the processor.
_ADDRESS_CHARACTERS, _DIGEST_CHARACTERS = 10, 32
#: How much of an id is shown before the mark, and the characters that are not shown.
_SHOWN = LONGEST_ID - len(_MARK) - _DIGEST_CHARACTERS
_NOT_SHOWN = "[^!-~]"
#: How keys end: those of process_key and those of a send.
_KEY = re.compile(_MARK + r"(?:[0-9a-f]{32}|[0-9a-v]{10})\Z")

#: Versions that wrote keys of other forms. The column PersistenceVersion tells who wrote a row.
VERSION_0_1, VERSION_0_2 = "sqlqueue 0.1.0", "sqlqueue 0.2.0"
#: What a key tells beside id and address: a received row has its outcome; a message was handled in this
#: queue, whatever row it came as; a message has failed for this queue.
OF_ORIGIN, OF_HANDLED, OF_FAILED = "\0origin", "\0handled", "\0error"
#: And that an acknowledgement of a received row went out.
OF_ACKNOWLEDGED = "\0acknowledged"
#: How a mark of outcomes begins. The statement ``outbox_has_outcomes`` has it too.
_OUTCOMES = "outcomes"


def keys(ids: "pa.Array", address: str, what: str = "") -> "pa.Array":
    """The keys of messages to one final address (:attr:`QueueTable.address`): 1 to 200 characters of ASCII.

    :param what: what they tell beside that: :data:`OF_ORIGIN`, :data:`OF_HANDLED` or :data:`OF_FAILED`.
    """
    address += what
    digest = base64.b32hexencode(hashlib.sha256(address.encode()).digest()).decode().lower()
    own = pc.binary_join_element_wise(ids, digest[:_ADDRESS_CHARACTERS], _MARK)
    plain = pc.and_(
        pc.match_substring_regex(ids, rf"\A{_PLAIN}\z"), pc.less_equal(pc.binary_length(own), LONGEST_ID)
    )
    if pc.all(plain).as_py():
        return own
    odd = pc.invert(plain)
    return pc.replace_with_mask(own, odd, _of_odd(ids.filter(odd), address))


def mark_of_outcomes(key: str) -> str:
    """A key that is added beside this one of an outcome: :meth:`OutboxTable.has_outcomes` finds it soon.

    A message id may begin in the same way. Then the outbox is asked for outcomes in vain.
    """
    return f"{_OUTCOMES}{_MARK}{hashlib.sha256(key.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def earlier_keys(message_id: str, table: str, *, own: bool) -> Iterator[str]:
    """The keys by which version 0.1.0 may have known a message to a table.

    :param table: the table's full name, with the database's.
    :param own: whether the table is that of the option ``queue``. Version 0.1.0 knew a message to that table
        by its id alone, and a message to another table by its id and the table.
    """
    if "\0" in message_id or not 0 < length_in("characters", message_id) <= LONGEST_ID:
        return  # version 0.1.0 could not send this id
    if own:
        yield message_id
    copy = _MARK + hashlib.sha256(table.encode()).hexdigest()[:16]
    if len(message_id) + len(copy) > LONGEST_ID:
        message_id = hashlib.sha256(message_id.encode()).hexdigest()
    yield message_id + copy


def _of_odd(ids: "pa.Array", address: str) -> "pa.Array":
    shown = pc.utf8_slice_codeunits(pc.replace_substring_regex(ids, _NOT_SHOWN, ""), 0, _SHOWN)
    begin = hashlib.sha256(hashlib.sha256(address.encode()).digest())
    digests = []
    for each in ids.cast(pa.binary()).to_pylist():
        digest = begin.copy()
        digest.update(each)
        digests.append(digest.hexdigest()[:_DIGEST_CHARACTERS])
    return pc.binary_join_element_wise(shown, pa.array(digests, pa.string()), _MARK)


def process_key(message_id: object) -> str:
    """The text by which :meth:`Outbox.process` knows an id.

    It is the id itself where that is plain, as most are. Any other id gets a digest, so that ``Order`` and
    ``order`` stay two. A sink knows its sends by other keys.

    :raises ConfigurationError: it is no text, or an empty one.
    """
    if not isinstance(message_id, str) or not message_id:
        raise ConfigurationError(
            f"The message id {message_id!r} is no text with characters in it; make one that is, like "
            "functions.deterministic_id('order', 'line')."
        )
    if len(message_id) <= LONGEST_ID and re.fullmatch(_PLAIN, message_id):
        return message_id
    digest = hashlib.sha256(message_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return re.sub(_NOT_SHOWN, "", message_id)[:_SHOWN] + _MARK + digest


def may_stand_as_it_is(message_id: str) -> bool:
    """Whether the table may hold an id itself although its key is another text.

    Version 0.1.0 kept ids like that, and .NET endpoints do. An id that looks like a key is not sought,
    because another message may have that key; nor is one with a NUL, which not every database takes.
    """
    if "\0" in message_id or length_in("characters", message_id) > LONGEST_ID:
        return False
    return not re.fullmatch(_PLAIN, message_id) and not _KEY.search(message_id)


def check_id(message_id: object) -> None:
    """:raises ConfigurationError: it is no text of 1 to 200 characters, as an outbox keeps them."""
    if not isinstance(message_id, str) or not 0 < length_in("characters", message_id) <= LONGEST_ID:
        raise ConfigurationError(
            f"The message id {message_id!r} is no text of 1 to {LONGEST_ID} characters, as an outbox keeps "
            "them; make one that is, like functions.deterministic_id('order', 'line')."
        )
