"""What becomes of received rows: what each of them sends, or why it failed.

A row that is *handled* has one outcome, the first that is committed: all that it sends goes out together, or
it fails. A row that is *passed on* is a message that goes to its destinations, and known there.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import Owed, owed_by
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.audit import audit_headers
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.message import STORED_EVENT, STORED_FOR, changed_headers
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.messages.outgoing import lasting, new_row_ids, replaced, uuid_text
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.messages.waiting_headers import given_up_at, retry_headers, waiting_headers
from sqlqueue_spark.send.compose.column_values import among, moment
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.places import Places

#: When a received message was processed; NULL where the frame does not tell.
TIMES = pa.schema([(name, pa.timestamp("us", tz="UTC")) for name in ("ProcessingStarted", "ProcessingEnded")])
#: What a stored row is known by that is no message: the origin of the row that it tells of, and what it is.
FAILED, ACKNOWLEDGED, AUDITED = "failed", "acknowledged", "audited"
_RESULT = re.compile(
    rf"[0-9a-f-]{{36}}--?[0-9]+(?:\+[0-9]+)?/(?P<kind>{FAILED}|{ACKNOWLEDGED}|{AUDITED}).*", re.DOTALL
)
_COLUMNS = ("queues", "row_versions", "row_ids", "ids", "headers", "bodies", "times")


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """A chunk of received rows.

    :param handled: whether they are handled; else they are passed on.
    :param places: what reads the addresses that they send to.
    :param on_their_way: whether they were only stored in their queue for another one.
    :param queues: the address of the queue of each; ``row_versions`` and ``row_ids`` say which row it was.
    :param ids: the message id of each, ``headers`` and ``bodies`` those of the frame.
    :param as_received: whether the frame has headers and bodies as they were received.
    :param times: when each was processed (:data:`TIMES`).
    :param moved: the origins of those that we have moved, by their positions.
    :param stored: those that we have stored for another database, and what each is known by there.
    :param sends: all that they send; None for nothing. ``owners`` has for each of these messages the position
        of the received one that sends it, in ascending order.
    :param failed: those that have failed, by their positions. Nothing of what they send goes out.
    """

    handled: bool
    places: Places
    on_their_way: bool = False
    queues: pa.Array
    row_versions: pa.Array
    row_ids: pa.Array
    ids: pa.Array
    headers: pa.Array
    bodies: pa.Array
    times: pa.RecordBatch
    as_received: bool = True
    moved: Mapping[int, Origin] = field(default_factory=dict)
    stored: Mapping[int, str] = field(default_factory=dict)
    sends: Composed | None = None
    owners: Sequence[int] = ()
    failed: Mapping[int, Failure] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def failing(self, failures: Mapping[int, Failure]) -> Outcomes:
        """The same rows, but these have failed too."""
        return replace(self, failed={**failures, **self.failed})

    def only(self, kept: Sequence[int]) -> Outcomes:
        """The rows at these positions alone, which are in ascending order."""
        its = pa.array(kept, pa.int32())
        numbers = {at: number for number, at in enumerate(kept)}
        messages = [at for at, owner in enumerate(self.owners) if owner in numbers]
        return replace(
            self,
            **{name: getattr(self, name).take(its) for name in _COLUMNS},
            moved={numbers[at]: each for at, each in self.moved.items() if at in numbers},
            stored={numbers[at]: each for at, each in self.stored.items() if at in numbers},
            sends=None if self.sends is None or not messages else self.sends.only(messages),
            owners=[numbers[self.owners[at]] for at in messages],
            failed={numbers[at]: each for at, each in self.failed.items() if at in numbers},
        )

    def silent(self) -> Outcomes:
        """The same rows, which send nothing."""
        return replace(self, sends=None, owners=())

    def messages_of(self, position: int) -> range:
        """The positions of the messages that a row sends."""
        first = bisect.bisect_left(self.owners, position)
        return range(first, bisect.bisect_right(self.owners, position, first))

    def queue(self, position: int) -> str:
        return self.queues[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def row_id(self, position: int) -> str:
        return self.row_ids[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def origin(self, position: int) -> Origin:
        """What a row is known by."""
        if position in self.moved:
            return self.moved[position]
        return Origin(self.row_id(position).lower(), self.row_versions[position].as_py())

    @cached_property
    def origin_texts(self) -> pa.Array:
        """The key of the origin of each row (:attr:`Origin.key`)."""
        return self._texts_of(self.moved)

    @cached_property
    def first_texts(self) -> pa.Array:
        """The key of each row's origin as it was before we moved it: by it is known what no move undoes."""
        return self._texts_of({at: each._replace(moves=0) for at, each in self.moved.items()})

    def _texts_of(self, moved: Mapping[int, Origin]) -> pa.Array:
        texts = pc.binary_join_element_wise(
            pc.utf8_lower(self.row_ids), self.row_versions.cast(pa.string()), "-"
        )
        if not moved:
            return texts
        keys = [moved[at].key if at in moved else None for at in range(len(self))]
        return pc.coalesce(pa.array(keys, pa.string()), texts)

    @cached_property
    def owed(self) -> Mapping[int, Owed]:
        """The acknowledgements of rows that ServiceControl has put back. A row that we stored owes none."""
        return {at: each for at, each in owed_by(self.headers).items() if at not in self.stored}

    def result(self, position: int) -> str | None:
        """What a row is that we stored for another database as the result of a row; None for any other."""
        told = _RESULT.fullmatch(self.stored.get(position, ""))
        return told and told["kind"]

    def given_up(self, position: int, now: datetime) -> bool:
        """Whether a row has waited for its database for as long as it may."""
        end = given_up_at(self._texts[position])
        return end is not None and end <= now

    def with_received(self, positions: Sequence[int], headers: pa.Array, bodies: pa.Array) -> Outcomes:
        """The same rows, with these headers and bodies at these positions, which are in ascending order."""
        its = among(positions, len(self))
        return replace(
            self,
            headers=pc.replace_with_mask(self.headers, its, headers),
            bodies=pc.replace_with_mask(self.bodies, its, bodies),
        )

    def error_rows(
        self, failures: Sequence[tuple[int, Failure]], places: Places, to: Sequence[str] = ()
    ) -> pa.RecordBatch:
        """The rows with which some of these go to an error queue.

        :param failures: of each its position, and why it failed.
        :param to: of copies of events that were passed on, the full address of each one's one destination.
        """
        headers = []
        for at, failure in failures:
            queue, endpoint = places.written(failure.failed_for or self.queue(at), received=True)
            text, row_id = self._texts[at], self.row_id(at)
            headers.append(failed_headers(text, failure, queue=queue, endpoint=endpoint, row_id=row_id))
        if to:
            named = zip(headers, to, strict=True)
            headers = [changed_headers(text, [STORED_EVENT], {STORED_FOR: each}) for text, each in named]
        return self._rows([at for at, _ in failures], headers)

    def later_rows(self, positions: Sequence[int], places: Places, now: datetime) -> pa.RecordBatch:
        """The rows with which these wait: until they are tried again, or for a database that is down.

        Those that wait for a database are given up in their order.
        """
        ids = new_row_ids(len(positions))
        headers, delays, dues = [], [], []
        for number, (at, own) in enumerate(zip(positions, ids, strict=True)):
            failure = self.failed[at]
            text, row_id = self._texts[at], self.row_id(at)
            queue, _ = places.written(self.queue(at), received=True)
            origin = self.origin(at).moved().header(uuid_text(own.as_py()))
            delay = due = None
            if failure.waits_for is None:
                wait = failure.retry_after or timedelta()
                delay = wait // timedelta(milliseconds=1)
                text = retry_headers(text, queue=queue, row_id=row_id, origin=origin, now=now, due=now + wait)
            else:
                text, end = waiting_headers(
                    text,
                    row_id=row_id,
                    origin=origin,
                    queue=queue,
                    database=failure.waits_for,
                    now=now,
                    latest=now + failure.give_up_after,
                )
                due = end + number * timedelta.resolution
            headers.append(text)
            delays.append(delay)
            dues.append(due)
        return replaced(
            self._rows(positions, headers),
            id=ids,
            delay_ms=pa.array(delays, pa.int64()),
            due=pa.array(dues, OUTGOING.field("due").type),
        )

    def audit_rows(
        self, positions: Sequence[int], places: Places, now: datetime, acknowledged: Container[int]
    ) -> pa.RecordBatch:
        """The copies of these messages for the audit queue.

        :param now: when those were processed of which the frame does not tell.
        :param acknowledged: those of which ServiceControl is told.
        """
        started, ended = (
            [moment(each) for each in self.times[name].cast(pa.int64()).to_pylist()] for name in TIMES.names
        )
        headers = [
            audit_headers(
                self._texts[at],
                endpoint=places.written(self.queue(at), received=True)[1],
                row_id=self.row_id(at),
                started=started[at] or ended[at] or now,
                ended=ended[at] or now,
                acknowledged=at in acknowledged,
            )
            for at in positions
        ]
        return self._rows(positions, headers)

    def _rows(self, positions: Sequence[int], headers: Sequence[str]) -> pa.RecordBatch:
        """Rows with the bodies of these and other headers."""
        return lasting(headers, self.bodies.take(pa.array(positions, pa.int32())))

    @cached_property
    def _texts(self) -> Sequence[str | None]:
        return self.headers.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types
