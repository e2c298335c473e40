"""What the outbox of a sink knows, and what earlier versions wrote into it."""

from collections.abc import Iterable, Mapping
from functools import cache, partial

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ATOMIC, NO_OUTBOX
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.deliver.destination_tables import HAS_IDS, Destinations
from sqlqueue_spark.send.deliver.sends_once import SendsOnce
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import VERSION_0_1, VERSION_0_2

log = logger(__name__)


def has_sent(destinations: Destinations, connection: Connection) -> bool:
    """Whether the outbox of an atomic pipeline has any ids: then the pipeline has also sent in another mode.

    An atomic batch needs no outbox: what it sends goes out with its claim. But a batch that was sent in
    another mode, and whose rows are still in the queue, may come again in an atomic one: its checkpoint was
    lost, or is an older one.
    """
    options = destinations.options
    if options.transaction_mode != ATOMIC or options.outbox == NO_OUTBOX:
        return False

    def look() -> bool:
        try:
            outbox = OutboxTable.of_sink(connection, options)
        except ConfigurationError:  # no outbox can have this name
            return False
        return outbox.exists() and outbox.has_ids()

    return destinations.is_known(HAS_IDS, connection, look)


@cache
def _warn_of_sharing(outbox: str, endpoint: str) -> None:
    """Say once in a process that two endpoints share a table."""
    log.warning("shared_outbox outbox=%s endpoint=%s: another endpoint, whose name means the same table (as "
                "Shop.Spark and Shop_Spark do), has written into it, and what one has sent counts as sent "
                "for the other; give one of them another name", outbox, endpoint)  # fmt: skip


def look_for_versions(outbox: OutboxTable, destinations: Destinations) -> None:
    """Find out, for all tasks, which earlier versions may have written into an outbox, and who shares it."""
    if destinations.is_known("shared", outbox.connection, outbox.is_shared):
        _warn_of_sharing(outbox.name, outbox.endpoint)
    for version in (VERSION_0_1, VERSION_0_2):
        _may_hold(destinations, outbox, version)


def _may_hold(destinations: Destinations, outbox: OutboxTable, version: str) -> bool:
    return destinations.is_known(version, outbox.connection, partial(outbox.may_hold, version))


class Lookup:
    """Asks the outbox of a connection's database what it knows of work. Make it outside of a transaction."""

    def __init__(self, work: SendsOnce, connection: Connection) -> None:
        self.outbox = OutboxTable.of_sink(connection, work.routes.places.at(connection.target))
        #: By version, the keys by which it may know the work, each with the present key.
        self._earlier: dict[str, Mapping[str, str]] = {}
        may_hold = partial(_may_hold, work.routes.destinations, self.outbox)
        if may_hold(VERSION_0_2):
            self._earlier[VERSION_0_2] = work.earlier_origins()
        if may_hold(VERSION_0_1) and work.keys:
            self._earlier[VERSION_0_1] = work.earlier_sends(_own_table(work.routes))

    def known(self, asked: Iterable[str]) -> set[str]:
        """Which of these keys it has, and the present keys of work that an earlier version has done."""
        found = self.outbox.seen(asked)
        for version, earlier in self._earlier.items():
            found |= {earlier[each] for each in self.outbox.seen_of(earlier, version)}
        return found


def _own_table(routes: Routes) -> str | None:
    """The name of the table of the option ``queue``; None if there is no such option or no such table."""
    try:
        queue, places = routes.places.away.queue, routes.places
        return queue and routes.at(places.destination(queue), queue).table.name
    except QueueError:
        return None
