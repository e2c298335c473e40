"""What the outbox of a sink knows: which messages were sent before, by their present keys or by those of an earlier version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX, SinkOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destination, Destinations, Placed
from sqlqueue_spark.send.outbox_keys import EARLIER_VERSION, earlier_keys
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.send.routes import Routes
from sqlqueue_spark.tables.outbox import OutboxTable

#: The messages of one destination: the outbox key of each with its position in the chunk.
Keyed = tuple[Destination, Mapping[str, int]]


def has_sent(options: SinkOptions, destinations: Destinations, connection: Connection) -> bool:
    """Whether the outbox of an atomic pipeline has any ids: then the pipeline has also sent in another mode.

    An atomic batch needs no outbox: what it sends goes out with its claim. But a batch that was sent in another mode, and whose
    rows are still in the queue, may come again in an atomic one: its checkpoint was lost, or is an older one.
    """
    if options.transaction_mode != ATOMIC or options.outbox == NO_OUTBOX:
        return False

    def look() -> bool:
        try:
            outbox = OutboxTable(connection, options.sender or "", options.default_schema)
        except ConfigurationError:  # no outbox can have such a name
            return False
        with connection.transaction():
            return outbox.exists() and outbox.has_ids()

    return destinations.has_sent(connection.target, look)


def check_outbox(options: SinkOptions, destinations: Destinations, connection: Connection) -> None:
    """Look whether the sink's outbox is in the connection's database.

    :raises QueueError: it is not; the text says how to create it.
    """
    endpoint = options.sender or ""
    with connection.transaction():
        outbox = OutboxTable(connection, endpoint, options.default_schema)
        if not outbox.exists():
            raise QueueError(
                f"There is no outbox table {outbox.name}; create it with: sqlqueue outbox create {for_shell(endpoint)}, or set "
                "outbox to none."
            )
        destinations.holds_earlier_keys(connection.target, lambda: outbox.may_hold(EARLIER_VERSION))


def keys_before(
    routes: Routes, chunk: Composed, connection: Connection, outbox: OutboxTable, keyed: Sequence[Keyed]
) -> dict[str, str]:
    """The keys by which an earlier version may have known the messages, each with the present key.

    Empty where the outbox has no rows of that version.
    """

    def look() -> bool:
        with connection.transaction():
            return outbox.may_hold(EARLIER_VERSION)

    if not routes.destinations.holds_earlier_keys(connection.target, look):
        return {}
    own = _own_table(routes)
    return {
        each: key
        for to, positions in keyed
        for key, at in positions.items()
        for each in earlier_keys(chunk.ids[at], to.table.name, own=to.table.name == own)
    }


def unsent(routes: Routes, chunk: Composed, connection: Connection, placed: Sequence[Placed]) -> list[Placed]:
    """The messages of a chunk that the outbox does not know, by destination; it adds none to the outbox."""
    outbox = routes.outbox(connection)
    keys = [chunk.keys(each.destination.known_as, each.positions) for each in placed]
    keyed = [
        (each.destination, dict(zip(its, each.positions, strict=True)))
        for each, its in zip(placed, keys, strict=True)
    ]
    earlier = keys_before(routes, chunk, connection, outbox, keyed)
    with connection.transaction():
        known = outbox.seen(key for its in keys for key in its)
        known |= {earlier[each] for each in outbox.seen_of(earlier, EARLIER_VERSION)}
    if not known:
        return list(placed)
    left = (
        Placed(
            each.destination,
            [at for key, at in zip(its, each.positions, strict=True) if key not in known],
        )
        for each, its in zip(placed, keys, strict=True)
    )
    return [each for each in left if each.positions]


def undecided(routes: Routes, outcomes: Outcomes, connection: Connection) -> list[int]:
    """The positions of the received messages that the outbox does not know; it adds none to the outbox."""
    outbox = routes.outbox(connection)
    keys = outcomes.keys(routes.own_address)
    with connection.transaction():
        known = outbox.seen([*keys.origins, *keys.ids])
    pairs = enumerate(zip(*keys, strict=True))
    return [at for at, (origin, id_) in pairs if origin not in known and id_ not in known]


def _own_table(routes: Routes) -> str | None:
    """The name of the table of the option ``queue``; None if there is no such option or no such table."""
    try:
        queue = routes.options.queue
        return queue and routes.find(queue).table.name
    except QueueError:
        return None
