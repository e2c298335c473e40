"""Makes the copies of events, one for each table that has subscribed, with the same message id in each.

An event has no destination until the table of subscriptions is read. Then a chunk becomes one or more chunks
whose messages all have one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.chunk_size import CHUNK_BYTES
from sqlqueue_spark.send.compose.composed import nothing
from sqlqueue_spark.send.compose.events import Events
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import CHUNK

#: Gives the addresses that have subscribed to each of some types.
Subscribers = Callable[[Collection[str]], Mapping[str, Sequence[str]]]
#: A copy: the position of its message, where it goes, and whether it is one of an event.
_COPY = pa.schema([("source", pa.int32()), ("destination", pa.string()), ("published", pa.bool_())])


def with_copies(chunk: Chunk, subscribers: Subscribers, written: int) -> tuple[Sequence[Chunk], Sent]:
    """A chunk with copies in the place of its events, and how many events have no subscriber.

    It is cut between rows: each part has at most as many copies as a transaction should, and all that a
    received row sends stays together. A copy of a plain message is a row by itself. Then copies for one table
    stand together.

    :param written: the most rows that one statement writes.
    :raises QueueError: there is no table of subscriptions; or a queue that has subscribed is gone, and there
        is no error queue.
    """
    sends = chunk.sends
    if sends.events is None:
        return [chunk], Sent()
    groups, unsubscribed = _groups(chunk, sends.events, subscribers)
    fail_points.step(fail_points.SUBSCRIBERS_FOUND)
    copied = (
        _copied(chunk, pa.concat_batches(groups)) if groups else replace(chunk, sends=nothing(), owners=())
    )
    most = max(1, min(CHUNK, written, CHUNK_BYTES * len(sends) // max(1, sends.size)))
    number = Counter(copied.owners)
    parts = list(_portions([number[at] for at in range(len(copied))], most))
    return [copied] if len(parts) <= 1 else list(map(copied.only, parts)), Sent(unsubscribed=unsubscribed)


def _copied(chunk: Chunk, copies: pa.RecordBatch) -> Chunk:
    """The chunk, which sends these copies of its messages (:data:`_COPY`)."""
    if chunk.rows is not None:
        copies = copies.take(pc.sort_indices(copies["source"]))
    sources = copies["source"].to_pylist()
    once = len(set(sources)) == len(sources)
    sends = chunk.sends.copied(*copies.columns, keeps_ids=once)
    if chunk.rows is not None:
        return replace(chunk, sends=sends, owners=[chunk.owners[at] for at in sources])
    failed = {number: chunk.failed[at] for number, at in enumerate(sources) if at in chunk.failed}
    return replace(chunk, sends=sends, owners=range(len(sources)), failed=failed)


def _groups(chunk: Chunk, events: Events, subscribers: Subscribers) -> tuple[list[pa.RecordBatch], int]:
    """The copies (:data:`_COPY`) by where they go, no events first; and how many events go nowhere."""
    if chunk.rows is None and chunk.failed:
        events = events.without(sorted(chunk.failed))
    by_topics = events.by_topics()
    wanted = {topic for topics, positions in by_topics if positions for topic in topics}
    found = subscribers(wanted) if wanted else {}
    unsubscribed = 0
    to: dict[str, list[int]] = {}
    for topics, positions in by_topics:
        addresses = dict.fromkeys(address for topic in topics for address in found.get(topic, ()))
        unsubscribed += 0 if addresses else len(positions)
        for address in addresses:
            to[address] = sorted([*to[address], *positions]) if address in to else positions
    others = pc.indices_nonzero(events.numbers.is_null()).cast(pa.int32())
    groups = [_group(others, chunk.sends.addresses.take(others), published=False)] if len(others) else []
    for address, positions in to.items():
        if positions:
            there = pa.repeat(pa.scalar(address, pa.string()), len(positions))
            groups.append(_group(pa.array(positions, pa.int32()), there, published=True))
    return groups, unsubscribed


def _group(sources: pa.Array, destinations: pa.Array, *, published: bool) -> pa.RecordBatch:
    """Copies of messages at these positions, which are in ascending order."""
    columns = [sources, destinations, pa.repeat(pa.scalar(published), len(sources))]
    return pa.RecordBatch.from_arrays(columns, schema=_COPY)


def _portions(sizes: Sequence[int], most: int) -> Iterator[range]:
    """The positions of these sizes, as many together as fit into a transaction."""
    first = count = 0
    for at, size in enumerate(sizes):
        if count and count + size > most:
            yield range(first, at)
            first, count = at, 0
        count += size
    if first < len(sizes):
        yield range(first, len(sizes))
