"""Looks whether a sink's outbox is in a database, before anything is sent."""

from __future__ import annotations

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.outbox_keys import EARLIER_VERSION
from sqlqueue_spark.tables.outbox import OutboxTable


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
