"""Makes the copies of events, one for each table that has subscribed, with the same message id in each.

An event has no destination until the table of subscriptions is read. Then a chunk becomes one or more chunks
whose messages all have one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.row_set import portions
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.chunk_size import CHUNK_BYTES
from sqlqueue_spark.send.compose.events import Events
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import CHUNK

#: Gives the addresses that have subscribed to each of some types.
Subscribers = Callable[[Collection[str]], Mapping[str, Sequence[str]]]


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
    if (events := sends.events) is None:
        return [chunk], Sent()
    if chunk.rows is None:
        events = events.without(sorted(chunk.failed))
    to, unsubscribed = _addresses(events, subscribers)
    fail_points.step(fail_points.SUBSCRIBERS_FOUND)
    copied = _copied(chunk, events, to)
    most = max(1, min(CHUNK, written, CHUNK_BYTES * len(sends) // max(1, sends.size)))
    parts = list(portions(range(len(copied)), Counter(copied.owners).__getitem__, len(copied), most))
    cut = [copied] if len(parts) <= 1 else [copied.only(range(its[0], its[-1] + 1)) for its in parts]
    return cut, Sent(unsubscribed=unsubscribed)


def _addresses(events: Events, subscribers: Subscribers) -> tuple[Mapping[str, Sequence[int]], int]:
    """The addresses that get copies, with the positions of their events; and how many events go nowhere."""
    by_topics = events.by_topics()
    wanted = {topic for topics, positions in by_topics if positions for topic in topics}
    found = subscribers(wanted) if wanted else {}
    unsubscribed = 0
    to: dict[str, list[int]] = {}
    for topics, positions in by_topics:
        addresses = dict.fromkeys(address for topic in topics for address in found.get(topic, ()))
        unsubscribed += 0 if addresses else len(positions)
        for address in addresses:
            to[address] = sorted([*to.get(address, ()), *positions])
    return to, unsubscribed


def _copied(chunk: Chunk, events: Events, to: Mapping[str, Sequence[int]]) -> Chunk:
    """The chunk, which sends these events to these addresses, and its other messages as before."""
    others = pc.indices_nonzero(events.numbers.is_null()).cast(pa.int32())
    sources = pa.concat_arrays([others, *(pa.array(its, pa.int32()) for its in to.values())])
    there = [pa.repeat(pa.scalar(address, pa.string()), len(its)) for address, its in to.items()]
    addresses = pa.concat_arrays([chunk.sends.addresses.take(others), *there])
    if chunk.rows is None:
        numbered = enumerate(sources.to_pylist()) if chunk.failed else ()
        failed = {number: chunk.failed[at] for number, at in numbered if at in chunk.failed}
        sends = chunk.sends.copied(sources, addresses)
        return replace(chunk, sends=sends, owners=range(len(sources)), failed=failed)
    order = pc.sort_indices(sources)
    sources, addresses = sources.take(order), addresses.take(order)
    owners = [chunk.owners[at] for at in sources.to_pylist()]
    return replace(chunk, sends=chunk.sends.copied(sources, addresses), owners=owners)
