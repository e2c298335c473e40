"""How many messages go out in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlqueue_spark.inserting import CHUNK
from sqlqueue_spark.send.composing import Composed

#: A chunk is held twice while it is sent.
_CHUNK_BYTES = 16 << 20


def chunks(messages: Iterable[Composed]) -> Iterator[list[Composed]]:
    """Messages in their order, at most 4,000 at once and not too many bytes; copies of one message stay together.

    The outbox counts an id once. So neighbours that share theirs, one message on its way to several queues, must be in
    one transaction, however many they are.
    """
    chunk: list[Composed] = []
    size, copies_begin = 0, 0
    for message in messages:
        if chunk and message.message_id != chunk[-1].message_id:
            copies_begin = len(chunk)
        size += message.size
        chunk.append(message)
        if (len(chunk) > CHUNK or size > _CHUNK_BYTES) and copies_begin:
            yield chunk[:copies_begin]
            chunk, copies_begin = chunk[copies_begin:], 0
            size = sum(each.size for each in chunk)
    if chunk:
        yield chunk
