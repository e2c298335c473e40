"""What outcomes write beside the messages that they send: failed messages, retries, acknowledgements and audits."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import acknowledgements, by_queue
from sqlqueue_spark.send.destinations import Destination
from sqlqueue_spark.send.outcomes import Decided, Outcomes
from sqlqueue_spark.send.routes import Routes
from sqlqueue_spark.send.sent import Sent

#: A table with the rows (:data:`OUTGOING`) that go there.
Rows = tuple[Destination, pa.RecordBatch]


def rows_beside(routes: Routes, outcomes: Outcomes, decided: Decided) -> tuple[list[Rows], Sent]:
    """These rows of a chunk, in the order of their tables, and what became of the received messages."""
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
