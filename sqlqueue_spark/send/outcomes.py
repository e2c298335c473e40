"""The outcomes of received messages: what each of them sends, or why it failed.

A received message has one outcome, the first that is committed. All that it sends goes out together, or it fails: then nothing of
it goes out, and the message goes to the error queue, or waits until it is tried again.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple, TypeVar

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import Owed, owed_by
from sqlqueue_spark.messages.audit import audit_headers
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.outgoing import lasting, replaced
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.send.composed import Composed, FailedMessage
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.outbox_keys import OF_HANDLED, OF_ORIGIN, keys_by_queue

#: When a received message was processed; NULL where the frame does not tell.
TIMES = pa.schema([(name, pa.timestamp("us", tz="UTC")) for name in ("ProcessingStarted", "ProcessingEnded")])
T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Keys(NamedTuple):
    """The outbox keys of received messages, in their order: of their origins, and of their ids where they are handled."""

    origins: Sequence[str]
    ids: Sequence[str]


class Decided(NamedTuple):
    """Which received messages of a chunk have their outcome now, by their positions, and the keys that this adds.

    ``handled_before`` are those that were handled as other rows: they send nothing but the acknowledgement that they owe.
    """

    accepted: Sequence[int]
    handled_before: Sequence[int] = ()
    origins: Sequence[str] = ()
    ids: Sequence[str] = ()

    def without(self, late: Container[str], keys: Keys) -> Decided:
        """The same, but the messages with these ids were handled as other rows meanwhile."""
        accepted = [at for at in self.accepted if keys.ids[at] not in late]
        before = [at for at in self.accepted if keys.ids[at] in late]
        return self._replace(accepted=accepted, handled_before=[*self.handled_before, *before])


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcomes of a chunk of received messages.

    :param queues: the address of the queue of each, ``origins`` what tells it apart there, ``ids`` its message id.
    :param row_ids: the Id of each received row, ``headers`` and ``bodies`` as they were received.
    :param times: when each was processed (:data:`TIMES`).
    :param sends: all that they send; None for nothing. ``owners`` has for each of these messages the position of the received one
        that sends it, in ascending order.
    :param failed: those that have failed, by their positions. Nothing of what they send goes out.
    :param by_id: whether a message that was handled as another row is done. Not if it was to go elsewhere: there another outbox knows it.
    """

    queues: pa.Array
    origins: pa.Array
    ids: pa.Array
    row_ids: pa.Array
    headers: pa.Array
    bodies: pa.Array
    times: pa.RecordBatch
    sends: Composed | None
    owners: Sequence[int]
    failed: Mapping[int, FailedMessage]
    by_id: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def failing(self, failures: Mapping[int, Failure], destinations: Destinations) -> Outcomes:
        """The same outcomes, but these have failed too, each for the queue in which it was received.

        :param destinations: know how the address of that queue is written.
        """
        failed = {
            at: destinations.failed(failure, queue=self.queue(at), message_id=self.row_id(at))
            for at, failure in failures.items()
        }
        return replace(self, failed={**failed, **self.failed})

    def only(self, kept: range) -> Outcomes:
        """The outcomes at these positions alone."""
        first, last = (bisect.bisect_left(self.owners, end) for end in (kept.start, kept.stop))
        columns = ("queues", "origins", "ids", "row_ids", "headers", "bodies", "times")
        return replace(
            self,
            **{name: getattr(self, name).slice(kept.start, len(kept)) for name in columns},
            sends=None if self.sends is None or first == last else self.sends.only(range(first, last)),
            owners=[owner - kept.start for owner in self.owners[first:last]],
            failed={at - kept.start: each for at, each in self.failed.items() if at in kept},
        )

    def queue(self, position: int) -> str:
        """The address of the queue in which a message was received."""
        return self.queues[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def row_id(self, position: int) -> str:
        """The Id of a received row."""
        return self.row_ids[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def destinations(self) -> Iterator[tuple[str, list[int]]]:
        """Each address that those send to that have not failed, with the positions of the messages for it."""
        for address, positions in () if self.sends is None else self.sends.destinations():
            sound = [at for at in positions if self.owners[at] not in self.failed]
            if sound:
                yield address, sound

    def keys(self, queue: Callable[[str], str]) -> Keys:
        """The outbox keys of the received messages.

        :param queue: gives the final address of the queue at an address.
        """
        origins = keys_by_queue(self.queues, self.origins, OF_ORIGIN, queue)
        ids = keys_by_queue(self.queues, self.ids, OF_HANDLED, queue)
        return Keys(origins, ids)

    def decide(self, keys: Keys, known: Collection[str]) -> Decided:
        """Which of the received messages have their outcome now.

        A message whose origin is known has had it, whatever its outcome would be now. One whose id is known, or comes twice, was
        handled as another row.

        :param known: the keys that are there.
        """
        if not known and self.by_id and not self.failed and len(set(keys.ids)) == len(self):
            # As nearly always. The loop comes to the same in ten times as long.
            return Decided(range(len(self)), (), keys.origins, keys.ids)
        accepted: list[int] = []
        before: list[int] = []
        origins: list[str] = []
        ids: dict[str, None] = {}
        for at, (origin, id_) in enumerate(zip(*keys, strict=True)):
            if origin in known:
                continue
            origins.append(origin)
            if self.by_id and (id_ in known or id_ in ids):
                before.append(at)
                continue
            accepted.append(at)
            if self.by_id and at not in self.failed:
                ids[id_] = None
        return Decided(accepted, before, origins, list(ids))

    def sent_by(self, accepted: Sequence[int]) -> Sequence[int]:
        """The positions of the messages that these received ones send."""
        if self.sends is None:
            return ()
        if len(accepted) == len(self) and not self.failed:
            return range(len(self.sends))
        sending = set(accepted).difference(self.failed)
        return [at for at, owner in enumerate(self.owners) if owner in sending]

    def retried(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Those of these received messages that are tried again later, by the address of their queue."""
        return self._failed_by(self.queue, positions, lambda each: each.failure.retry_after is not None)

    def parked(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Those of these received messages that wait for a database that is down, by the address of their queue."""
        return self._failed_by(self.queue, positions, lambda each: each.failure.waits_for is not None)

    def in_error(self, positions: Iterable[int]) -> dict[str | None, list[int]]:
        """Those of these received messages that go to an error queue, by its address; None for that of the sink."""
        return self._failed_by(
            lambda at: self.failed[at].failure.error_queue, positions, lambda each: each.is_final
        )

    def _failed_by(
        self, key: Callable[[int], T], positions: Iterable[int], wanted: Callable[[FailedMessage], bool]
    ) -> dict[T, list[int]]:
        found: dict[T, list[int]] = {}
        for at in positions if self.failed else ():
            if at in self.failed and wanted(self.failed[at]):
                found.setdefault(key(at), []).append(at)
        return found

    def error_rows(self, positions: Sequence[int]) -> pa.RecordBatch:
        """The rows with which these go to an error queue."""
        headers = [self.failed[at].headers(self._texts[at]) for at in positions]
        return lasting(headers, self._bodies_of(positions))

    def retry_rows(self, positions: Sequence[int], now: datetime) -> pa.RecordBatch:
        """The rows with which these wait until they are tried again."""
        delays = [self.failed[at].failure.retry_after or timedelta() for at in positions]
        headers = [
            self.failed[at].retry_headers(self._texts[at], now, delay)
            for at, delay in zip(positions, delays, strict=True)
        ]
        waiting = lasting(headers, self._bodies_of(positions))
        milliseconds = [delay // timedelta(milliseconds=1) for delay in delays]
        return replaced(waiting, delay_ms=pa.array(milliseconds, pa.int64()))

    def parked_rows(self, positions: Sequence[int], now: datetime) -> pa.RecordBatch:
        """The rows with which these wait for a database that is down; they are given up in their order."""
        headers, dues = [], []
        for number, at in enumerate(positions):
            text, due = self.failed[at].parked_headers(self._texts[at], now)
            headers.append(text)
            dues.append(due + number * timedelta.resolution)
        return replaced(
            lasting(headers, self._bodies_of(positions)), due=pa.array(dues, OUTGOING.field("due").type)
        )

    @cached_property
    def owed(self) -> Mapping[int, Owed]:
        """The acknowledgements that the messages ask for which ServiceControl has put back."""
        return owed_by(self.headers)

    def audit_rows(
        self, positions: Sequence[int], endpoints: Sequence[str], now: datetime, acknowledged: Container[int]
    ) -> pa.RecordBatch:
        """The copies of these messages for the audit queue.

        :param endpoints: of each, whose queue it was received in.
        :param now: when those were processed of which the frame does not tell.
        :param acknowledged: those of which ServiceControl is told.
        """
        started, ended = (_moments(self.times[name]) for name in TIMES.names)
        headers = [
            audit_headers(
                self._texts[at],
                endpoint=endpoint,
                row_id=self.row_id(at),
                started=started[at] or ended[at] or now,
                ended=ended[at] or now,
                acknowledged=at in acknowledged,
            )
            for at, endpoint in zip(positions, endpoints, strict=True)
        ]
        return lasting(headers, self._bodies_of(positions))

    def _bodies_of(self, positions: Sequence[int]) -> pa.Array:
        return self.bodies.take(pa.array(positions, pa.int32()))

    @cached_property
    def _texts(self) -> Sequence[str | None]:
        return self.headers.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types


def _moments(times: pa.Array) -> list[datetime | None]:
    """Times as Python has them; None for one that it has not, after the year 9999."""
    moments: list[datetime | None] = []
    for each in times.cast(pa.int64()).to_pylist():
        moment = None
        with contextlib.suppress(OverflowError):
            moment = None if each is None else _EPOCH + timedelta(microseconds=each)
        moments.append(moment)
    return moments
