"""What becomes of rows beside their messages: failed ones, retries, rows that wait, audit copies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import acknowledgements
from sqlqueue_spark.messages.audit import audit_headers
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.header_json import changed_headers, parse_headers
from sqlqueue_spark.messages.message import STORED, STORED_EVENT, STORED_FOR
from sqlqueue_spark.messages.outgoing import lasting, new_row_ids, replaced, uuid_text
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.messages.waiting_headers import retry_headers, waiting_headers
from sqlqueue_spark.send.compose.column_values import gathered, moment
from sqlqueue_spark.send.compose.received import ACKNOWLEDGED, AUDITED, FAILED, TIMES, Received
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.destination_tables import Rows, nothing_passes_on
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.tables import database_facts


class ErrorAndAuditRows:
    """The rows that a decision writes at home beside its messages.

    :param origin_of: gives the key of the origin of a row.
    """

    def __init__(self, routes: Routes, chunk: AddressedChunk, origin_of: Callable[[int], str]) -> None:
        self._routes = routes
        self._places = routes.places
        self._chunk = chunk
        self._origin_of = origin_of
        self._now = datetime.now(UTC)

    def rows(self, decision: Decision) -> list[Rows]:
        """All but the acknowledgements, in the order of their tables."""
        makers = (self._failed, self._failed_copies, self._later, self._audited)
        made = [each for maker in makers for each in maker(decision)]
        return sorted(made, key=lambda each: each[0].table.address)

    def _failing(self, decision: Decision, *, final: bool) -> dict[int, Failure]:
        failed = self._chunk.failed
        its = filter(failed.__contains__, decision.rows if failed else ())
        return {at: failed[at] for at in its if failed[at].is_final is final}

    def _failed(self, decision: Decision) -> Iterator[Rows]:
        """The rows that go to an error queue."""
        failures = self._failing(decision, final=True)
        queues = gathered(failures, lambda at: failures[at].error_queue or self._error_queue)
        for queue, its in queues.items():
            if self._chunk.rows is None:
                rows = self._message_errors(its, failures)
            else:
                rows = self._row_errors(self._chunk.rows, [(at, failures[at]) for at in its])
            yield from self._beside(queue, rows, its, [FAILED] * len(its))

    def _failed_copies(self, decision: Decision) -> Iterator[Rows]:
        """The copies of events that go to the error queue: a copy of a row that is passed on as that row."""
        chunk, copies = self._chunk, decision.copies
        if not copies:
            return
        owners = [chunk.owners[at] for at in copies]
        if chunk.rows is None or chunk.handled:
            rows = self._message_errors(copies, chunk.refused)
        else:
            failures = [(owner, chunk.refused[at]) for owner, at in zip(owners, copies, strict=True)]
            rows = self._row_errors(chunk.rows, failures, [self._written(at)[0] for at in copies])
        told_apart = [f"{FAILED} for {chunk.address_of[at].known_as}" for at in copies]
        yield from self._beside(self._error_queue, rows, owners, told_apart)

    def _written(self, message: int, beside: str | None = None) -> tuple[str, str]:
        """The full address of a message's destination, and its endpoint."""
        address = self._chunk.sends.addresses[message].as_py()
        return self._places.written(address, received=False, beside=beside)

    @property
    def _error_queue(self) -> str:
        return self._places.home.error_queue or ""

    def _message_errors(self, positions: Sequence[int], failures: Mapping[int, Failure]) -> pa.RecordBatch:
        """Messages of the chunk as rows of an error queue, for the addresses that they could not reach."""
        sends = self._chunk.sends
        rows = sends.rows(positions)
        texts = zip(positions, rows["headers"].to_pylist(), strict=True)
        headers = [
            failed_headers(text, failures[at], *self._written(at, self._error_queue), row_id=sends.ids[at])
            for at, text in texts
        ]
        return lasting(headers, rows["body"])

    def _row_errors(
        self, rows: Received, failures: Sequence[tuple[int, Failure]], to: Sequence[str] = ()
    ) -> pa.RecordBatch:
        """Received rows as rows of an error queue.

        :param failures: of each its position, and why it failed.
        :param to: of copies of events that were passed on, the full address of each one's one destination.
        """
        headers = []
        for number, (at, failure) in enumerate(failures):
            text = rows.texts[at]
            if to and parse_headers(text) is not None:  # before: so it also stands in what is kept aside
                text = changed_headers(text, [STORED_EVENT], {STORED_FOR: to[number]})
            end = failure.error_queue or self._error_queue
            failed_for = self._places.written(failure.failed_for or rows.queue(at), received=True, beside=end)
            headers.append(failed_headers(text, failure, *failed_for, row_id=rows.row_id(at)))
        return lasting(headers, rows.bodies_of([at for at, _ in failures]))

    def _later(self, decision: Decision) -> Iterator[Rows]:
        """The rows that are tried again later, or wait for a database."""
        rows, left = self._chunk.rows, self._failing(decision, final=False)
        for queue, its in {} if rows is None else gathered(left, rows.queue).items():
            yield self._routes.waiting(self._places.received(queue)), self.later_rows(its)

    def later_rows(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows with which these wait: until they are tried again, or for a database that is down.

        Those that wait for a database are given up in their order, by the clock of their own database.
        """
        rows, now = self._chunk.rows, database_facts.now(self._routes.connected(self._places.at_home))
        assert rows is not None
        latest = now + self._places.home.give_up_after
        ids = new_row_ids(len(positions))
        headers, delays, dues = [], [], []
        for number, (at, own) in enumerate(zip(positions, ids, strict=True)):
            failure, delay, due = self._chunk.failed[at], None, None
            known: dict[str, Any] = {
                "row_id": rows.row_id(at),
                "queue": self._places.written(rows.queue(at), received=True)[0],
                "origin": rows.origin(at).moved().header(uuid_text(own.as_py())),
                "now": now,
            }
            if failure.waits_for is None:
                wait = failure.retry_after or timedelta()
                delay = wait // timedelta(milliseconds=1)
                text = retry_headers(rows.texts[at], due=now + wait, **known)
            else:
                text, end = waiting_headers(
                    rows.texts[at], database=failure.waits_for, latest=latest, **known
                )
                due = end + number * timedelta.resolution
            headers.append(text)
            delays.append(delay)
            dues.append(due)
        return replaced(
            lasting(headers, rows.bodies_of(positions)),
            id=ids,
            delay_ms=pa.array(delays, pa.int64()),
            due=pa.array(dues, OUTGOING.field("due").type),
        )

    def acknowledged(self, decision: Decision) -> Iterator[Rows]:
        """What tells ServiceControl that messages succeeded that it had put back."""
        if (rows := self._chunk.rows) is None:
            return
        for queue, its in gathered(decision.acknowledged, lambda at: rows.owed[at].queue).items():
            made = acknowledgements([rows.owed[at].id for at in its], self._now)
            yield from self._beside(queue, made, its, [ACKNOWLEDGED] * len(its))

    def _audited(self, decision: Decision) -> Iterator[Rows]:
        """The copies of the messages that were processed, now where the frame does not tell when."""
        rows, queue = self._chunk.rows, self._places.home.audit_queue
        if queue is None or rows is None or not rows.handled:
            return
        processed = [at for at in decision.rows if at not in self._chunk.failed]
        if not processed:
            return
        started, ended = (
            [moment(each) for each in rows.frame[name].cast(pa.int64()).to_pylist()] for name in TIMES
        )
        acknowledged = set(decision.acknowledged)
        headers = [
            audit_headers(
                rows.texts[at],
                endpoint=self._places.written(rows.queue(at), received=True)[1],
                row_id=rows.row_id(at),
                started=started[at] or ended[at] or self._now,
                ended=ended[at] or self._now,
                acknowledged=at in acknowledged,
            )
            for at in processed
        ]
        made = lasting(headers, rows.bodies_of(processed))
        yield from self._beside(queue, made, processed, [AUDITED] * len(processed))

    def _beside(
        self, queue: str, rows: pa.RecordBatch, owners: Sequence[int], what: Sequence[str]
    ) -> Iterator[Rows]:
        """Rows for a queue that belongs to home. Where it lies elsewhere, they are stored at home first.

        :param owners: the received row of each, and ``what`` it is: by both it is known there.
        """
        if (to_queue := self._routes.beside(queue)) is not None:
            yield to_queue, rows
            return
        received = self._chunk.rows
        store = self._places.home.store_and_forward
        if store is None and (received is None or not received.stores or self._routes.atomic):
            raise nothing_passes_on(queue)
        full = self._places.full_address(self._places.beside(queue))
        texts = rows["headers"].to_pylist()
        stored: dict[str, list[int]] = {}
        for number, at in enumerate(owners):
            if received is None:
                origin, own = self._origin_of(at), ""
            else:
                own = received.queue(at)
                origin = f"{received.origin(at).key}-{self._routes.received(own).table.digits}"
            stored.setdefault(store or own, []).append(number)
            added = {STORED_FOR: full, STORED: f"{origin}/{what[number]}"}
            texts[number] = changed_headers(texts[number], (), added)
        rows = replaced(rows, headers=pa.array(texts, pa.string()))
        for to, numbers in stored.items():
            yield self._routes.received(to), rows.take(pa.array(numbers, pa.int32()))
