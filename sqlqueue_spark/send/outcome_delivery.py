"""How the outcomes of a chunk get into the database, so that each received message has one, the first that is committed.

All that an outcome sends, or its failed message, is written in one transaction with its keys: that of its origin, and, where the
message was handled, that of its id. All senders with the same kind of outbox add these keys in one order: sorted, or origins first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.messages.acknowledgement import acknowledgements, by_queue
from sqlqueue_spark.send.delivery import Looking, inserted
from sqlqueue_spark.send.destinations import Destination, Placed, Rows, place
from sqlqueue_spark.send.outbox_keys import PARKED, day_key
from sqlqueue_spark.send.outcomes import Decided, Keys, Outcomes
from sqlqueue_spark.send.routes import Routes
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import Inserter
from sqlqueue_spark.tables.outbox import OutboxTable


class RememberedOutcomes(Looking):
    """With an outbox, which knows the outcomes that were committed."""

    def __init__(self, routes: Routes, outcomes: Outcomes) -> None:
        self._routes = routes
        self._outcomes = outcomes

    def attempt(self, connection: Connection) -> Sent:
        self._seen = None
        outbox = self._routes.outbox(connection)
        keys = self._outcomes.keys(self._routes.own_address)
        with connection.transaction():
            sent = self._remembered(connection, outbox, keys)
            if sent.parked:  # last, because others wait for it until this transaction ends
                outbox.add_new([day_key(PARKED, datetime.now(UTC).date())])
        fail_points.step(fail_points.CHUNK_SENT)
        return sent

    def _insert(self, connection: Connection, decided: Decided) -> Sent:
        sent = inserted_outcomes(self._routes, connection, self._outcomes, decided)
        fail_points.step(fail_points.ROWS_INSERTED)
        return sent

    @abstractmethod
    def _remembered(self, connection: Connection, outbox: OutboxTable, keys: Keys) -> Sent:
        """Write messages and keys in the open transaction."""


class OptimisticOutcomes(RememberedOutcomes):
    """Inserts the keys last."""

    def _remembered(self, connection: Connection, outbox: OutboxTable, keys: Keys) -> Sent:
        known = self._seen = outbox.seen([*keys.origins, *keys.ids])
        fail_points.step(fail_points.IDS_CHECKED)
        decided = self._outcomes.decide(keys, known)
        sent = self._insert(connection, decided)
        outbox.add([*decided.origins, *decided.ids])
        fail_points.step(fail_points.IDS_INSERTED)
        return sent


class PessimisticOutcomes(RememberedOutcomes):
    """Inserts the keys first, so that a twin waits."""

    def _remembered(self, connection: Connection, outbox: OutboxTable, keys: Keys) -> Sent:
        known = set(keys.origins) - outbox.add_new(keys.origins)
        known |= outbox.seen(keys.ids)
        decided = self._outcomes.decide(keys, known)
        # Those that are late were handled as other rows since the look.
        late = set(decided.ids) - outbox.add_new(decided.ids)
        self._seen = known | late
        fail_points.step(fail_points.IDS_INSERTED)
        return self._insert(connection, decided.without(late, keys))


def inserted_outcomes(routes: Routes, connection: Connection, outcomes: Outcomes, decided: Decided) -> Sent:
    """Insert what these received messages send, and what else becomes of them."""
    sent = Sent()
    if (positions := outcomes.sent_by(decided.accepted)) and outcomes.sends is not None:
        sent = inserted(routes, connection, outcomes.sends, placed(routes, outcomes, positions))
    rows, beside = rows_beside(routes, outcomes, decided)
    for to, its in rows:
        Inserter(connection, to.table, to.columns).insert(its)
    return sent + beside


def placed(routes: Routes, outcomes: Outcomes, positions: Sequence[int]) -> list[Placed]:
    """The messages at these positions by destination, in the order in which all senders insert."""
    wanted = None if outcomes.sends is not None and len(positions) == len(outcomes.sends) else set(positions)
    found = place(
        (
            (address, its if wanted is None else [at for at in its if at in wanted])
            for address, its in outcomes.destinations()
        ),
        routes.find,
    )
    return sorted(found, key=lambda each: each.destination.table.address)


def rows_beside(routes: Routes, outcomes: Outcomes, decided: Decided) -> tuple[list[Rows], Sent]:
    """What outcomes write beside the messages that they send: failed messages, retries, parked ones, acknowledgements, audits.

    In the order of their tables; and what became of the received messages.
    """
    now = datetime.now(UTC)
    in_error = outcomes.in_error(decided.accepted)
    retried = outcomes.retried(decided.accepted)
    parked = outcomes.parked(decided.accepted)
    own = routes.options.error_queue or ""
    rows = [
        (routes.find(address or own), outcomes.error_rows(positions))
        for address, positions in in_error.items()
    ]
    for waiting, made in ((retried, outcomes.retry_rows), (parked, outcomes.parked_rows)):
        rows += [(routes.waiting_for(queue), made(its, now)) for queue, its in waiting.items()]
    acknowledged = _acknowledged(routes, outcomes, decided)
    rows += [
        (to, acknowledgements([outcomes.owed[at].id for at in positions], now))
        for to, positions in acknowledged
    ]
    told = {at for _, positions in acknowledged for at in positions}
    audited = _audited(routes, outcomes, decided, now, told)
    failed, again, later = (sum(map(len, each.values())) for each in (in_error, retried, parked))
    sent = Sent(
        failed=failed,
        retried=again,
        parked=later,
        handled=len(decided.accepted) - failed - again - later,
        repeated=len(outcomes) - len(decided.accepted),
        acknowledged=len(told),
        audited=sum(copies.num_rows for _, copies in audited),
    )
    return sorted([*rows, *audited], key=lambda each: each[0].table.address), sent


def _acknowledged(
    routes: Routes, outcomes: Outcomes, decided: Decided
) -> list[tuple[Destination, list[int]]]:
    """The messages of which ServiceControl is told that they were handled, by the queue that it reads."""
    handled = [at for at in decided.accepted if at not in outcomes.failed] if outcomes.owed else []
    asked = by_queue(outcomes.owed, sorted([*handled, *decided.handled_before]))
    found = ((routes.acknowledged_at(queue), positions) for queue, positions in asked.items())
    return [(to, positions) for to, positions in found if to is not None]


def _audited(
    routes: Routes, outcomes: Outcomes, decided: Decided, now: datetime, told: set[int]
) -> list[Rows]:
    """The copies of the messages that were processed."""
    if routes.options.audit_queue is None:
        return []
    processed = [at for at in decided.accepted if at not in outcomes.failed]
    if not processed:
        return []
    endpoints = [routes.destinations.written(outcomes.queue(at))[1] for at in processed]
    copies = outcomes.audit_rows(processed, endpoints, now, told)
    return [(routes.find(routes.options.audit_queue), copies)]
