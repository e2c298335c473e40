"""The queues that have subscribed to the events of a chunk: where their copies go."""

import time
from collections.abc import Callable, Collection, Sequence

from sqlqueue_spark.engines.open_connection import Connection, Target
from sqlqueue_spark.errors import ConfigurationError, QueueError, SqlQueueError
from sqlqueue_spark.messages.addresses import LONGEST_ADDRESS
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.destination_tables import HAS_SUBSCRIPTIONS, Destination
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.tables import subscriptions
from sqlqueue_spark.tables.subscriptions import SubscriptionTable

log = logger(__name__)

#: So long the subscribers that were found count, as with the .NET transport.
_FRESH_SECONDS = 5.0


class SubscribedQueues:
    """Finds subscribers over the connections of one task."""

    def __init__(self, routes: Routes, clock: Callable[[], float] = time.monotonic) -> None:
        self._routes = routes
        self._clock = clock
        #: What stands as the addresses of subscribers, by database and type, and since when that counts.
        self._subscribed: dict[tuple[Target, str], Sequence[str]] = {}
        self._since = 0.0
        #: What stands as the address of a subscriber and is none.
        self._left_out: set[str] = set()

    def check(self) -> None:
        """:raises QueueError: there is no table of subscriptions; the text says how to create it."""
        routes, options = self._routes, self._routes.places.away
        target = Target.of(options)

        def look() -> bool:
            _table(connection, options).check()
            return True

        if not routes.destinations.knows(HAS_SUBSCRIPTIONS, target):
            connection = routes.connected(target)
            routes.destinations.is_known(HAS_SUBSCRIPTIONS, connection, look)

    def of(self, topics: Collection[str], places: Places) -> dict[str, list[str]]:
        """The addresses that have subscribed to each of these types, one for each table.

        What is no address is left out where there is no error queue: it must not end the publisher.

        :raises QueueError: there is no table of subscriptions; or one of these queues is gone, and there is
            no error queue.
        :raises ConfigurationError: likewise, the database of an address cannot be reached from here.
        """
        found = self._subscribed_to(topics, places.away)
        addresses: dict[object, str] = {}
        return {
            topic: [
                *dict.fromkeys(
                    addresses.setdefault(table, each)
                    for each in its
                    if (table := self._table_of(each, topic, places)) is not None
                )
            ]
            for topic, its in found.items()
        }

    def _subscribed_to(self, topics: Collection[str], options: SinkOptions) -> dict[str, Sequence[str]]:
        """What stands as the addresses of subscribers to each of these types. A look takes some statements.

        On PostgreSQL one of them fails where a publisher may only read, and the server's log says so.
        """
        target, now = Target.of(options), self._clock()
        if now - self._since >= _FRESH_SECONDS:
            self._subscribed, self._since = {}, now
        if new := [each for each in topics if (target, each) not in self._subscribed]:
            with self._routes.connected(target).transaction() as connection:
                routing = _table(connection, options)
                routing.check()
                found = routing.subscribers(new)
            self._subscribed |= {(target, each): found.get(each, ()) for each in new}
        return {each: self._subscribed[target, each] for each in topics}

    def _table_of(self, address: str, topic: str, places: Places) -> object:
        """What tells the table at a subscriber's address apart; None where it is left out, and logged."""
        try:
            place = places.destination(address)
        except ConfigurationError as unread:
            if self._routes.places.home.error_queue is not None and len(address) <= LONGEST_ADDRESS:
                return address
            if (left_out := address[:LONGEST_ADDRESS]) not in self._left_out:
                self._left_out.add(left_out)
                log.warning("subscription_left_out topic=%s: %s", topic, unread)
            return None
        if places.is_stored(place):
            return place
        found: Destination | SqlQueueError
        try:
            found = self._routes.found(place, address)
        except SqlQueueError as gone:  # its database gives way: its copies wait
            if place.target == places.at_home:
                raise
            found = gone
        if isinstance(found, Destination):
            return found.target, found.table.address
        if isinstance(found, QueueError) and self._routes.places.home.error_queue is None:
            raise QueueError(
                f"{found} It has subscribed to {topic!r}; where it is gone for good, end that with sqlqueue "
                "unsubscribe, or set the option errorQueue, and only its copies go there."
            ) from found
        return place


def _table(connection: Connection, options: SinkOptions) -> SubscriptionTable:
    """The table that says who has subscribed to events which a sink with these options publishes."""
    schema = options.default_schema or connection.dialect.default_schema
    return SubscriptionTable(connection, subscriptions.table_of(schema))
