"""Makes outcomes of a frame's rows, one of each received message: the messages that it sends, or its failure.

A message that cannot be made fails the received one that sends it, and so does a received one that nobody can read or that is
only on its way through its queue.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.body import empty_for_null
from sqlqueue_spark.messages.failure_headers import Failure, poison
from sqlqueue_spark.messages.outgoing import derived_ids
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.chunks import chunks
from sqlqueue_spark.send.column_values import among, grouped, in_order, told
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.frame_columns import ORIGIN, FrameColumns
from sqlqueue_spark.send.header_shapes import Alike, alike, poisoned
from sqlqueue_spark.send.message_builder import Count, MessageBuilder, NewIds
from sqlqueue_spark.send.message_ids import message_ids
from sqlqueue_spark.send.outbox_keys import origins
from sqlqueue_spark.send.outcomes import TIMES, Outcomes
from sqlqueue_spark.send.received_in_transit import in_transit
from sqlqueue_spark.tables.delayed import LONGEST_DELAY

_SIZED = ("Headers", "Body", "Outgoing")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class OutcomeBuilder:
    """Turns record batches into outcomes; opens no connection."""

    columns: FrameColumns
    options: SinkOptions
    destinations: Destinations
    untyped: Count = field(default_factory=Count)

    def compose(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outcomes]:
        """Make the outcomes of a task, in their order, chunk by chunk; a chunk is one transaction.

        :raises ConfigurationError: a row tells no origin, or a received message has two rows.
        """
        once = _Once()
        return (self.outcomes(chunk, once) for chunk in self.chunks(batches))

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task, cut into chunks of which each is one transaction."""
        sized = [own for name in _SIZED if (own := self.columns.names.get(name)) is not None]
        return chunks(batches, sized, Target.of(self.options).dialect.written, self._messages_up_to)

    def _messages_up_to(self, batch: pa.RecordBatch) -> Sequence[int]:
        if not self.columns.outgoing:
            return range(1, batch.num_rows + 1)
        lengths = pc.fill_null(pc.list_value_length(self.columns.column(batch, "Outgoing")), 0)
        return pc.cumulative_sum(pc.max_element_wise(lengths.cast(pa.int64()), 1)).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def outcomes(self, batch: pa.RecordBatch, once: _Once | None = None) -> Outcomes:
        """The outcomes of a chunk.

        :param once: what the task has seen; None for rows of which each is a received message for sure.
        """
        queues, row_versions, row_ids = (self.columns.column(batch, name) for name in ORIGIN)
        if once is not None:
            once.check(queues, row_versions, told(row_ids))
        groups = self.grouped(batch)
        outcomes = self.received(batch, groups)
        failures = self._failures(self.columns.column(batch, "Failure"))
        failures |= {at: poison(text) for at, text in poisoned(groups).items()}
        moving = {
            at: self.destinations.failed(Failure.of(error), queue=wanted, message_id=outcomes.row_id(at))
            for at, wanted, error in in_transit(groups, queues, self.options)
        }
        outcomes = replace(outcomes, failed=moving).failing(failures, self.destinations)
        return self._sending(outcomes, batch)

    def grouped(self, batch: pa.RecordBatch) -> list[Alike]:
        """The rows by the headers that they have."""
        return alike(self.columns.column(batch, "Headers").cast(pa.string()), received=True, poison=True)

    def received(self, batch: pa.RecordBatch, groups: Sequence[Alike]) -> Outcomes:
        """The received messages, which send nothing and have not failed.

        :param groups: the rows as :meth:`grouped` tells.
        """
        queues, row_versions, row_ids = (self.columns.column(batch, name) for name in ORIGIN)
        row_ids = told(row_ids)
        return Outcomes(
            queues=queues,
            origins=origins(row_ids, row_versions),
            ids=message_ids(told(self.columns.column(batch, "MessageId").cast(pa.string())), groups, row_ids),
            row_ids=row_ids,
            times=pa.RecordBatch.from_arrays(
                [self.columns.column(batch, name).cast(TIMES.field(name).type) for name in TIMES.names],
                schema=TIMES,
            ),
            headers=self.columns.column(batch, "Headers").cast(pa.string()),
            bodies=empty_for_null(self.columns.column(batch, "Body").cast(pa.binary())),
            sends=None,
            owners=(),
            failed={},
        )

    def _sending(self, outcomes: Outcomes, batch: pa.RecordBatch) -> Outcomes:
        """The outcomes with what they send. One that would send what cannot be sent has failed."""
        sends = self._sends(outcomes, batch)
        try:
            made = sends.composed()
        except Unsendable:
            owners = sends.owners.to_pylist()
            wrong = {owners[at]: Failure.of(error) for at, error in sends.unsendable()}
            outcomes = outcomes.failing(wrong, self.destinations)
            sends = self._sends(outcomes, batch)
            made = sends.composed()
        return replace(outcomes, sends=made, owners=sends.owners.to_pylist())

    def _sends(self, outcomes: Outcomes, batch: pa.RecordBatch) -> _Sends:
        """The rows of the messages out, of those that have not failed."""
        everywhere = pa.array(range(len(outcomes)), pa.int32())
        sound = pc.invert(among(list(outcomes.failed), len(outcomes)))
        if "Outgoing" not in self.columns.names:
            names = {
                name: own
                for name, own in self.columns.names.items()
                if name not in ("Failure", "Recoverable", *TIMES.names)
            }
            return self._of(FrameColumns(names=names), batch.filter(sound), everywhere.filter(sound), None)
        if not self.columns.outgoing:
            return self._of(FrameColumns(names={}), None, everywhere[:0], None)
        lists = self.columns.column(batch, "Outgoing")
        if outcomes.failed or lists.null_count:
            lists = pc.if_else(sound, lists, None)
        its, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
        if its.null_count:
            its, owners = its.filter(its.is_valid()), owners.filter(its.is_valid())
        rows = pa.RecordBatch.from_arrays(its.flatten(), names=[each.name for each in its.type])

        new_ids = _NewIds(self.destinations, outcomes, owners.to_pylist())
        return self._of(FrameColumns(names=self.columns.outgoing), rows, owners, new_ids)

    def _of(
        self,
        columns: FrameColumns,
        rows: pa.RecordBatch | None,
        owners: pa.Array,
        new_ids: NewIds | None,
    ) -> _Sends:
        builder = MessageBuilder(
            columns=columns,
            options=replace(self.options, error_queue=None),
            destinations=self.destinations,
            untyped=self.untyped,
        )
        return _Sends(builder, rows, owners, new_ids)

    def _failures(self, column: pa.Array) -> dict[int, Failure]:
        """The failures that the frame tells of, by position."""
        fields = self.columns.failure
        if not fields:
            return {}
        told_ = {at: each for at, each in enumerate(column.to_pylist()) if each is not None}
        if pa.types.is_string(column.type):  # JSON, see spark/batch_frame.py
            return {at: _failure(_of_json(text)) for at, text in told_.items()}
        return {at: _failure({name: each[own] for name, own in fields.items()}) for at, each in told_.items()}


@dataclass(frozen=True)
class _Sends:
    """Rows of messages out, each with the position of the received message that sends it."""

    builder: MessageBuilder
    rows: pa.RecordBatch | None
    owners: pa.Array
    new_ids: NewIds | None

    def composed(self) -> Composed | None:
        """The messages; their rows are made at once, because each that cannot be made must fail its received message alone.

        :raises Unsendable: one cannot be made.
        """
        if self.rows is None or not self.rows.num_rows:
            return None
        return _made(self.builder.composed(self.rows, self.new_ids))

    def unsendable(self) -> Iterator[tuple[int, Unsendable]]:
        """The messages that cannot be sent, each tried by itself: the position of each, and why."""
        rows = self.rows
        for at in range(0 if rows is None else rows.num_rows):
            try:
                _made(self.builder.composed(rows.slice(at, 1), lambda each: pa.repeat("", len(each))))  # type: ignore[union-attr] # there is one
            except Unsendable as error:
                yield at, error


def _made(messages: Composed) -> Composed:
    messages.rows(range(len(messages)))
    return messages


class _NewIds:
    """Makes the ids of messages that have none."""

    def __init__(self, destinations: Destinations, outcomes: Outcomes, owners: Sequence[int]) -> None:
        """:param owners: of each message the position of the received one that sends it, in ascending order."""
        self._destinations = destinations
        self._outcomes = outcomes
        self._owners = owners

    def __call__(self, nameless: Sequence[int]) -> pa.Array:
        """The ids of the messages at these positions, in their order."""
        owners = [self._owners[at] for at in nameless]
        firsts = dict(zip(reversed(self._owners), reversed(range(len(self._owners))), strict=True))
        places = [at - firsts[owner] for at, owner in zip(nameless, owners, strict=True)]
        received = pa.array(owners, pa.int32())
        ids, queues = self._outcomes.ids.take(received), self._outcomes.queues.take(received)
        made = [
            (its, self._derived(queue, ids.take(its), [places[at] for at in its.to_pylist()]))
            for queue, its in grouped(queues)
        ]
        return in_order(*zip(*made, strict=True))

    def _derived(self, queue: str, ids: pa.Array, places: Sequence[int]) -> pa.Array:
        table = self._destinations.where(queue)[1]
        return derived_ids(ids.to_pylist(), table.schema, table.table, places)


@dataclass
class _Once:
    """Sees to it that no received message has two rows in a task: the second one's outcome would never go out."""

    _seen: dict[str, list[pa.Array]] = field(default_factory=dict)

    def check(self, queues: pa.Array, row_versions: pa.Array, row_ids: pa.Array) -> None:
        """:raises ConfigurationError: a row tells no origin, or the same one as another row."""
        for name, column in zip(ORIGIN, (queues, row_versions, row_ids), strict=True):
            if column.null_count:
                raise ConfigurationError(
                    f"A row has no {name}, so nobody can tell which received message it is the outcome of; keep the columns of "
                    "the source, and give Queue the address of its queue."
                )
        for queue in pc.unique(queues).to_pylist():
            its = row_versions.filter(pc.equal(queues, queue))
            if len(pc.unique(its)) < len(its):
                counts = pc.value_counts(its)
                self._refuse(queue, next(each["values"] for each in counts.to_pylist() if each["counts"] > 1))
            for before in self._seen.get(queue, ()):
                again = its.filter(pc.is_in(its, value_set=before)) if _overlap(before, its) else its[:0]
                if len(again):
                    self._refuse(queue, again[0].as_py())
            self._seen.setdefault(queue, []).append(its)

    @staticmethod
    def _refuse(queue: str, row_version: int) -> None:
        raise ConfigurationError(
            f"The received message with RowVersion {row_version} of {queue} has two rows, but it has one outcome; put all that it "
            "sends into one row, as elements of the column Outgoing."
        )


def _overlap(one: pa.Array, other: pa.Array) -> bool:
    first, second = (pc.min_max(each).as_py() for each in (one, other))
    return first["min"] <= second["max"] and second["min"] <= first["max"]  # type: ignore[no-any-return] # pyarrow has no types


def _told_delay(delay: object) -> timedelta | None:
    """A delay of a retry; one that nobody will see the end of is none, and the message goes to the error queue at once."""
    return max(delay, timedelta()) if isinstance(delay, timedelta) and delay < LONGEST_DELAY else None


def _of_json(text: str) -> dict[str, object]:
    """A failure as the JSON of the column tells it, with its times as a struct would have them."""
    told_: dict[str, object] = json.loads(text)
    if isinstance(time := told_.pop("TimeOfFailure", None), int):
        with contextlib.suppress(OverflowError):  # it is after the year 9999, so nobody can have told it
            told_["TimeOfFailure"] = _EPOCH + timedelta(microseconds=time)
    if isinstance(delay := told_.get("RetryAfter"), int):
        told_["RetryAfter"] = timedelta(microseconds=delay)
    return told_


def _failure(told_: Mapping[str, object]) -> Failure:
    """A failure as the column tells it."""
    texts = {name: None if value is None else str(value) for name, value in told_.items()}
    time = told_.get("TimeOfFailure")
    return Failure(
        exception_type=texts.get("ExceptionType") or "Failure",
        message=texts.get("Message") or "",
        stack_trace=texts.get("StackTrace") or "",
        inner_exception_type=texts.get("InnerExceptionType"),
        help_link=texts.get("HelpLink"),
        source=texts.get("Source"),
        data={name: value for name, value in dict(told_.get("Data") or {}).items() if value is not None},  # type: ignore[call-overload] # a map of texts
        time=None if time is None else time.astimezone(UTC),  # type: ignore[attr-defined] # a timestamp
        retry_after=_told_delay(told_.get("RetryAfter")),
        error_queue=texts.get("ErrorQueue") or None,
    )
