"""Makes the copies of events, one for each table that has subscribed, with the same message id in each.

An event has no destination until the table of subscriptions is read. Then a chunk becomes one or more chunks
whose messages all have one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.send.compose.chunk_size import CHUNK_BYTES
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.outcomes import Outcomes
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import CHUNK

#: Gives the addresses that have subscribed to each of some types.
Subscribers = Callable[[Collection[str]], Mapping[str, Sequence[str]]]


#: A copy: the position of its message, where it goes, and whether it is one of an event.
_COPY = pa.schema([("source", pa.int32()), ("destination", pa.string()), ("published", pa.bool_())])


def with_copies(
    chunk: Composed | Outcomes, subscribers: Subscribers, written: int
) -> tuple[Sequence[Composed | Outcomes], Sent]:
    """A chunk with copies in the place of its events, and how many events have no subscriber.

    A chunk of messages is cut between the tables of the subscribers, a chunk of outcomes between received
    rows: each has at most as many copies as a transaction should, and all that a row sends stays together.

    :param written: the most rows that one statement writes.
    :raises QueueError: there is no table of subscriptions; or a queue that has subscribed is gone, and there
        is no error queue.
    """
    sends = chunk.sends if isinstance(chunk, Outcomes) else chunk
    if sends is None or sends.events is None:
        return [chunk], Sent()
    groups, unsubscribed = _groups(sends, subscribers)
    fail_points.step(fail_points.SUBSCRIBERS_FOUND)
    done = Sent(unsubscribed=unsubscribed)
    bytes_each = max(1, sends.size // max(1, len(sends)))
    most = max(1, min(CHUNK, written, CHUNK_BYTES // bytes_each))
    if isinstance(chunk, Outcomes):
        outcomes = _outcomes(chunk, sends, groups)
        number = Counter(outcomes.owners)
        parts = list(_portions([number[at] for at in range(len(outcomes))], most))
        return [outcomes.only(each) for each in parts] if len(parts) > 1 else [outcomes], done
    # The rows of the first group need no new Ids.
    return [
        sends.copied(*pa.concat_batches([groups[at] for at in each]).columns, keeps_ids=each == range(1))
        for each in _portions([group.num_rows for group in groups], most)
    ], done


def _groups(chunk: Composed, subscribers: Subscribers) -> tuple[list[pa.RecordBatch], int]:
    """The copies (:data:`_COPY`) by where they go, no events first; and how many events go nowhere."""
    assert chunk.events is not None
    events = chunk.events.without(sorted(chunk.failed)) if chunk.failed else chunk.events
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
    groups = [_group(others, chunk.addresses.take(others), published=False)] if len(others) else []
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


def _outcomes(outcomes: Outcomes, sends: Composed, groups: Sequence[pa.RecordBatch]) -> Outcomes:
    """The outcomes, which send the messages of these groups, in the order of the received rows."""
    if not groups:
        return replace(outcomes, sends=None, owners=())
    copies = pa.concat_batches(groups)
    copies = copies.take(pc.sort_indices(copies["source"]))
    owners = pa.array(outcomes.owners, pa.int32()).take(copies["source"])
    return replace(outcomes, sends=sends.copied(*copies.columns), owners=owners.to_pylist())
