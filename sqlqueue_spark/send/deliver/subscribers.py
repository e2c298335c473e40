"""Who has subscribed to which types of events, remembered for a few seconds.

An endpoint that starts or stops need tell no publisher: it changes the table of subscriptions, and each
publisher looks there again.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from sqlqueue_spark.engines.open_connection import Connected, Connection, Target
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of

#: So long what was found counts, as with the .NET transport.
_FRESH_SECONDS = 5.0


class Subscribers:
    """Looks into the table of subscriptions of the sink's schema, in the sink's database.

    Each process looks for itself, and nothing of it travels from the driver to the workers: a task may begin
    long after the driver has looked, and its worker cannot tell how long, because its clock is another one.
    """

    def __init__(self, options: SinkOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._found: dict[str, Sequence[str]] = {}
        self._found_since = 0.0

    def __reduce__(self) -> "tuple[type[Subscribers], tuple[SinkOptions]]":
        return Subscribers, (self._options,)

    def of(self, topics: Collection[str], connected: Connected) -> Mapping[str, Sequence[str]]:
        """The addresses that have subscribed to each of these types, as they stand in the table.

        :raises QueueError: there is no such table.
        """
        now = self._clock()
        if now - self._found_since >= _FRESH_SECONDS:
            self._found = {}
            self._found_since = now
        missing = [topic for topic in topics if topic not in self._found]
        if missing:
            try:
                with connected(Target.of(self._options)).transaction() as connection:
                    found = self._table(connection).subscribers(missing)
            except QueueError:
                self.check(connected)  # which says what is missing, and how to create it
                raise
            self._found.update({topic: found.get(topic, ()) for topic in missing})
        return {topic: self._found[topic] for topic in topics}

    def check(self, connected: Connected) -> None:
        """:raises QueueError: there is no table of subscriptions; the text says how to create it."""
        with connected(Target.of(self._options)).transaction() as connection:
            self._table(connection).check()

    def _table(self, connection: Connection) -> SubscriptionTable:
        schema = self._options.default_schema or connection.dialect.default_schema
        return SubscriptionTable(connection, table_of(schema))
