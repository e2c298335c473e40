"""Makes outcomes of a frame's rows, one of each received row: the messages that it sends, or its failure.

A frame with ``Outgoing`` or ``Failure`` has outcomes of rows that were handled. Rows of any other frame are
passed on, and so are those of either frame that are only stored here for another database. A row that cannot
be read, is on its way to another queue, or would send what cannot be sent, has failed.

Format: the headers ``$.store-and-forward.destination`` and ``$.store-and-forward.eventtype`` of the .NET
transport's store-and-forward sample. They end with this hop.
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
from sqlqueue_spark.messages.message import (
    FORWARD_DESTINATION,
    ORIGIN,
    STORED,
    STORED_EVENT,
    STORED_FOR,
    parse_headers,
)
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.messages.outgoing import derived_ids
from sqlqueue_spark.messages.transit import in_transit_to
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.chunks import chunks
from sqlqueue_spark.send.compose.column_values import in_order, told
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.frame_columns import RECEIVED_ROW, FrameColumns
from sqlqueue_spark.send.compose.header_shapes import Alike, alike, poisoned
from sqlqueue_spark.send.compose.message_builder import Count, MessageBuilder, NewIds
from sqlqueue_spark.send.compose.message_ids import message_ids
from sqlqueue_spark.send.compose.outcomes import TIMES, Outcomes
from sqlqueue_spark.send.compose.places import Places
from sqlqueue_spark.tables.delayed import LONGEST_DELAY

_SIZED = ("Headers", "Body", "Outgoing")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The columns that are added to rows that are stored here: where a message goes, or the event that it is.
_TO, _EVENT = "store-and-forward to", "store-and-forward event"
#: Columns of a frame of outcomes that no message has that is passed on as it was received.
_OF_OUTCOMES = ("Outgoing", "Failure", "Recoverable", "Destination", *TIMES.names)


@dataclass(frozen=True, kw_only=True)
class OutcomeBuilder:
    """Turns record batches into outcomes; opens no connection.

    :param places: where the messages of rows go that are passed on, and ``answers`` those of rows that are
        handled.
    """

    columns: FrameColumns
    places: Places
    answers: Places
    untyped: Count = field(default_factory=Count)

    @property
    def options(self) -> SinkOptions:
        """Those of the database in which the rows were received."""
        return self.places.home

    def compose(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outcomes]:
        """Make the outcomes of a task, in order, chunk by chunk; a chunk is one transaction in each database.

        :raises ConfigurationError: a row does not tell which received row it is, or two rows tell the same;
            or a row cannot be sent as it is, and there is no error queue.
        """
        once = _Once()
        sized = [own for name in _SIZED if (own := self.columns.names.get(name)) is not None]
        written = Target.of(self.options).dialect.written
        for chunk in chunks(batches, sized, written, self._messages_up_to):
            received = [told_or(self.columns.column(chunk, name)) for name in RECEIVED_ROW]
            once.check(*received, once=self.columns.outcomes)
            yield from self._of(chunk)

    def _messages_up_to(self, batch: pa.RecordBatch) -> Sequence[int]:
        if not self.columns.outgoing:
            return range(1, batch.num_rows + 1)
        lengths = pc.fill_null(pc.list_value_length(self.columns.column(batch, "Outgoing")), 0)
        least_one = pc.max_element_wise(lengths.cast(pa.int64()), 1)
        return pc.cumulative_sum(least_one).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def _of(self, batch: pa.RecordBatch) -> Iterator[Outcomes]:
        groups = self._grouped(batch)
        if not any(STORED_FOR in each.asked or STORED_EVENT in each.asked for each in groups):
            yield self._outcomes(batch, groups, self.columns)
            return
        to = _read(STORED_FOR, groups)
        # A message that names a queue goes there, and not to those that have subscribed.
        event = pc.if_else(to.is_null(), _read(STORED_EVENT, groups), pa.scalar(None, pa.string()))
        stored = pc.or_(to.is_valid(), event.is_valid())
        names = {name: own for name, own in self.columns.names.items() if name not in _OF_OUTCOMES}
        columns = FrameColumns(names={**names, "Destination": _TO, "EventType": _EVENT})
        goes = batch.append_column(_TO, to).append_column(_EVENT, event).filter(stored)
        stays = batch.filter(pc.invert(stored))
        for part, its in ((goes, columns), (stays, self.columns)):
            if part.num_rows:
                yield self._outcomes(part, self._grouped(part), its)

    def _grouped(self, batch: pa.RecordBatch) -> list[Alike]:
        """The rows by the headers that they have."""
        return alike(self.columns.column(batch, "Headers").cast(pa.string()), received=True, poison=True)

    def _outcomes(self, batch: pa.RecordBatch, groups: Sequence[Alike], columns: FrameColumns) -> Outcomes:
        owners: Sequence[int] = range(batch.num_rows)
        rows = batch
        if not columns.outcomes and (copies := _copies(batch, columns)) is not None:
            order, owners, firsts = copies
            batch = batch.take(order)
            rows = batch.take(firsts)
            groups = self._grouped(rows)
        outcomes = self._failing(rows, groups, columns)
        return self._sending(outcomes, batch, owners, columns, groups if rows is batch else None)

    def _failing(self, batch: pa.RecordBatch, groups: Sequence[Alike], columns: FrameColumns) -> Outcomes:
        """The received rows, which send nothing yet, and of which it is known which have failed."""
        with self._builder(columns, self.places).telling_rows_apart(batch):
            outcomes = self._received(batch, groups, columns)
        failures = {at: poison(text) for at, text in poisoned(groups).items()}
        moving = dict(self._in_transit(groups, outcomes))
        told_ = self._failures(columns.column(batch, "Failure"))
        failures = {**told_, **moving, **failures}
        if columns.outcomes:
            failures = {**self._undecided(batch, columns, failures), **failures}
        if failures and self.options.error_queue is None:
            self._refuse(batch, moving, failures)
        return outcomes.failing(failures)

    def _refuse(
        self, batch: pa.RecordBatch, moving: Mapping[int, Failure], failures: Mapping[int, Failure]
    ) -> None:
        """Refuse a row that has failed, because there is no error queue."""
        at = min(failures)
        why = failures[at].message
        if at not in moving:
            why += " Set the option errorQueue, and such rows go there, or filter them."
        with self._builder(self.columns, self.places).telling_rows_apart(batch):
            raise Unsendable(at, why)

    def _received(self, batch: pa.RecordBatch, groups: Sequence[Alike], columns: FrameColumns) -> Outcomes:
        """The received rows, which send nothing and have not failed."""
        queues, row_versions, row_ids = (columns.column(batch, name) for name in RECEIVED_ROW)
        row_ids = told(row_ids)
        headers = columns.column(batch, "Headers").cast(pa.string())
        moved: dict[int, str] = {}
        stored: dict[int, str] = {}
        for group in groups:
            for name, its in ((ORIGIN, moved), (STORED, stored)):
                if name in group.asked:
                    values = zip(group.positions.to_pylist(), group.asked[name].to_pylist(), strict=True)
                    its.update({at: value for at, value in values if value})
        origins = {
            at: Origin.of(row_ids[at].as_py(), row_versions[at].as_py(), text) for at, text in moved.items()
        }
        return Outcomes(
            handled=columns.outcomes,
            places=self.answers if columns.outcomes else self.places,
            queues=queues,
            row_versions=row_versions.cast(pa.int64()),
            row_ids=row_ids,
            ids=message_ids(told(columns.column(batch, "MessageId").cast(pa.string())), groups, row_ids),
            headers=headers,
            bodies=empty_for_null(columns.column(batch, "Body").cast(pa.binary())),
            as_received=columns.outcomes or self.columns.outcomes,
            times=pa.RecordBatch.from_arrays(
                [columns.column(batch, name).cast(TIMES.field(name).type) for name in TIMES.names],
                schema=TIMES,
            ),
            on_their_way=_TO in batch.schema.names,
            moved={at: origin for at, origin in origins.items() if origin.moves},
            stored=stored,
        )

    def _in_transit(self, groups: Sequence[Alike], outcomes: Outcomes) -> Iterator[tuple[int, Failure]]:
        """The rows that are on their way to another queue. They must be moved on, not handled."""
        for group in groups:
            if FORWARD_DESTINATION not in group.asked:
                continue
            wanted = group.asked[FORWARD_DESTINATION].to_pylist()
            for at, named in zip(group.positions.to_pylist(), wanted, strict=True):
                headers = parse_headers(outcomes.headers[at].as_py()) or {}
                to = in_transit_to({**headers, FORWARD_DESTINATION: named or ""})
                queue = outcomes.queue(at)
                if to is None or self._is_own(to, queue):
                    continue
                error = Unsendable(
                    at,
                    f"A row is a delayed message on its way to {to!r}, not one for the queue {queue!r}, so "
                    "it is not passed on; see why it cannot be moved there (is there such a queue, and may "
                    "this login insert into it?), set the option errorQueue, and such rows go there, or "
                    f"filter them by the header {FORWARD_DESTINATION}.",
                )
                yield at, replace(Failure.of(error), failed_for=to)

    def _is_own(self, to: str, queue: str) -> bool:
        """Whether an address means the queue. The case of letters does not count, as on most servers."""
        try:
            one, other = (self.places.received(each).table for each in (to, queue))
        except ConfigurationError:
            return False
        return (one.schema.casefold(), one.table.casefold()) == (
            other.schema.casefold(),
            other.table.casefold(),
        )

    def _undecided(
        self, batch: pa.RecordBatch, columns: FrameColumns, failures: Mapping[int, Failure]
    ) -> dict[int, Failure]:
        """The rows of which the frame does not say what became of them.

        :raises ConfigurationError: there are some, and the job has neither a handler nor a local queue.
        """
        if "Outgoing" not in columns.names:
            return {}
        silent = columns.column(batch, "Outgoing").is_null()
        left = [at for at in pc.indices_nonzero(silent).to_pylist() if at not in failures]
        if not left:
            return {}
        if not columns.outgoing:
            if self.options.queue is not None:
                return {}
            named = ", ".join(
                f"{name} {columns.column(batch, name)[left[0]]}" for name in ("RowVersion", "Id", "Queue")
            )
            raise ConfigurationError(
                f"A message has neither the header {STORED_FOR} nor {STORED_EVENT}, so it does not go to "
                "the other database; name a handler for such messages, or a queue of this database as "
                f"localQueue. It is the row with {named}."
            )
        return {
            at: Failure.of(Unsendable(
                at,
                "Outgoing and Failure of the message are both NULL, so it was not handled; give it an "
                "empty Outgoing where it sends nothing, or let each_message know the options by which "
                "addresses are read.",
            ))
            for at in left
        }  # fmt: skip

    def _sending(
        self,
        outcomes: Outcomes,
        batch: pa.RecordBatch,
        owners: Sequence[int],
        columns: FrameColumns,
        groups: Sequence[Alike] | None,
    ) -> Outcomes:
        """The outcomes with what they send. One that would send what cannot be sent has failed.

        :param batch: the rows of the frame, each of the received row in ``owners``.
        """
        sends = self._sends(outcomes, batch, owners, columns, groups)
        try:
            made = sends.composed(eager=outcomes.handled)
        except Unsendable:
            wrong = {sends.owner(at): error for at, error in sends.unsendable()}
            if self.options.error_queue is None:
                at, error = next(iter(wrong.items()))
                with sends.builder.telling_rows_apart(batch):
                    raise Unsendable(at, str(error)) from error
            outcomes = outcomes.failing({at: Failure.of(error) for at, error in wrong.items()})
            sends = self._sends(outcomes, batch, owners, columns, None)
            made = sends.composed(eager=outcomes.handled)
        return replace(outcomes, sends=made, owners=sends.owner_list)

    def _sends(
        self,
        outcomes: Outcomes,
        batch: pa.RecordBatch,
        owning: Sequence[int],
        columns: FrameColumns,
        groups: Sequence[Alike] | None,
    ) -> _Sends:
        """The rows of the messages out, of those that have not failed."""
        everywhere = pa.array(owning, pa.int32())
        sound = pc.invert(pc.is_in(everywhere, value_set=pa.array(list(outcomes.failed), pa.int32())))
        places = outcomes.places
        if "Outgoing" not in columns.names:
            left = ("Failure", "Recoverable", *TIMES.names)
            names = {name: own for name, own in columns.names.items() if name not in left}
            builder = self._builder(FrameColumns(names=names), places)
            if not outcomes.failed:
                return _Sends(builder, batch, everywhere, None, groups)
            return _Sends(builder, batch.filter(sound), everywhere.filter(sound), None)
        if not columns.outgoing:
            return _Sends(self._builder(FrameColumns(names={}), places), None, everywhere[:0], None)
        lists = columns.column(batch, "Outgoing")
        if outcomes.failed or lists.null_count:
            lists = pc.if_else(sound, lists, None)
        its, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
        if its.null_count:
            its, owners = its.filter(its.is_valid()), owners.filter(its.is_valid())
        rows = pa.RecordBatch.from_arrays(its.flatten(), names=[each.name for each in its.type])
        new_ids = _NewIds(outcomes, owners.to_pylist())
        builder = self._builder(FrameColumns(names=columns.outgoing), places)
        return _Sends(builder, rows, owners, new_ids)

    def _builder(self, columns: FrameColumns, places: Places) -> MessageBuilder:
        options = replace(places.away, error_queue=None)
        return MessageBuilder(columns=columns, options=options, places=places, untyped=self.untyped)

    def _failures(self, column: pa.Array) -> dict[int, Failure]:
        """The failures that the frame tells of, by position."""
        fields = self.columns.failure
        if not fields:
            return {}
        told_ = {at: each for at, each in enumerate(column.to_pylist()) if each is not None}
        if pa.types.is_string(column.type) or pa.types.is_large_string(
            column.type
        ):  # JSON, see spark/batch_frame.py
            return {at: _failure(_of_json(text)) for at, text in told_.items()}
        return {at: _failure({name: each[own] for name, own in fields.items()}) for at, each in told_.items()}


def builder_of(
    columns: FrameColumns, places: Places, answers: Places | None = None
) -> MessageBuilder | OutcomeBuilder:
    """What makes messages or outcomes of the rows of a frame; parameters as of :class:`OutcomeBuilder`.

    A row that tells which received row it was is passed on or has an outcome. All others are plain messages.
    """
    if columns.tells_rows:
        return OutcomeBuilder(columns=columns, places=places, answers=answers or places)
    return MessageBuilder(columns=columns, options=places.away, places=places)


@dataclass(frozen=True)
class _Sends:
    """Rows of messages out, each with the position of the received row that sends it."""

    builder: MessageBuilder
    rows: pa.RecordBatch | None
    owners: pa.Array
    new_ids: NewIds | None
    groups: Sequence[Alike] | None = None

    @property
    def owner_list(self) -> Sequence[int]:
        return self.owners.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def owner(self, position: int) -> int:
        return self.owners[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def composed(self, *, eager: bool) -> Composed | None:
        """The messages.

        :param eager: whether their rows are made at once, because one that cannot be made fails its received
            row.
        :raises Unsendable: one cannot be made.
        """
        if self.rows is None or not self.rows.num_rows:
            return None
        made = self.builder.composed(self.rows, self.new_ids, self.groups)
        if eager or made.delayed:
            made.rows(range(len(made)))
        return made

    def unsendable(self) -> Iterator[tuple[int, Unsendable]]:
        """The messages that cannot be sent, each tried by itself: the position of each, and why."""
        rows = self.rows
        for at in range(0 if rows is None else rows.num_rows):
            try:
                one = rows.slice(at, 1)  # type: ignore[union-attr] # there is one
                made = self.builder.composed(one, lambda each: pa.repeat("", len(each)))
                made.rows(range(len(made)))
            except Unsendable as error:
                yield at, error


class _NewIds:
    """Makes the ids of messages that have none."""

    def __init__(self, outcomes: Outcomes, owners: Sequence[int]) -> None:
        """:param owners: of each message the position of the row that sends it, in ascending order."""
        self._outcomes = outcomes
        self._owners = owners

    def __call__(self, nameless: Sequence[int]) -> pa.Array:
        """The ids of the messages at these positions, in their order."""
        owners = [self._owners[at] for at in nameless]
        firsts = dict(zip(reversed(self._owners), reversed(range(len(self._owners))), strict=True))
        places = [at - firsts[owner] for at, owner in zip(nameless, owners, strict=True)]
        ids = self._outcomes.ids.take(pa.array(owners, pa.int32())).to_pylist()
        rows = [self._outcomes.origin(owner).row_id for owner in owners]
        return derived_ids(ids, rows, places)


@dataclass
class _Once:
    """Sees to it that no received row comes twice in a task: the second one's outcome would never go out."""

    _seen: dict[str, list[pa.Array]] = field(default_factory=dict)

    def check(self, queues: pa.Array, row_versions: pa.Array, row_ids: pa.Array, *, once: bool) -> None:
        """:raises ConfigurationError: a row does not tell which it was; if ``once``, two tell the same."""
        for name, column in zip(RECEIVED_ROW, (queues, row_versions, row_ids), strict=True):
            if column.null_count:
                raise ConfigurationError(
                    f"A row has no {name}, so it does not tell which received message it is the outcome of; "
                    "keep the columns of the source, and give Queue the address of its queue."
                )
        for queue in pc.unique(queues).to_pylist() if once else ():
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
            f"The received message with RowVersion {row_version} of {queue} has two rows, but it has one "
            "outcome; put all that it sends into one row, as elements of the column Outgoing."
        )


def _copies(batch: pa.RecordBatch, columns: FrameColumns) -> tuple[pa.Array, Sequence[int], pa.Array] | None:
    """Which rows of a frame are copies of one received row; None where there are none.

    :returns: the order in which copies stand together, of each row in that order the number of its received
        row, and the positions there of the first copies.
    """
    versions = columns.column(batch, "RowVersion")
    if len(pc.unique(versions)) == len(versions):
        return None
    told_ = zip(*(columns.column(batch, name).to_pylist() for name in RECEIVED_ROW), strict=True)
    numbers: dict[object, int] = {}
    own = [numbers.setdefault(each, len(numbers)) for each in told_]
    order = pc.sort_indices(pa.array(own, pa.int32()))
    owners = sorted(own)
    firsts = [at for at, number in enumerate(owners) if not at or owners[at - 1] != number]
    return order, owners, pa.array(firsts, pa.int32())


def told_or(values: pa.Array) -> pa.Array:
    """The values; of texts, NULL in place of each empty one."""
    return told(values) if pa.types.is_string(values.type) else values


def _read(name: str, groups: Sequence[Alike]) -> pa.Array:
    """A header's value of each row; NULL where a row has none, or an empty one."""
    values = [group.asked.get(name, pa.nulls(len(group.positions), pa.string())) for group in groups]
    return told(in_order([group.positions for group in groups], values))


def _overlap(one: pa.Array, other: pa.Array) -> bool:
    first, second = (pc.min_max(each).as_py() for each in (one, other))
    return bool(first["min"] <= second["max"] and second["min"] <= first["max"])


def _told_delay(delay: object) -> timedelta | None:
    """A delay of a retry. One that ends too far away is none: the message goes to the error queue at once."""
    return max(delay, timedelta()) if isinstance(delay, timedelta) and delay < LONGEST_DELAY else None


def _of_json(text: str) -> dict[str, object]:
    """A failure as the JSON of the column tells it, with its times as a struct would have them."""
    told_: dict[str, object] = json.loads(text)
    if isinstance(time := told_.pop("TimeOfFailure", None), int):
        with contextlib.suppress(OverflowError):  # it is after the year 9999
            told_["TimeOfFailure"] = _EPOCH + timedelta(microseconds=time)
    if isinstance(delay := told_.get("RetryAfter"), int):
        told_["RetryAfter"] = timedelta(microseconds=delay)
    return told_


def _failure(told_: Mapping[str, object]) -> Failure:
    """A failure as the column tells it."""
    texts = {name: None if value is None else str(value) for name, value in told_.items()}
    time = told_.get("TimeOfFailure")
    data = dict(told_.get("Data") or {})  # type: ignore[call-overload] # a map of texts
    return Failure(
        exception_type=texts.get("ExceptionType") or "Failure",
        message=texts.get("Message") or "",
        stack_trace=texts.get("StackTrace") or "",
        inner_exception_type=texts.get("InnerExceptionType"),
        help_link=texts.get("HelpLink"),
        source=texts.get("Source"),
        data={name: value for name, value in data.items() if value is not None},
        time=None if time is None else time.astimezone(UTC),  # type: ignore[attr-defined] # a timestamp
        retry_after=_told_delay(told_.get("RetryAfter")),
        error_queue=texts.get("ErrorQueue") or None,
    )
