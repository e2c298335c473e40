"""Sends chunks of messages and of outcomes: to each other database first, then home, a transaction each.

What a received row sends within home, and what else becomes of it, is one transaction there. A row that is
passed on to another database is asked for at home before, goes out in a transaction there, and home only
learns of it where it fails, waits, or owes an acknowledgement.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import (
    ConfigurationError,
    ConnectionLost,
    Duplicate,
    GaveUp,
    LockTimeout,
    QueueError,
    TryAgain,
)
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.options import ATOMIC
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.database_of_address import Place
from sqlqueue_spark.send.compose.received import ACKNOWLEDGED, Received
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.destination_tables import Destination, Destinations
from sqlqueue_spark.send.deliver.original_rows import TooLarge, given_up, with_original_rows
from sqlqueue_spark.send.deliver.outcomes_once import OutcomesOnce
from sqlqueue_spark.send.deliver.sends_once import RolledBack, SendsOnce
from sqlqueue_spark.send.deliver.subscribed_queues import SubscribedQueues
from sqlqueue_spark.send.deliver.tables_of_chunk import TAKES_NOTHING, DatabaseDown, Routes
from sqlqueue_spark.send.sent import CUBES, Sent
from sqlqueue_spark.tables.refused_messages import Why

log = logger(__name__)
T = TypeVar("T")

#: Errors of another database that is down. A QueueError there is the outbox's: the driver has seen it at the
#: start, and what a destination refuses is told from it.
_DOWN = (*TAKES_NOTHING, QueueError)
#: Most tables into which one transaction writes. Each takes some locks, and a server has some thousands.
_MOST_TABLES = 500


class Sender:
    """Sends messages over connections of its own, one for each database.

    :param down: the databases that are down; None where rows do not wait for them, but the batch. Those that
        the sender finds are added.
    """

    def __init__(self, destinations: Destinations, down: set[Target] | None = None) -> None:
        self._options = options = destinations.options
        self._destinations = destinations
        self._places = destinations.places
        self._home = destinations.places.at_home
        self._connections: dict[Target, Connection] = {}
        self._routes = Routes(destinations, self._connected, options.transaction_mode == ATOMIC, down)
        self._subscribed = SubscribedQueues(self._routes)
        self._retry = Retry(f"sending by {options.sender or 'a sink'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def send(self, chunks: Iterable[Chunk]) -> Sent:
        """Send chunks in their order.

        :raises QueueError: a destination or the outbox table is missing, or a destination already has a row
            with the Id that a row of the frame brings along.
        :raises TryAgain: the database gave way too often. The outbox knows what was sent, so it is safe to
            send all again.
        """
        done = Sent()
        for chunk in chunks:
            parts, unsubscribed = self._copied(chunk)
            received = [] if chunk.rows is None else chunk.rows.frame["RowVersion"].to_pylist()
            done += Sent(
                received=len(received),
                cubes=sum(each**3 for each in received) % CUBES,
                unsubscribed=unsubscribed,
                untyped=chunk.sends.untyped,
            )
            for part in parts:
                done += self._sent(self._retried(partial(self._addressed, part)))
        return done

    def _copied(self, chunk: Chunk) -> tuple[Sequence[Chunk], int]:
        """The chunk with copies in the place of its events. Events of unknown subscribers fail, or wait."""
        target = Target.of(chunk.places.away)
        subscribers = partial(self._subscribed.of, places=chunk.places)
        try:
            return self._retried(lambda: chunk.with_copies(subscribers, target.dialect.written))
        except (QueueError, DatabaseDown) as error:
            if chunk.rows is None or chunk.handled or self._options.error_queue is None:
                raise
            publishing = sorted({owner for at, owner in enumerate(chunk.owners) if chunk.sends.is_event(at)})
            if isinstance(error, DatabaseDown):
                self._routes.note_down(target, error)
                late = self._given_up(chunk.rows, publishing)
                lost = {row: self._down(target, given_up=row in late) for row in publishing}
            else:
                lost = dict.fromkeys(publishing, Failure.of(error))
            left = [at for at, owner in enumerate(chunk.owners) if owner not in lost]
            owners = [chunk.owners[at] for at in left]
            return [replace(chunk.failing(lost), sends=chunk.sends.only(left), owners=owners)], 0

    def _addressed(self, part: Chunk) -> AddressedChunk:
        """The chunk with the place of each message. What cannot be reached at home has failed."""
        rows = part.rows
        passes_on = rows is not None and rows.stores and not self._routes.atomic
        stores = passes_on or self._options.store_and_forward is not None
        told: dict[int, Destination | Place] = {}
        if rows is not None:
            self._check_ends(rows.frame["Queue"].unique().to_pylist())
            for at, each in rows.owed.items():
                if (to := self._routes.acknowledged_at(each.queue, stores=stores)) is not None:
                    told[at] = to
        addressed = self._routes.addressed(part)
        here = [each for each in addressed if each.target == self._home]
        return self._refusing(
            AddressedChunk(**vars(part), addressed=addressed, told=told),
            [(each.positions, each.error) for each in here if each.error is not None],
        )

    def _check_ends(self, queues: Sequence[str]) -> None:
        """Refuse an error or audit queue that is one of these queues: its rows would be received for ever."""
        ends = (("errorQueue", self._options.error_queue), ("auditQueue", self._options.audit_queue))
        found = {name: self._routes.beside(queue) for name, queue in ends if queue}
        for queue in queues:
            received = self._routes.received(queue).table
            for name, end in found.items():
                if end is not None and end.table.address == received.address:
                    raise ConfigurationError(
                        f"The option {name} names {received.name}, in which the messages were "
                        "received, so they would go round for ever; name another queue."
                    )

    def _refusing(self, chunk: AddressedChunk, refused: Iterable[Why[int]]) -> AddressedChunk:
        """The chunk, of which these messages have failed.

        :raises SqlQueueError: there is no error queue, or they were for it.
        """
        own = self._options.error_queue
        for positions, error in refused:
            if own is None:
                raise error
            dropped = {}
            for at in positions:
                result = self._result(chunk, at)
                if result == ACKNOWLEDGED:
                    log.warning("not_acknowledged destination=%s: %s", chunk.address_of[at].known_as, error)
                    dropped[at] = False
                elif result or self._places.are_one(chunk.address_of[at].place, self._places.beside(own)):
                    raise error
            left = [at for at in positions if at not in dropped]
            chunk = replace(chunk, sent={**chunk.sent, **dropped}).refusing(left, Failure.of(error))
        return chunk

    def _result(self, chunk: AddressedChunk, message: int) -> str | None:
        """What a message is that was stored here for another database and tells of a row; None for any other.

        Only what goes to the error or the audit queue of the options is believed to be a row of it.
        """
        kind = None if chunk.rows is None else chunk.rows.result(chunk.owners[message])
        if kind in (None, ACKNOWLEDGED):
            return kind
        place = chunk.address_of[message].place
        ends = filter(None, (self._options.error_queue, self._options.audit_queue))
        return kind if any(self._places.are_one(place, self._places.beside(each)) for each in ends) else None

    # -- Where it goes ---------------------------------------------------------------------------------

    def _sent(self, chunk: AddressedChunk) -> Sent:
        if len(chunk.addressed) > _MOST_TABLES and len(chunk) > 1:
            first, second = chunk.halves()
            return self._sent(first) + self._sent(second)
        away = [each for each in chunk.addressed if each.target != self._home]
        if away:
            chunk = self._without_known(chunk)
            targets = dict.fromkeys(each.target for each in away)
            chunk = self._waiting_for(chunk, list(filter(self._routes.is_down, targets)))
            for target in targets:
                try:
                    chunk = self._sent_elsewhere(chunk, target)
                except DatabaseDown as error:
                    self._routes.note_down(target, error)
                    chunk = self._waiting_for(chunk, [target])
            left = [at for each in away for at in each.positions if chunk.goes(at)]
            assert not left, "what goes elsewhere is there, has failed or waits"
        return self._at_home(chunk)

    def _without_known(self, chunk: AddressedChunk) -> AddressedChunk:
        """The chunk, of which it is known which rows had their outcome at home: nothing of these goes out."""
        fails = chunk.rows is not None or self._options.error_queue is not None
        if not self._options.uses_outbox or not fails:
            return chunk
        work = OutcomesOnce(self._routes, chunk)

        def known() -> set[str]:
            connection = self._connected(self._home)
            outbox = work.outbox(connection)
            with connection.transaction():
                return work.had_outcomes(outbox)

        if not (found := self._retried(known)):
            return chunk
        gone = {row for row, origin in enumerate(work.origins) if origin in found}
        failed = {at: False for at, key in work.failures.items() if key in found}
        return replace(chunk, known=gone, sent={**chunk.sent, **failed})

    def _sent_elsewhere(self, chunk: AddressedChunk, target: Target) -> AddressedChunk:
        """Send what goes to another database, but for rows that have failed or wait."""
        while True:
            there = [each for each in chunk.addressed if each.target == target]
            addressed = [replace(each, positions=list(filter(chunk.goes, each.positions))) for each in there]
            work = SendsOnce(self._routes, chunk, target, addressed)
            if not work.positions:
                return chunk
            try:
                new = self._delivered(target, work).messages
            except RolledBack as error:
                chunk = self._refusing(chunk, error.refused)
            except _DOWN as error:
                if self._routes.down is None:
                    raise
                raise DatabaseDown(str(error)) from error
            else:
                sent = dict.fromkeys(work.positions, False) | dict.fromkeys(new, True)
                return replace(chunk, sent={**chunk.sent, **sent})

    def _at_home(self, chunk: AddressedChunk) -> Sent:
        """Write the outcomes, and what goes to home. What is refused fails, and the rest is tried again."""
        while True:
            try:
                chunk = self._with_originals(chunk)
            except TooLarge:
                first, second = chunk.halves()
                return self._at_home(first) + self._at_home(second)
            work = OutcomesOnce(self._routes, chunk)
            if work.has_nothing():
                return work.counted(work.decide(()))
            self._retried(work.find_tables)
            try:
                return work.counted(self._delivered(self._home, work))
            except RolledBack as error:
                chunk = self._refusing(chunk, error.refused)

    def _with_originals(self, chunk: AddressedChunk) -> AddressedChunk:
        """The chunk, whose failed rows are as they were received: a frame may have changed them.

        :raises TooLarge: they are more than memory should hold at once.
        """
        wanted = {*chunk.failed, *(chunk.owners[at] for at in chunk.refused)}
        if chunk.rows is None or not wanted:
            return chunk
        return replace(chunk, rows=self._reading(with_original_rows, chunk.rows, sorted(wanted)))

    def _given_up(self, rows: Received, wanted: Collection[int]) -> Collection[int]:
        """Which of these rows have waited for a database for as long as they may."""
        return self._reading(given_up, rows, sorted(wanted)) if wanted else ()

    def _reading(self, what: Callable[..., T], rows: Received, wanted: Sequence[int]) -> T:
        return self._retried(
            lambda: what(self._connected(self._home), self._places, rows, wanted),
            lambda error: not isinstance(error, LockTimeout),
        )

    # -- Databases that are down ----------------------------------------------------------------------------

    def _down(self, target: Target, *, given_up: bool) -> Failure:
        """What becomes of a row for a database that is down: it waits, or is given up after its time."""
        database = self._places.option_of(target)
        why = "until the message was given up" if given_up else "and the message had no table to wait in"
        failure = Failure.of(GaveUp(
            f"The database of the option {database} was down {why}, and the message may have arrived before; "
            "see that it can be reached, and put the message back."
        ))  # fmt: skip
        return failure if given_up else replace(failure, waits_for=database)

    def _waiting_for(self, chunk: AddressedChunk, targets: Sequence[Target]) -> AddressedChunk:
        """The chunk, of which the rows for these databases wait, or are given up after too long a wait."""
        if not targets:
            return chunk
        failures = dict[int, Failure]()
        its = [(each, at) for each in chunk.addressed if each.target in targets for at in each.positions]
        rows = chunk.rows
        assert rows is not None, "only received rows wait for a database"
        late = self._given_up(rows, {chunk.owners[at] for _, at in its if chunk.goes(at)})
        for each, at in its:
            row = chunk.owners[at]
            if not chunk.goes(at) or row in failures:
                continue
            # A message that poses as a result of another row waits for as long as one, and no longer.
            result = rows.result(row)
            if row in late and result == ACKNOWLEDGED:
                log.warning("not_acknowledged destination=%s: its database is down", each.known_as)
                chunk = replace(chunk, sent={**chunk.sent, at: False})
            else:  # a result of another row waits for ever
                failures[row] = self._down(each.target, given_up=row in late and not result)
        return replace(chunk, failed={**failures, **chunk.failed})

    # -- Connections -----------------------------------------------------------------------------------

    def _connected(self, target: Target) -> Connection:
        if self._routes.is_down(target):
            raise DatabaseDown("it was down when this task last tried it")
        if target not in self._connections:
            # Where rows wait, the driver has reached each database, or knows that it is down.
            again = self._routes.down is not None or target in self._destinations.databases()
            try:
                connection = connect(target, again=again)
            except ConnectionLost as error:
                if target == self._home or self._routes.down is None:
                    raise
                raise DatabaseDown(str(error)) from error
            try:
                connection.isolate(self._options.isolation_level)
            except BaseException:
                connection.close()
                raise
            self._connections[target] = connection
        return self._connections[target]

    def _delivered(self, target: Target, work: SendsOnce) -> Decision:
        """Attempt a delivery until it succeeds or another attempt is not worth it."""
        try:
            return self._retried(lambda: work.attempt(self._connected(target)), work.worth_it)
        except Duplicate as error:
            raise QueueError(
                f"{error} If the rows have Ids of their own, one of these is taken: leave the column Id "
                "out, and each row gets a new one; what makes a message go out once is its MessageId."
            ) from error

    def _retried(self, work: Callable[[], T], worth_it: Callable[[TryAgain], bool] = lambda _: True) -> T:
        """Do something, again where a database gives way; not where rows for it wait instead."""
        return self._retry.retried(
            work,
            lambda error: not isinstance(error, DatabaseDown) and worth_it(error),
            on_failure=self._gave_way,
        )

    def _gave_way(self, error: TryAgain) -> None:
        if isinstance(error, ConnectionLost):  # of any database: a look for tables may ask several
            while self._connections:
                self._connections.popitem()[1].close()
        elif isinstance(error, Duplicate):
            log.info("twin_won: %s", error)
