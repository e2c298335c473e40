"""How many messages go out in one transaction."""

from __future__ import annotations

import itertools
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
    size = 0
    for _, copies in itertools.groupby(messages, lambda message: message.message_id):
        together = list(copies)
        more = sum(len(each.row.headers) + len(each.row.body or b"") for each in together)
        if chunk and (len(chunk) + len(together) > CHUNK or size + more > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk += together
        size += more
    if chunk:
        yield chunk
