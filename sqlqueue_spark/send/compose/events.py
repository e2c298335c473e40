"""Which messages of a chunk are events, and which types each of them is published as.

An event is published as its type and as the types that it inherits from, which its header
EnclosedMessageTypes names. A column tells these types of each message of a chunk, with semicolons between
them, and NULL for one that is no event. Format: the events of NServiceBus.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from sqlqueue_spark.errors import Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, type_names
from sqlqueue_spark.send.compose.column_values import grouped, refuse

#: Gives the addresses that have subscribed to each of some types.
Subscribers = Callable[[Collection[str]], Mapping[str, Sequence[str]]]


def typeless(events: pa.Array) -> Unsendable | None:
    """The error that events have no type; None where each has one."""
    why = (
        "A row is to be published and has no type that a queue could subscribe to; set the option "
        f"messageType, give the row the column EventType or the header {ENCLOSED_MESSAGE_TYPES}, or "
        "filter these rows."
    )
    its = [
        at for types, positions in grouped(events) if not type_names(types) for at in positions.to_pylist()
    ]
    return Unsendable(dict.fromkeys(its, why)) if its else None


def addresses_of(events: pa.Array, subscribers: Subscribers) -> tuple[Mapping[str, Sequence[int]], int]:
    """The addresses that get copies, with the positions of their events; how many events go nowhere."""
    by_topics = [(type_names(types), positions.to_pylist()) for types, positions in grouped(events)]
    wanted = {topic for topics, _ in by_topics for topic in topics}
    found = subscribers(wanted) if wanted else {}
    unsubscribed = 0
    to: dict[str, list[int]] = {}
    for topics, positions in by_topics:
        addresses = dict.fromkeys(address for topic in topics for address in found.get(topic, ()))
        unsubscribed += 0 if addresses else len(positions)
        for address in addresses:
            to[address] = sorted([*to.get(address, ()), *positions])
    return to, unsubscribed


def check_events(published: pa.Array, types: pa.Array, destinations: pa.Array, delayed: pa.Array) -> None:
    """Refuse events that say where to or when; the arguments are columns of one chunk."""
    to = "a Destination, but an event goes to the queues that have subscribed to it"
    later = "a time of delivery, but an event goes at once to those who have subscribed to it now"
    for its, what in ((destinations.is_valid(), to), (delayed, later)):

        def why(at: int, what: str = what) -> str:
            event = f"A row is an event (its EventType is {types[at].as_py()!r:.200})"
            return f"{event} and has {what}; leave one of the two NULL."

        refuse(pc.and_(published, its), why)
