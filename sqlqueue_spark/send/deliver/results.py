"""What becomes of rows beside their messages: failed messages, retries, rows that wait, results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.acknowledgement import acknowledgements
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import (
    STORED,
    STORED_FOR,
    changed_headers,
)
from sqlqueue_spark.messages.outgoing import lasting, replaced
from sqlqueue_spark.send.compose.outcomes import ACKNOWLEDGED, AUDITED, FAILED
from sqlqueue_spark.send.deliver.chunk import Chunk, Decision
from sqlqueue_spark.send.deliver.destinations import Rows
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
        by_queue: dict[str, list[int]] = {}
        for at in decision.rows if chunk.failed else ():
            if at in chunk.failed and chunk.failed[at].is_final:
                by_queue.setdefault(chunk.failed[at].error_queue or self._error_queue, []).append(at)
        for queue, its in by_queue.items():
            if chunk.rows is None:
                rows = self._message_errors(its, chunk.failed)
            else:
                rows = chunk.rows.error_rows([(at, chunk.failed[at]) for at in its], self._places)
            yield from self._beside(queue, rows, its, [FAILED] * len(its))

    def _failed_copies(self, decision: Decision) -> Iterator[Rows]:
        """The copies of events that go to the error queue: a copy of a row that is passed on as that row."""
        chunk = self._chunk
        if not decision.copies:
            return
        if chunk.rows is None or chunk.handled:
            owners = [chunk.owners[at] for at in decision.copies]
            errors = self._message_errors(decision.copies, chunk.refused)
            yield from self._beside(self._error_queue, errors, owners, self._told_apart(decision.copies))
            return
        assert chunk.sends is not None
        refused = [(chunk.owners[at], chunk.refused[at]) for at in decision.copies]
        rows = chunk.rows.error_rows(refused, self._places, [self._full(at) for at in decision.copies])
        yield from self._beside(
            self._error_queue, rows, [at for at, _ in refused], self._told_apart(decision.copies)
        )

    def _told_apart(self, copies: Sequence[int]) -> list[str]:
        return [f"{FAILED} for {self._chunk.address_of[at].known_as}" for at in copies]

    def _full(self, message: int) -> str:
        """The full address of a message's destination."""
        assert self._chunk.sends is not None
        return self._places.written(self._chunk.sends.addresses[message].as_py(), received=False)[0]

    @property
    def _error_queue(self) -> str:
        return self._places.home.error_queue or ""

    def _message_errors(self, positions: Sequence[int], failures: Mapping[int, Failure]) -> pa.RecordBatch:
        """Messages of the chunk as rows of an error queue, for the addresses that they could not reach."""
        sends = self._chunk.sends
        assert sends is not None
        rows = sends.rows(sorted(positions))
        headers = []
        for at, text in zip(sorted(positions), rows["headers"].to_pylist(), strict=True):
            queue, endpoint = self._places.written(sends.addresses[at].as_py(), received=False)
            headers.append(
                failed_headers(text, failures[at], queue=queue, endpoint=endpoint, row_id=sends.ids[at])
            )
        return lasting(headers, rows["body"])

    def _later(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        """The rows that are tried again later, or wait for a database."""
        chunk = self._chunk
        if chunk.rows is None or not chunk.failed:
            return
        rows = replace(chunk.rows, failed=chunk.failed)
        by_queue: dict[str, list[int]] = {}
        for at in decision.rows:
            if at in chunk.failed and not chunk.failed[at].is_final:
                by_queue.setdefault(rows.queue(at), []).append(at)
        for queue, its in by_queue.items():
            to = self._routes.destinations.waiting(self._places.received(queue), self._routes.connected)
            yield to, rows.later_rows(its, self._places, now)

    def acknowledged(self, decision: Decision) -> list[Rows]:
        """What tells ServiceControl that messages succeeded that it had put back."""
        return list(self._acknowledgements(decision, datetime.now(UTC)))

    def _acknowledgements(self, decision: Decision, now: datetime) -> Iterator[Rows]:
        rows = self._chunk.rows
        by_queue: dict[str, list[int]] = {}
        for at in decision.acknowledged:
            assert rows is not None
            by_queue.setdefault(rows.owed[at].queue, []).append(at)
        for queue, its in by_queue.items():
            made = acknowledgements([rows.owed[at].id for at in its], now)  # type: ignore[union-attr]
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
        place = self._places.beside(queue)
        if place.target == self._places.at_home:
            yield self._routes.destinations.beside(queue, self._routes.connected), rows
            return
        received = self._chunk.rows
        store = self._places.home.store_and_forward
        if store is None and (received is None or not received.as_received):
            raise ConfigurationError(
                f"The queue {queue!r} lies in another database, and nothing passes on what is written for "
                "it; name a queue of this database as storeAndForward, from which a store-and-forward job "
                "sends it on."
            )
        full = self._places.full_address(queue, place)
        stored: dict[str, list[tuple[int, str]]] = {}
        for number, (at, text) in enumerate(zip(owners, rows["headers"].to_pylist(), strict=True)):
            origin = self._origin_of(at) if received is None else received.origin(at).key
            added = {STORED_FOR: full, STORED: f"{origin}/{what[number]}"}
            to = store or received.queue(at)  # type: ignore[union-attr] # it was looked at
            stored.setdefault(to, []).append((number, changed_headers(text, set(added), added)))
        for to, its in stored.items():
            numbers, texts = zip(*its, strict=True)
            part = replaced(rows.take(pa.array(numbers, pa.int32())), headers=pa.array(texts, pa.string()))
            yield self._routes.destinations.received(to, self._routes.connected), part
