"""Sends chunks of messages and of outcomes: to each other database first, then home, a transaction each.

What a received row sends within home, and what else becomes of it, is one transaction there. A row that is
passed on to another database is asked for at home before, goes out in a transaction there, and home only
learns of it where it fails, waits, or owes an acknowledgement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Self, TypeVar

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import (
    ConfigurationError,
    ConnectionLost,
    DatabaseTakesNothing,
    Duplicate,
    GaveUp,
    LockTimeout,
    QueueError,
    RowsHeld,
    SqlQueueError,
    TryAgain,
)
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.outcomes import ACKNOWLEDGED, Outcomes
from sqlqueue_spark.send.compose.places import Place, Places
from sqlqueue_spark.send.deliver.at_home import AtHome
from sqlqueue_spark.send.deliver.chunk import Chunk, Decision
from sqlqueue_spark.send.deliver.copies import with_copies
from sqlqueue_spark.send.deliver.delivery import Delivery
from sqlqueue_spark.send.deliver.destinations import Destination, Destinations
from sqlqueue_spark.send.deliver.outbox_lookups import earlier_known
from sqlqueue_spark.send.deliver.received_again import received_again
from sqlqueue_spark.send.deliver.routes import Addressed, DatabaseDown, Routes, Waiting
from sqlqueue_spark.send.deliver.sends import stores_at_home
from sqlqueue_spark.send.deliver.work import RolledBack, Work
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.outbox import OutboxTable

log = logger(__name__)

T = TypeVar("T")


#: Errors of another database that takes nothing, after all retries. A QueueError there is the outbox's: the
#: driver has seen it at the start, and what a destination refuses is told from it.
_DOWN = (ConnectionLost, DatabaseTakesNothing, LockTimeout, RowsHeld, QueueError)


class Sender:
    """Sends messages over connections of its own, one for each database.

    :param waiting: the databases that are down, where rows for them may wait; None where the batch waits
        instead.
    :param first_try: whether this batch is surely tried for the first time, so that home need not be asked
        for what stays there, nor for plain messages. A received row for another database is always asked
        for: it may have failed before, and have come back with a server that forgot its deletion.
    """

    def __init__(
        self,
        options: SinkOptions,
        destinations: Destinations,
        waiting: Waiting | None = None,
        *,
        first_try: bool = False,
    ) -> None:
        self._options = options
        self._destinations = destinations
        self._places = destinations.places
        self._home = destinations.places.at_home
        self._connections: dict[Target, Connection] = {}
        self._waiting = waiting
        self._first_try = first_try
        self._routes = Routes(destinations, self._connected, options.transaction_mode == ATOMIC, waiting)
        self._retry = Retry(f"sending by {options.sender or 'a sink'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def send(self, chunks: Iterable[Composed | Outcomes]) -> Sent:
        """Send messages, or outcomes, in their order.

        :raises QueueError: a destination or the outbox table is missing, or a destination already has a row
            with the Id that a row of the frame brings along.
        :raises TryAgain: the database gave way too often. The outbox knows what was sent, so it is safe to
            send all again.
        """
        done = Sent()
        for chunk in chunks:
            parts, unsubscribed = self._copied(chunk)
            done += unsubscribed
            for part in parts:
                done += self._sent(self._retried(self._home, partial(self._addressed, part)))
        return done

    def _copied(self, chunk: Composed | Outcomes) -> tuple[Sequence[Composed | Outcomes], Sent]:
        """The chunk with copies in the place of its events. Events of unknown subscribers fail, or wait."""
        places = self._places_of(chunk)
        target = Target.of(places.away)
        try:
            has_events = (
                isinstance(chunk, Outcomes) and chunk.sends is not None and chunk.sends.events is not None
            )
            if has_events and self._is_down(target):
                raise DatabaseDown("it was down when this task last tried it")
            return self._retried(
                target,
                lambda: with_copies(
                    chunk, partial(self._routes.subscribers, places=places), target.dialect.written
                ),
            )
        except (QueueError, DatabaseDown) as error:
            if isinstance(chunk, Composed) or chunk.handled or self._options.error_queue is None:
                raise
            if isinstance(error, DatabaseDown) and self._waiting is not None:
                self._waiting.note(target, self._places, error)
            events = chunk.sends.events.positions() if chunk.sends and chunk.sends.events else ()
            now = datetime.now(UTC)
            lost = {
                row: self._down(chunk, row, target, now)
                if isinstance(error, DatabaseDown)
                else Failure.of(error)
                for row in sorted({chunk.owners[at] for at in events})
            }
            left = [at for at in range(len(chunk)) if at not in lost]
            gone = chunk.only(list(lost)).failing(dict(enumerate(lost.values()))).silent()
            return [gone, *([chunk.only(left)] if left else [])], Sent()

    def _places_of(self, chunk: Composed | Outcomes) -> Places:
        return chunk.places if isinstance(chunk, Outcomes) else self._places

    def _addressed(self, part: Composed | Outcomes) -> Chunk:
        """The chunk with the place of each message. What cannot be reached at home has failed."""
        rows = part if isinstance(part, Outcomes) else None
        sends = rows.sends if rows is not None else part
        assert not isinstance(sends, Outcomes)
        if self._options.error_queue is not None:
            self._error_queue()
        if rows is not None:
            self._check_ends(rows)
        places = self._places_of(part)
        addressed = (
            [] if sends is None else self._routes.addressed(sends, places, partial(self._stores, rows))
        )
        failed = dict(rows.failed if rows is not None else part.failed)
        chunk = Chunk(rows=rows, sends=sends, addressed=addressed, failed=failed)
        if rows is not None and rows.owed:
            stores = rows.as_received or self._options.store_and_forward is not None
            told = {
                at: self._routes.acknowledged_at(owed.queue, stores=stores) for at, owed in rows.owed.items()
            }
            chunk = replace(chunk, told={at: to for at, to in told.items() if to is not None})
        if sends is not None and sends.delayed:
            chunk = replace(chunk, addressed=[self._with_table_for_later(each) for each in addressed])
        for each in chunk.addressed:
            if each.error is not None and (each.place is None or each.place.target == self._home):
                chunk = self._refusing(chunk, each.positions, each.error)
        return chunk

    def _with_table_for_later(self, each: Addressed) -> Addressed:
        """The messages whose table of delayed messages is found, if their database answers."""
        try:
            if each.to is not None:
                self._routes.later(each.to)
        except DatabaseDown as error:
            assert self._waiting is not None
            self._waiting.note(each.to.target, self._places, error)  # type: ignore[union-attr]
            return replace(each, to=None)
        return each

    def _error_queue(self) -> Destination | None:
        """The error queue, if it lies at home.

        :raises QueueError: there is no such table.
        """
        queue = self._options.error_queue
        if queue is None or self._places.beside(queue).target != self._home:
            return None
        return self._destinations.beside(queue, self._connected)

    def _check_ends(self, rows: Outcomes) -> None:
        """Refuse an error or audit queue that is the queue itself: its rows would be received for ever."""
        for queue in rows.queues.unique().to_pylist():
            received = self._destinations.received(queue, self._connected)
            for name, address in (
                ("errorQueue", self._options.error_queue),
                ("auditQueue", self._options.audit_queue),
            ):
                place = None if address is None else self._places.beside(address)
                if place is None or place.target != self._home:
                    continue
                if (
                    self._destinations.at(place, address or "", self._connected).table.address
                    == received.table.address
                ):
                    raise ConfigurationError(
                        f"The option {name} names {received.table.name}, in which the messages were "
                        "received, so they would go round for ever; name another queue."
                    )

    def _stores(
        self, rows: Outcomes | None, place: Place, positions: Sequence[int]
    ) -> Iterator[tuple[str, Sequence[int]]]:
        """The queues in which messages to a place are stored for another database, if they are."""
        if place.target == self._home:
            return
        if rows is not None and rows.handled:
            owners = rows.owners
            for queue, its in stores_at_home(self._places, rows, sorted({owners[at] for at in positions})):
                senders = set(its)
                yield queue, [at for at in positions if owners[at] in senders]
        elif self._places.is_stored(place) and not (rows is not None and rows.on_their_way):
            yield self._places.home.store_and_forward or "", positions

    def _refusing(self, chunk: Chunk, positions: Sequence[int], error: SqlQueueError | None) -> Chunk:
        """The chunk, of which these messages have failed.

        :raises SqlQueueError: there is no error queue, or they were for it.
        """
        assert error is not None
        own = self._options.error_queue
        if own is None:
            raise error
        dropped: dict[int, bool] = {}
        for at in positions:
            result = self._result(chunk, at)
            if result == ACKNOWLEDGED:
                log.warning("not_acknowledged destination=%s: %s", chunk.address_of[at].known_as, error)
                dropped[at] = False
            elif result or self._places.are_one(chunk.address_of[at].place, self._places.beside(own)):
                raise error
        if dropped:
            chunk = replace(chunk, sent={**chunk.sent, **dropped})
            positions = [at for at in positions if at not in dropped]
        return chunk.refusing(positions, Failure.of(error))

    def _result(self, chunk: Chunk, message: int) -> str | None:
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

    def _sent(self, chunk: Chunk) -> Sent:
        away = [
            each for each in chunk.addressed if each.place is not None and each.place.target != self._home
        ]
        delayed = Sent()
        if away:
            chunk = self._without_known(chunk)
            targets = dict.fromkeys(each.place.target for each in away if each.place is not None)
            chunk = self._waiting_for(chunk, [each for each in targets if self._is_down(each)])
            for target in targets:
                try:
                    chunk, more = self._sent_elsewhere(chunk, target)
                    delayed += more
                except DatabaseDown as error:
                    assert self._waiting is not None
                    self._waiting.note(target, self._places, error)
                    chunk = self._waiting_for(chunk, [target])
            left = [at for each in away for at in each.positions if chunk.goes(at)]
            assert not left, "what goes elsewhere is there, has failed or waits"
        return delayed + self._at_home(chunk)

    def _without_known(self, chunk: Chunk) -> Chunk:
        """The chunk, of which it is known which rows had their outcome at home: nothing of these goes out."""
        fails = chunk.rows is not None or self._options.error_queue is not None
        if not self._options.uses_outbox or not fails or (self._first_try and chunk.rows is None):
            return chunk
        work = AtHome(self._routes, chunk, asks=True)

        def known() -> set[str]:
            connection = self._connected(self._home)
            outbox = OutboxTable(connection, self._options.sender or "", self._options.default_schema)
            earlier = earlier_known(self._routes, work, connection, outbox)
            with connection.transaction():
                return outbox.seen([*work.origins, *work.failed_copies.values()]) | earlier()

        found = self._retried(self._home, known)
        if not found:
            return chunk
        gone = {row for row, origin in enumerate(work.origins) if origin in found}
        failed = {at: False for at, key in work.failed_copies.items() if key in found}
        return replace(chunk, known=gone, sent={**chunk.sent, **failed})

    def _sent_elsewhere(self, chunk: Chunk, target: Target) -> tuple[Chunk, Sent]:
        """Send what goes to another database, but for rows that have failed or wait."""
        while True:
            addressed = [
                each.only(chunk.goes)
                for each in chunk.addressed
                if each.place is not None and each.place.target == target
            ]
            work = Work(self._routes, chunk, addressed)
            if not work.keys:
                return chunk, Sent()
            try:
                decision, sent = self._delivered(target, work)
            except RolledBack as error:
                for its, why in error.refused:
                    chunk = self._refusing(chunk, its, why)
            except _DOWN as error:
                if self._waiting is None:
                    raise
                raise DatabaseDown(str(error)) from error
            else:
                there = dict.fromkeys(work.keys, False) | dict.fromkeys(decision.messages, True)
                return replace(chunk, sent={**chunk.sent, **there}), sent

    def _at_home(self, chunk: Chunk) -> Sent:
        """Write the outcomes, and what goes to home. What is refused fails, and the rest is tried again."""
        while True:
            work = AtHome(self._routes, self._original(chunk), asks=not self._first_try)
            if work.has_nothing():
                return work.counted(work.decide(()))
            self._retried(self._home, work.find_tables)
            try:
                return self._delivered(self._home, work)[1]
            except RolledBack as error:
                for its, why in error.refused:
                    chunk = self._refusing(chunk, its, why)

    def _original(self, chunk: Chunk) -> Chunk:
        """The chunk with its failed and waiting rows as they were received: a frame may have changed them."""
        rows = chunk.rows
        if rows is None or rows.as_received:
            return chunk
        wanted = sorted({*chunk.failed, *(chunk.owners[at] for at in chunk.refused)})
        if not wanted:
            return chunk
        connection = self._connected(self._home)
        return replace(chunk, rows=received_again(connection, self._places, rows, wanted))

    # -- Databases that are down ----------------------------------------------------------------------------

    def _is_down(self, target: Target) -> bool:
        return self._waiting is not None and target in self._waiting.down

    def _down(self, rows: Outcomes, row: int, target: Target, now: datetime) -> Failure:
        """What becomes of a row for a database that is down: it waits, or is given up after its time."""
        database = self._places.option_of(target)
        if not rows.given_up(row, now):
            return Failure(
                exception_type="DatabaseDown", waits_for=database, give_up_after=self._options.give_up_after
            )
        return Failure.of(GaveUp(
            f"The database of the option {database} was down until the message was given up, and the message "
            "may have arrived before; see that it can be reached, and put the message back."
        ))  # fmt: skip

    def _waiting_for(self, chunk: Chunk, targets: Sequence[Target]) -> Chunk:
        """The chunk, of which the rows for these databases wait, or are given up after too long a wait."""
        rows = chunk.rows
        if not targets:
            return chunk
        if rows is None:
            raise DatabaseDown(
                "A message that was not received has nowhere to wait for its database, so its batch does."
            )
        now = datetime.now(UTC)
        failures: dict[int, Failure] = {}
        for each in chunk.addressed:
            if each.place is None or each.place.target not in targets:
                continue
            for at in each.positions:
                row = chunk.owners[at]
                if not chunk.goes(at) or row in failures:
                    continue
                result = self._result(chunk, at)
                failure = self._down(rows, row, each.place.target, now)
                if failure.is_final and result == ACKNOWLEDGED:
                    log.warning("not_acknowledged destination=%s: its database is down", each.known_as)
                    chunk = replace(chunk, sent={**chunk.sent, at: False})
                    continue
                if failure.is_final and result:  # a result of another row waits for ever
                    failure = replace(
                        failure,
                        waits_for=self._places.option_of(each.place.target),
                        give_up_after=self._options.give_up_after,
                    )
                failures[row] = failure
        return chunk.failing(failures)

    # -- Connections -----------------------------------------------------------------------------------

    def _connected(self, target: Target) -> Connection:
        if target not in self._connections:
            again = target in self._destinations.databases()
            try:
                connection = connect(target, again=again)
            except ConnectionLost as error:
                if target == self._home or self._waiting is None:
                    raise
                raise DatabaseDown(str(error)) from error
            level = re.sub(r"\B(?=[A-Z])", "_", self._options.isolation_level).lower()
            try:
                with connection.transaction():
                    connection.execute(connection.dialect.statement(f"isolation_{level}"))
            except BaseException:
                connection.close()
                raise
            self._connections[target] = connection
        return self._connections[target]

    def _delivered(self, target: Target, work: Work) -> tuple[Decision, Sent]:
        """Attempt a delivery until it succeeds or another attempt is not worth it."""
        may_fail = self._options.error_queue is not None
        delivery = Delivery(self._routes, self._places.at(target), work, self._error_queue(), may_fail)
        try:
            return self._retried(target, lambda: delivery.attempt(self._connected(target)), delivery.worth_it)
        except Duplicate as error:
            raise QueueError(
                f"{error} If the rows have Ids of their own, one of these is taken: leave the column Id "
                "out, and each row gets a new one; what makes a message go out once is its MessageId."
            ) from error

    def _retried(
        self, target: Target, work: Callable[[], T], worth_it: Callable[[TryAgain], bool] = lambda _: True
    ) -> T:
        """Do something in a database, again where it gives way; not where rows for it wait instead."""
        return self._retry.retried(
            work,
            lambda error: not isinstance(error, DatabaseDown) and worth_it(error),
            on_failure=partial(self._gave_way, target),
        )

    def _gave_way(self, target: Target, error: TryAgain) -> None:
        if isinstance(error, ConnectionLost):
            lost = self._connections.pop(target, None)
            if lost is not None:
                lost.close()
        elif isinstance(error, Duplicate):
            log.info("twin_won: %s", error)
