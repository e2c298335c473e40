"""How a message id is kept in an outbox table, where a collation may take two ids for the same."""

from __future__ import annotations

import hashlib
import re

from sqlqueue_spark.errors import ConfigurationError

#: What fits into the column MessageId.
LONGEST_ID = 200
#: Stands in a key between the shown part of the id and the digest.
MARK = ">"
#: No collation takes two different ids of these characters for the same.
PLAIN = "[0-9a-f-]+"
#: Hexadecimal digits of a digest: 128 bits tell the messages of an outbox apart.
DIGEST_CHARACTERS = 32
#: How much of an id is shown before the mark, and the characters that are not shown.
SHOWN = LONGEST_ID - len(MARK) - DIGEST_CHARACTERS
NOT_SHOWN = "[^!-~]"

#: How keys end: those of process_key and those of a send.
_KEY = re.compile(MARK + r"(?:[0-9a-f]{32}|[0-9a-v]{10})\Z")


def process_key(message_id: str) -> str:
    """The text by which :meth:`Outbox.process` knows an id.

    It is the id itself where that is plain, as most are. Any other id gets a digest, so that ``Order`` and
    ``order`` stay two. A sink knows its sends by other keys.

    :raises ConfigurationError: it is no text of 1 to 200 characters.
    """
    check_id(message_id)
    if re.fullmatch(PLAIN, message_id):
        return message_id
    digest = hashlib.sha256(message_id.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    return re.sub(NOT_SHOWN, "", message_id)[:SHOWN] + MARK + digest


def may_stand_as_it_is(message_id: str) -> bool:
    """Whether the table may hold an id itself although its key is another text.

    Version 0.1.0 kept ids like that, and .NET endpoints do. An id that looks like a key is not sought,
    because another message may have that key; nor is one with a NUL, which not every database takes.
    """
    return not re.fullmatch(PLAIN, message_id) and "\0" not in message_id and not _KEY.search(message_id)


def check_id(message_id: object) -> None:
    """:raises ConfigurationError: it is no text of 1 to 200 characters, as an outbox keeps them."""
    if not isinstance(message_id, str) or not 0 < id_length(message_id) <= LONGEST_ID:
        raise ConfigurationError(
            f"The message id {message_id!r} is no text of 1 to {LONGEST_ID} characters, as an outbox keeps "
            "them; make one that is, such as functions.deterministic_id('order', 'line')."
        )


def id_length(text: str) -> int:
    """The length as SQL Server counts it: a character beyond the first 65,536 takes the place of two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
