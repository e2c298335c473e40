"""Makes outcomes of a frame's rows, one of each received row: the messages that it sends, or its failure.

A frame with ``Outgoing`` or ``Failure`` has outcomes of rows that were handled. Rows of any other frame are
passed on, and so are those of either frame that are only stored here for another database. A row that cannot
be read, is on its way to another queue, or would send what cannot be sent, has failed.

Format: the headers ``$.store-and-forward.destination`` and ``$.store-and-forward.eventtype`` of the .NET
transport's store-and-forward sample. They end with this hop.
"""

from __future__ import annotations

import bisect
import functools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.addresses import Way
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.body import empty_for_null
from sqlqueue_spark.messages.failure_headers import Failure, poison
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, ORIGIN, STORED, STORED_EVENT, STORED_FOR
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.messages.outgoing import derived_ids
from sqlqueue_spark.messages.transit import as_stored, in_transit_to
from sqlqueue_spark.send.compose.chunk import Chunk, chunks, nothing
from sqlqueue_spark.send.compose.column_values import failures_of, grouped, moment, told
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import RECEIVED_ROW, TYPES, FrameColumns
from sqlqueue_spark.send.compose.header_shapes import Alike, alike, asked, asked_column, in_texts, poisoned
from sqlqueue_spark.send.compose.message_builder import MessageBuilder
from sqlqueue_spark.send.compose.message_ids import message_ids
from sqlqueue_spark.send.compose.received import ROWS, Received
from sqlqueue_spark.tables.delayed import LONGEST_DELAY

#: The columns that are added to rows that are stored here: where a message goes, or the event that it is.
_TO, _EVENT = "store-and-forward to", "store-and-forward event"


@dataclass(frozen=True, kw_only=True)
class OutcomeBuilder:
    """Turns record batches into outcomes; opens no connection.

    :param places: where the messages of rows go that are passed on, and ``answers`` those of rows that are
        handled.
    :param stored_of: the columns of the frame, where these are its rows that were only stored in their queue
        for another one.
    """

    columns: FrameColumns
    places: Places
    answers: Places
    stored_of: FrameColumns | None = None

    def compose(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Make the outcomes of a task, in order, chunk by chunk; a chunk is one transaction in each database.

        :raises ConfigurationError: a row does not tell which received row it is, or two rows tell the same;
            or a row cannot be sent as it is, and there is no error queue.
        """
        seen: dict[str, set[int]] = {}
        written = self.places.at_home.dialect.written
        for chunk in chunks(map(self._in_texts, batches), written, self._messages_up_to):
            queues, row_versions, _ = _told_rows(self.columns, chunk)
            if self.columns.outcomes:
                _check_once(queues, row_versions, seen)
            yield from self._of(chunk)

    def _in_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its headers as JSON, where they are maps."""
        headers = self.columns.column(batch, "Headers")
        if not pa.types.is_map(headers.type):
            return batch
        own = self.columns.names["Headers"]
        return batch.set_column(batch.schema.get_field_index(own), own, in_texts(headers))

    def _messages_up_to(self, batch: pa.RecordBatch) -> Sequence[int]:
        if not self.columns.outgoing:
            return range(1, batch.num_rows + 1)
        lengths = pc.fill_null(pc.list_value_length(self.columns.column(batch, "Outgoing")), 0)
        least_one = pc.max_element_wise(lengths.cast(pa.int64()), 1)
        return pc.cumulative_sum(least_one).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def _of(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        batch, groups = self._with_ways(batch, self._grouped(batch))
        if not any(STORED_FOR in each.asked or STORED_EVENT in each.asked for each in groups):
            yield self.composed(batch, groups)
            return
        to = asked_column(STORED_FOR, groups)
        # A message that names a queue goes there, and not to those that have subscribed.
        event = pc.if_else(to.is_null(), asked_column(STORED_EVENT, groups), pa.scalar(None, pa.string()))
        stored = pc.or_(to.is_valid(), event.is_valid())
        goes = batch.append_column(_TO, to).append_column(_EVENT, event).filter(stored)
        stays = batch.filter(pc.invert(stored))
        if goes.num_rows:
            # Without the columns of outcomes: these rows are passed on as they were received.
            names = {name: own for name, own in self.columns.names.items() if name in TYPES}
            columns = FrameColumns(names={**names, "Destination": _TO, "EventType": _EVENT})
            away = replace(self, columns=columns, stored_of=self.columns)
            yield away.composed(goes, self._grouped(goes))
        if stays.num_rows:
            yield self.composed(stays, self._grouped(stays))

    def _with_ways(self, batch: pa.RecordBatch, groups: list[Alike]) -> tuple[pa.RecordBatch, list[Alike]]:
        """The batch, in which a row in transit to another database is one that is stored here for it."""
        if not (away := [at for at, _, way in self._in_transit(batch, groups) if way == "away"]):
            return batch, groups
        texts = self.columns.column(batch, "Headers").to_pylist()
        for at in away:
            texts[at] = as_stored(texts[at])
        own = self.columns.names["Headers"]
        batch = batch.set_column(batch.schema.get_field_index(own), own, pa.array(texts, pa.string()))
        return batch, self._grouped(batch)

    def _grouped(self, batch: pa.RecordBatch) -> list[Alike]:
        return alike(self.columns.column(batch, "Headers"), received=True)

    def composed(self, batch: pa.RecordBatch, groups: Sequence[Alike]) -> Chunk:
        """Make one chunk of rows, which are grouped by the headers that they have."""
        owners: Sequence[int] = range(batch.num_rows)
        rows = batch
        if not self.columns.outcomes and (copies := _copies(batch, self.columns)) is not None:
            order, owners, firsts = copies
            batch = batch.take(order)
            rows = batch.take(firsts)
            groups = self._grouped(rows)
        with self.columns.telling_rows_apart(rows):
            received = self._received(rows, groups)
            chunk = Chunk(
                places=self.answers if self.columns.outcomes else self.places,
                sends=nothing(),
                rows=received,
                owners=(),
                failed=self._failing(rows, groups, received),
            )
            if "Outgoing" in self.columns.names and not self.columns.outgoing:  # it is NULL in all rows
                return chunk
            return self._sending(chunk, batch, owners, groups if rows is batch else None)

    def _failing(
        self, batch: pa.RecordBatch, groups: Sequence[Alike], received: Received
    ) -> dict[int, Failure]:
        """Which of the received rows have failed.

        :raises Unsendable: one has, and there is no error queue.
        """
        moving = {
            at: _on_its_way(at, to, received.queue(at)) for at, to, _ in self._in_transit(batch, groups)
        }
        failing = {
            **self._failures(self.columns.column(batch, "Failure")),
            **moving,
            **{at: poison(text) for at, text in poisoned(groups).items()},
        }
        failing |= self._undecided(batch, failing)
        if failing and self.places.home.error_queue is None:
            at = min(failing)
            remedy = " Set the option errorQueue, and these rows go there, or filter them."
            raise Unsendable({at: failing[at].message + ("" if at in moving else remedy)})
        return failing

    def _received(self, batch: pa.RecordBatch, groups: Sequence[Alike]) -> Received:
        columns = self.columns
        frame = {each.name: columns.column(batch, each.name).cast(each.type) for each in ROWS}
        frame["MessageId"] = _ids(told(frame["MessageId"]), groups, frame["Id"])
        frame["Body"] = empty_for_null(frame["Body"])
        origins = {
            at: Origin.of(frame["Id"][at].as_py(), frame["RowVersion"][at].as_py(), text)
            for at, text in asked(ORIGIN, groups).items()
        }
        return Received(
            frame=pa.RecordBatch.from_pydict(frame, ROWS),
            handled=columns.outcomes,
            on_their_way=self.stored_of is not None,
            stores=(self.stored_of or columns).outcomes,
            moved={at: origin for at, origin in origins.items() if origin.moves},
            stored={} if self.stored_of is None else asked(STORED, groups),
        )

    def _in_transit(self, batch: pa.RecordBatch, groups: Sequence[Alike]) -> Iterator[tuple[int, str, Way]]:
        """The rows on their way to another queue, and where they go. They must be moved on, not handled."""
        headers, queues = (self.columns.column(batch, name) for name in ("Headers", "Queue"))
        naming, database = self.places.naming, self.places.databases.get(self.places.at_home)
        for at in asked(FORWARD_DESTINATION, groups):
            to = in_transit_to(parse_headers(headers[at].as_py()))
            if to and (way := naming.way(to, queues[at].as_py(), database)) != "own":
                yield at, to, way

    def _undecided(self, batch: pa.RecordBatch, failing: Collection[int]) -> dict[int, Failure]:
        """The rows of which the frame does not say what became of them.

        :raises Unsendable: there are some, and the job has neither a handler nor a local queue.
        """
        if "Outgoing" not in self.columns.names:
            return {}
        silent = self.columns.column(batch, "Outgoing").is_null()
        left = [at for at in pc.indices_nonzero(silent).to_pylist() if at not in failing]
        if left and not self.columns.outgoing and self.places.home.queue is None:  # as of a job's transform
            why = (
                f"A message has neither the header {STORED_FOR} nor {STORED_EVENT}, so it does not go to "
                "the other database; name a handler for these messages, or a queue of this database as "
                "localQueue."
            )
            raise Unsendable({left[0]: why})
        why = (
            "Outgoing and Failure of the message are both NULL, so it was not handled; give it an empty "
            "Outgoing where it sends nothing, or let each_message know the options by which addresses are "
            "read."
        )
        return failures_of(Unsendable(dict.fromkeys(left, why))) if left else {}

    def _sending(
        self, chunk: Chunk, batch: pa.RecordBatch, owners: Sequence[int], groups: Sequence[Alike] | None
    ) -> Chunk:
        """The chunk with what its rows send. One that would send what cannot be sent has failed.

        :param batch: the rows of the frame, each of the received row in ``owners``.
        :raises Unsendable: one has failed, and there is no error queue.
        """
        outgoing, away = self.columns.outgoing, chunk.places.away
        # A row that was only stored says by itself whether it is an event.
        publish = away.publish and self.stored_of is None
        builder = MessageBuilder(
            columns=FrameColumns(names=outgoing or self.columns.names),
            options=replace(away, error_queue=None, publish=publish),
            places=chunk.places,
        )
        if outgoing:
            lists = self.columns.column(batch, "Outgoing")
            its, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
            if its.null_count:
                its, parents = its.filter(its.is_valid()), parents.filter(its.is_valid())
            batch = pa.RecordBatch.from_arrays(its.flatten(), names=[each.name for each in its.type])
            owners, groups = parents.to_pylist(), None
        assert chunk.rows is not None
        while True:
            if chunk.failed:
                senders = pa.array(owners, pa.int32())
                sound = pc.invert(pc.is_in(senders, value_set=pa.array(list(chunk.failed), pa.int32())))
                batch, owners, groups = batch.filter(sound), senders.filter(sound).to_pylist(), None
            if not owners:
                return chunk
            new_ids = functools.partial(_new_ids, chunk.rows, owners) if outgoing else None
            try:
                made = builder.composed(batch, new_ids, groups).sends
                if chunk.handled or made.delayed:  # a message that cannot be made fails its received row
                    made.rows(range(len(made)))
            except Unsendable as error:
                wrong = Unsendable({owners[at]: text for at, text in error.texts.items()})
                wrong.__cause__ = error.__cause__
                if self.places.home.error_queue is None:
                    raise wrong from error
                chunk = chunk.failing(failures_of(wrong))
            else:
                return replace(chunk, sends=made, owners=owners)

    def _failures(self, column: pa.Array) -> dict[int, Failure]:
        if not (fields := self.columns.failure):
            return {}
        told_ = {at: each for at, each in enumerate(column.to_pylist()) if each is not None}
        if pa.types.is_string(column.type):  # JSON, see spark/batch_frame.py
            return {at: _failure(_of_json(text)) for at, text in told_.items()}
        return {at: _failure({name: each[own] for name, own in fields.items()}) for at, each in told_.items()}


def _ids(own: pa.Array, groups: Sequence[Alike], row_ids: pa.Array) -> pa.Array:
    """The message id of each row: of its header where the column says another, so that the row fails."""
    try:
        return message_ids(own, groups, row_ids)
    except Unsendable:
        return message_ids(pa.nulls(len(own), pa.string()), groups, row_ids)


def _on_its_way(at: int, to: str, queue: str) -> Failure:
    why = (
        f"A row is a delayed message on its way to {to!r}, not one for the queue {queue!r}, so it is not "
        "passed on; see why it cannot be moved there (is there that queue, and may this login insert into "
        "it?), set the option errorQueue, and these rows go there, or filter them by the header "
        f"{FORWARD_DESTINATION}."
    )
    return replace(Failure.of(Unsendable({at: why})), failed_for=to)


def builder_of(
    columns: FrameColumns, places: Places, answers: Places | None = None
) -> MessageBuilder | OutcomeBuilder:
    """What makes messages or outcomes of the rows of a frame; parameters as of :class:`OutcomeBuilder`.

    A row that tells which received row it was is passed on or has an outcome. All others are plain messages.
    """
    if columns.tells_rows:
        return OutcomeBuilder(columns=columns, places=places, answers=answers or places)
    return MessageBuilder(columns=columns, options=places.away, places=places)


def _new_ids(received: Received, owners: Sequence[int], nameless: Sequence[int]) -> pa.Array:
    """Ids for the messages at these positions, in their order, which have none.

    :param owners: of each message the position of the row that sends it, in ascending order.
    """
    firsts = dict(zip(reversed(owners), reversed(range(len(owners))), strict=True))
    senders = [owners[at] for at in nameless]
    places = [at - firsts[sender] for at, sender in zip(nameless, senders, strict=True)]
    ids = received.frame["MessageId"].take(pa.array(senders, pa.int32())).to_pylist()
    return derived_ids(ids, [received.origin(at).row_id for at in senders], places)


def _check_once(queues: pa.Array, row_versions: pa.Array, seen: dict[str, set[int]]) -> None:
    """See to it that no received row comes twice in a task: the second one's outcome would never go out.

    :param seen: the rows of the chunks before, by queue; those of this chunk are added.
    """
    for queue, positions in grouped(queues):
        earlier = seen.setdefault(queue, set())
        for row_version in row_versions.take(positions).to_pylist():
            if row_version in earlier:
                raise ConfigurationError(
                    f"The received message with RowVersion {row_version} of {queue} has two rows, but it has "
                    "one outcome; put all that it sends into one row, as elements of the column Outgoing."
                )
            earlier.add(row_version)


def _told_rows(columns: FrameColumns, batch: pa.RecordBatch) -> list[pa.Array]:
    """Which received row each row of a frame was (:data:`RECEIVED_ROW`), which each must tell."""
    found = [columns.column(batch, name) for name in RECEIVED_ROW]
    for name, column in zip(RECEIVED_ROW, found, strict=True):
        if (told(column) if pa.types.is_string(column.type) else column).null_count:
            raise ConfigurationError(
                f"A row has no {name}, so it does not tell which received message it is the outcome of; "
                "keep the columns of the source, and give Queue the address of its queue."
            )
    return found


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
    firsts = [bisect.bisect_left(owners, number) for number in numbers.values()]
    return order, owners, pa.array(firsts, pa.int32())


def _of_json(text: str) -> dict[str, Any]:
    """A failure as the JSON of the column tells it, with its times as a struct would have them."""
    told_: dict[str, Any] = json.loads(text)
    told_["TimeOfFailure"] = moment(told_.get("TimeOfFailure"))
    if (delay := told_.get("RetryAfter")) is not None:
        told_["RetryAfter"] = timedelta(microseconds=delay)
    return told_


def _failure(told_: Mapping[str, Any]) -> Failure:
    delay = told_.get("RetryAfter")
    if delay is not None and delay >= LONGEST_DELAY:  # the message goes to the error queue at once
        delay = None
    return Failure(
        exception_type=told_.get("ExceptionType") or "Failure",
        message=told_.get("Message") or "",
        stack_trace=told_.get("StackTrace") or "",
        inner_exception_type=told_.get("InnerExceptionType"),
        help_link=told_.get("HelpLink"),
        source=told_.get("Source"),
        data={name: value for name, value in dict(told_.get("Data") or {}).items() if value is not None},
        time=told_.get("TimeOfFailure"),
        retry_after=None if delay is None else max(delay, timedelta()),
        error_queue=told_.get("ErrorQueue") or None,
    )
