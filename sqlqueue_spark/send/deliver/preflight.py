"""Looks of the driver, when a sink is made and before it sends: destinations, outboxes, the stage."""

from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from sqlqueue_spark.engines.open_connection import Connection, Target, one_each
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, TryAgain
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations, nothing_passes_on
from sqlqueue_spark.send.deliver.subscribed_queues import SubscribedQueues
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.tables import rights
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_mark import NO_BATCH, Batch
from sqlqueue_spark.tables.stages.stage_name import table_of

log = logger(__name__)


def look_before(options: SinkOptions) -> None:
    """Refuse what is wrong with what options name when a sink is made. Errors as :func:`check_named`.

    It waits 5 seconds at most for each server, lock or statement. A database that is down is no error yet.
    """
    try:
        with one_each() as connected:
            routes = Routes(Destinations(options), lambda target: connected(replace(target, hasty=True)))
            check_named(routes, received=False)
    except TryAgain as error:
        log.warning("not_looked queue=%s: %s The first batch looks again.", options.queue, error)


def check_named(routes: Routes, *, received: bool) -> None:
    """Check the queues and outboxes that options name, and that the login may write there.

    This changes nothing. A destination that only the messages name is not known yet.

    :param received: whether rows are received at home, so that its outbox is needed, whatever options name.
    :raises QueueError: something is missing or may not be used; the text says what, and the remedy.
    :raises ConfigurationError: a database refuses the login, or an address or a name is impossible.
    """
    places = routes.places
    places.check_reach()
    targets = dict.fromkeys([places.at_home] if received or len(places.everywhere()) == 1 else [])
    for _, place in places.named:
        if places.is_stored(place):
            continue
        found = routes.at(place)
        with routes.connected(found.target).transaction() as connection:
            rights.check(connection, found.table, rights.SENDER)
        targets[place.target] = None
    if places.away.publish:
        SubscribedQueues(routes).check()
    for target in targets if places.home.uses_outbox else ():
        OutboxTable.of_sink(routes.connected(target), places.at(target)).rehearse()


def prepare(
    destinations: Destinations,
    columns: FrameColumns,
    addresses: Collection[str],
    *,
    batch: Batch = NO_BATCH,
    last: StageRun | None = None,
    down: Collection[Target] | None = None,
) -> StageRun:
    """Find the tables that these addresses mean, the error queue, and the outbox in each of their databases.

    Where there is an error queue, any other address may be missing: messages to it go there.

    :param columns: those of the batch's frame.
    :param last: what this returned for the sink's last batch. After one, it waits for a database that refuses
        connections.
    :param down: the databases that are down, where rows for them wait; None where they do not.
    :returns: what an atomic pipeline's batch is staged for.

    :raises QueueError: a queue table or an outbox table is missing; the text says which.
    :raises ConfigurationError: an address or a name is impossible, or no atomic source holds the stage of an
        atomic pipeline.
    """
    options = destinations.options
    destinations.forget_if_old()
    if options.transaction_mode == ATOMIC and options.error_queue is None:
        for address in addresses:
            destinations.places.check_one_database(address)
    run = StageRun(batch=batch)

    def check(opened: Connection) -> None:
        outbox = OutboxTable.of_sink(opened, destinations.places.at(opened.target))
        outbox.check()
        destinations.look_for_writers(outbox)

    remembers: Callable[[Connection], object] = check if options.uses_outbox else id
    with one_each(again=last is not None, opened=remembers) as connected:
        if options.transaction_mode == ATOMIC:
            home = connected(Target.of(options))
            _send_left(options, home, batch, held=True)
            with home.transaction():
                run = Stage(home, table_of(options), options).enter(batch, last)
            destinations.has_sent(home)
        elif options.stream and last is None:
            # No stage can have this name, or this login has no rights to it.
            with suppress(ConfigurationError):
                _send_left(options, connected(Target.of(options)), batch, held=False)
        try:
            wait = down is not None and options.error_queue is not None
            routes = Routes(destinations, connected, down=set(down or ()) if wait else None)
            _find(routes, addresses, stores=columns.outcomes and options.transaction_mode != ATOMIC)
            if columns.events or options.publish:
                _look(routes, Target.of(routes.places.away), SubscribedQueues(routes).check)
            for target in destinations.databases() if columns.delays else ():
                routes.later(target)
            if columns.tells_rows:  # what becomes of them is known at home, and their addresses may name it
                routes.reached(routes.places.at_home)
        except QueueError as error:
            raise QueueError(f"{error} Nothing of this batch was sent.") from error
    return run


def _find(routes: Routes, addresses: Iterable[str], *, stores: bool) -> None:
    """Find error and audit queue, and destinations, but for those in a database for which rows wait.

    Where there is an error queue, the tasks find out too what is missing: messages fail then. Where messages
    are only stored for another database, that one is not asked.

    :param stores: whether the queue of the rows may store what is for an error or audit queue elsewhere.
    """
    places = routes.places
    store = places.home.store_and_forward
    for each in filter(None, (places.home.error_queue, places.home.audit_queue)):
        if routes.beside(each) is None and not (stores or store):
            raise nothing_passes_on(each)
    fails = places.home.error_queue is not None
    for address in addresses:
        with suppress(QueueError, ConfigurationError) if fails else nullcontext():
            place = places.destination(address)
            if places.is_stored(place):
                continue
            _look(routes, place.target, partial(routes.at, place))
    if store is not None:
        routes.received(store)


def _look(routes: Routes, target: Target, look: Callable[[], object]) -> None:
    """Look into a database, but for one that is down and for which rows wait."""
    try:
        if not routes.is_down(target):
            look()
    except ConnectionLost:
        if routes.down is None or target == routes.places.at_home:
            raise


def _send_left(options: SinkOptions, connection: Connection, batch: Batch, *, held: bool) -> None:
    """Send what an earlier batch has left on the stage: Spark logged that batch before this one began.

    The sink may have sealed it there while the stream was still atomic. If it is of this very batch, Spark
    runs it again, and it is void.

    :param held: whether also while a live source holds the stage.
    :raises QueueError: a destination is not there any more, or refuses a message.
    """
    stage = Stage(connection, table_of(options), options)
    with connection.transaction():
        there = stage.exists() and (held or not stage.holders())
        sent = stage.move_waiting(before=batch) if there else None
    if sent is not None:
        log.info("sent stream=%s sent=%d: what an earlier batch had staged", options.stream, sent)
