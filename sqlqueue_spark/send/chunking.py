"""How many messages go out in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlqueue_spark.inserting import CHUNK
from sqlqueue_spark.send.composing import Composed

#: A chunk is held twice while it is sent.
_CHUNK_BYTES = 16 << 20


def chunks(messages: Iterable[Composed], rows: int = CHUNK) -> Iterator[list[Composed]]:
    """Messages in their order, at most 4,000 at once and not too many bytes, but at least one.

    :param rows: what one statement takes, where that is less: two of them in one transaction could add ids that stand
        behind those that it has added already, and wait for a twin that waits for it.
    """
    most = min(CHUNK, rows)
    chunk: list[Composed] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) == most or size + message.size > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += message.size
    if chunk:
        yield chunk
