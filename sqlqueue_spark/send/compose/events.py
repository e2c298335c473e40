"""Which messages of a chunk are events, and which types each of them is published as.

An event is published as its type and as the types that it inherits from, which its header
EnclosedMessageTypes names. Format: the events of NServiceBus.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sqlqueue_spark.errors import Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, type_names
from sqlqueue_spark.send.compose.column_values import among, refuse
from sqlqueue_spark.send.compose.header_shapes import Alike

#: Gives the addresses that have subscribed to each of some types.
Subscribers = Callable[[Collection[str]], Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class Events:
    """The events among the messages of a chunk.

    :param numbers: of each message the number of its types in ``topics``; NULL where it is no event.
    :param topics: the types that events are published as, their full names; most events of a chunk have the
        same.
    """

    numbers: pa.Array
    topics: Sequence[tuple[str, ...]]

    @property
    def published(self) -> pa.Array:
        """Which of the messages are events."""
        return self.numbers.is_valid()

    @classmethod
    def of(cls, published: pa.Array, event_types: pa.Array, enclosed: pa.Array) -> Events:
        """The events of a chunk, each published as the type of its row and the types in its headers."""
        together = pc.binary_join_element_wise(pc.fill_null(event_types, ""), pc.fill_null(enclosed, ""), ";")
        texts = pc.if_else(published, together, pa.scalar(None, pa.string())).dictionary_encode()
        return cls(texts.indices, [type_names(text) for text in texts.dictionary.to_pylist()])

    def typeless(self) -> Unsendable | None:
        """The error that events have no type; None where each has one."""
        why = (
            "A row is to be published and has no type that a queue could subscribe to; set the option "
            f"messageType, give the row the column EventType or the header {ENCLOSED_MESSAGE_TYPES}, or "
            "filter these rows."
        )
        its = [at for names, positions in self.by_topics() if not names for at in positions]
        return Unsendable(dict.fromkeys(its, why)) if its else None

    def by_topics(self) -> list[tuple[tuple[str, ...], list[int]]]:
        """The positions of the events with the types that they are published as."""
        return [
            (names, pc.indices_nonzero(pc.equal(self.numbers, number)).to_pylist())
            for number, names in enumerate(self.topics)
        ]

    def addresses(self, subscribers: Subscribers) -> tuple[Mapping[str, Sequence[int]], int]:
        """The addresses that get copies, with the positions of their events; how many events go nowhere."""
        by_topics = self.by_topics()
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

    def take(self, positions: pa.Array) -> Events:
        return replace(self, numbers=self.numbers.take(positions))

    def without(self, positions: Sequence[int]) -> Events:
        """The same messages, of which these are no events."""
        its = among(positions, len(self.numbers))
        return replace(self, numbers=pc.if_else(its, pa.scalar(None, pa.int32()), self.numbers))


def check_events(published: pa.Array, types: pa.Array, destinations: pa.Array, delayed: pa.Array) -> None:
    """Refuse events that say where to or when; the arguments are columns of one chunk."""
    to = "a Destination, but an event goes to the queues that have subscribed to it"
    later = "a time of delivery, but an event goes at once to those who have subscribed to it now"
    for its, what in ((destinations.is_valid(), to), (delayed, later)):

        def why(at: int, what: str = what) -> str:
            event = f"A row is an event (its EventType is {types[at].as_py()!r:.200})"
            return f"{event} and has {what}; leave one of the two NULL."

        refuse(pc.and_(published, its), why)


def parted(group: Alike, published: pa.Array) -> Iterator[Alike]:
    """The events of a group, and its other rows."""
    its = published.take(group.positions)
    for event, wanted in ((True, its), (False, pc.invert(its))):
        if pc.any(wanted).as_py():
            yield replace(group.filtered(wanted), event=event)
