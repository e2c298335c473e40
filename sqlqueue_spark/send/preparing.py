"""What is checked on the driver before anything is sent: every destination, and the outbox beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from sqlqueue_spark.connections import Connection, Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.outbox import OutboxTable
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.keys import EARLIER_VERSION
from sqlqueue_spark.send.staging import check_one_database
from sqlqueue_spark.stage import Stage, table_of


def prepare(
    options: SinkOptions, destinations: Destinations, addresses: Iterable[str], *, again: bool = False
) -> str:
    """Find the tables that these addresses mean, and the outbox in each of their databases.

    :param again: their databases were reached before, so that one that lets nobody in is waited for.
    :returns: which run of its batch the stage of an atomic pipeline is open for; else nothing.

    :raises QueueError: a queue table or an outbox table is missing; the message says which.
    :raises ConfigurationError: an address or a name cannot be, or no source has opened the stage of an atomic pipeline.
    """
    addresses = list(addresses)
    destinations.forget_if_old()
    if options.transaction_mode == ATOMIC:
        check_one_database(options, destinations, addresses)
    run = ""
    with ExitStack() as stack:
        opened: dict[Target, Connection] = {}

        def connected(target: Target) -> Connection:
            if target not in opened:
                opened[target] = stack.enter_context(connect(target, again=again))
                if options.uses_outbox:
                    _check_outbox(options, destinations, opened[target])
            return opened[target]

        if options.transaction_mode == ATOMIC:
            with connected(Target.of(options)).transaction() as connection:
                run = Stage(connection, table_of(options)).check_opened()
        for address in addresses:
            _find(destinations, address, connected)
    return run


def _find(destinations: Destinations, address: str, connected: Callable[[Target], Connection]) -> None:
    try:
        destinations.find(address, connected)
    except QueueError as error:
        raise QueueError(f"{error} Nothing of this batch was sent.") from error


def _check_outbox(options: SinkOptions, destinations: Destinations, connection: Connection) -> None:
    endpoint = options.sender or ""
    with connection.transaction():
        outbox = OutboxTable(connection, endpoint, options.default_schema)
        if not outbox.exists():
            raise QueueError(
                f"There is no outbox table {outbox.name}; create it with: sqlqueue outbox create {endpoint!r}, or set "
                "outbox to none."
            )
        destinations.holds_earlier_keys(connection.target, lambda: outbox.may_hold(EARLIER_VERSION))
