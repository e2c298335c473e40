"""What becomes of rows beside their messages: failed messages, retries, rows that wait, results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import acknowledgements
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import (
    STORED,
    STORED_FOR,
    changed_headers,
)
from sqlqueue_spark.messages.outgoing import lasting, replaced
from sqlqueue_spark.send.compose.column_values import gathered
from sqlqueue_spark.send.compose.outcomes import ACKNOWLEDGED, AUDITED, FAILED
from sqlqueue_spark.send.deliver.chunk import Chunk, Decision
from sqlqueue_spark.send.deliver.destinations import Rows, nothing_passes_on
from sqlqueue_spark.send.deliver.routes import Routes


class Results:
    """The rows that a decision writes at home beside its messages.

    :param origin_of: gives the key of the origin of a row.
    """

    def __init__(self, routes: Routes, chunk: Chunk, origin_of: Callable[[int], str]) -> None:
        self._routes = routes
        self._places = routes.places
        self._chunk = chunk
        self._origin_of = origin_of

    def rows(self, decision: Decision) -> list[Rows]:
        """All but the acknowledgements, in the order of their tables."""
        now = datetime.now(UTC)
        made = [
            *self._failed(decision),
            *self._failed_copies(decision),
            *self._later(decision, now),
            *self._audited(decision, now),
        ]
        return sorted(made, key=lambda each: each[0].table.address)

    def _failed(self, decision: Decision) -> Iterator[Rows]:
        """The rows that go to an error queue."""
        chunk = self._chunk
        failures = {at: chunk.failed[at] for at in self._failing(decision) if chunk.failed[at].is_final}
        queues = gathered(failures, lambda at: failures[at].error_queue or self._error_queue)
        for queue, its in queues.items():
            if chunk.rows is None:
                rows = self._message_errors(its, failures)
            else:
                rows = chunk.rows.error_rows([(at, failures[at]) for at in its], self._places)
            yield from self._beside(queue, rows, its, [FAILED] * len(its))

    def _failing(self, decision: Decision) -> list[int]:
        failed = self._chunk.failed
        return [at for at in decision.rows if at in failed] if failed else []

    def _failed_copies(self, decision: Decision) -> Iterator[Rows]:
        """The copies of events that go to the error queue: a copy of a row that is passed on as that row."""
        chunk, copies = self._chunk, decision.copies
        if not copies:
            return
        owners = [chunk.owners[at] for at in copies]
        if chunk.rows is None or chunk.handled:
            rows = self._message_errors(copies, chunk.refused)
        else:
            refused = [(chunk.owners[at], chunk.refused[at]) for at in copies]
            to = [self._written(at)[0] for at in copies]
            rows = chunk.rows.error_rows(refused, self._places, to)
        told_apart = [f"{FAILED} for {chunk.address_of[at].known_as}" for at in copies]
        yield from self._beside(self._error_queue, rows, owners, told_apart)

    def _written(self, message: int) -> tuple[str, str]:
        """The full address of a message's destination, and its endpoint."""
        assert self._chunk.sends is not None
        return self._places.written(self._chunk.sends.addresses[message].as_py(), received=False)

    @property
    def _error_queue(self) -> str:
        return self._places.home.error_queue or ""

    def _message_errors(self, positions: Sequence[int], failures: Mapping[int, Failure]) -> pa.RecordBatch:
        """Messages of the chunk as rows of an error queue, for the addresses that they could not reach."""
        sends = self._chunk.sends
        assert sends is not None
        rows = sends.rows(positions)
        headers = []
        for at, text in zip(positions, rows["headers"].to_pylist(), strict=True):
            queue, endpoint = self._written(at)
            headers.append(
                failed_headers(text, failures[at], queue=queue, endpoint=endpoint, row_id=sends.ids[at])
            )
        return lasting(headers, rows["body"])

    def _later(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        """The rows that are tried again later, or wait for a database."""
        failed = self._chunk.failed
        left = [at for at in self._failing(decision) if not failed[at].is_final]
        if self._chunk.rows is None or not left:
            return
        rows = replace(self._chunk.rows, failed=failed)
        for queue, its in gathered(left, rows.queue).items():
            to = self._routes.destinations.waiting(self._places.received(queue), self._routes.connected)
            yield to, rows.later_rows(its, self._places, now)

    def acknowledged(self, decision: Decision) -> Iterator[Rows]:
        """What tells ServiceControl that messages succeeded that it had put back."""
        rows, now = self._chunk.rows, datetime.now(UTC)
        if rows is None:
            return
        for queue, its in gathered(decision.acknowledged, lambda at: rows.owed[at].queue).items():
            made = acknowledgements([rows.owed[at].id for at in its], now)
            yield from self._beside(queue, made, its, [ACKNOWLEDGED] * len(its))

    def _audited(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        """The copies of the messages that were processed."""
        rows, queue = self._chunk.rows, self._places.home.audit_queue
        processed = [at for at in decision.rows if at not in self._chunk.failed]
        if queue is None or rows is None or not processed or not self._chunk.handled:
            return
        made = rows.audit_rows(processed, self._places, now, set(decision.acknowledged))
        yield from self._beside(queue, made, processed, [AUDITED] * len(processed))

    def _beside(
        self, queue: str, rows: pa.RecordBatch, owners: Sequence[int], what: Sequence[str]
    ) -> Iterator[Rows]:
        """Rows for a queue that belongs to home. Where it lies elsewhere, they are stored at home first.

        :param owners: the received row of each, and ``what`` it is: by both it is known there.
        """
        to_queue = self._routes.destinations.beside(queue, self._routes.connected)
        if to_queue is not None:
            yield to_queue, rows
            return
        received = self._chunk.rows
        store = self._places.home.store_and_forward
        if store is None and (received is None or not received.as_received):
            raise nothing_passes_on(queue)
        full = self._places.full_address(queue, self._places.beside(queue))
        texts = rows["headers"].to_pylist()
        for number, at in enumerate(owners):
            origin = self._origin_of(at) if received is None else received.origin(at).key
            added = {STORED_FOR: full, STORED: f"{origin}/{what[number]}"}
            texts[number] = changed_headers(texts[number], set(added), added)
        rows = replaced(rows, headers=pa.array(texts, pa.string()))

        def stored_in(number: int) -> str:
            return store or received.queue(owners[number])  # type: ignore[union-attr] # it was looked at

        for to, numbers in gathered(range(len(owners)), stored_in).items():
            part = rows.take(pa.array(numbers, pa.int32()))
            yield self._routes.destinations.received(to, self._routes.connected), part
