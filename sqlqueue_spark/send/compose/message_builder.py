"""Makes messages of a frame's rows: reads and completes their headers, and writes them as .NET senders do.

Formats: the headers of NServiceBus. A header that is there is never overwritten.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.body import content_types
from sqlqueue_spark.messages.failure_headers import poison
from sqlqueue_spark.messages.header_json import format_member
from sqlqueue_spark.messages.host import machine
from sqlqueue_spark.messages.message import (
    CONTROL_MESSAGE,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    FORWARD_DESTINATION,
    MESSAGE_ID,
    ONE_HOP,
    STORED_EVENT,
    STORED_FOR,
    TIME_SENT,
    format_time,
)
from sqlqueue_spark.messages.outgoing import (
    COLUMN_BYTES,
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    REPLY_TO_ADDRESS,
    TIME_TO_BE_RECEIVED,
    format_time_span,
    lasting,
    milliseconds,
    new_id_texts,
    parse_time_span,
)
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.chunk import Chunk, Composed, chunks
from sqlqueue_spark.send.compose.column_values import (
    among,
    failures_of,
    in_order,
    mapped,
    mapped_once,
    refuse,
    told,
)
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.events import check_events, typeless
from sqlqueue_spark.send.compose.frame_columns import TYPES, FrameColumns
from sqlqueue_spark.send.compose.header_shapes import Alike, alike, asked_column, members, poisoned
from sqlqueue_spark.send.compose.message_ids import NewIds, completed, ids_of_rows, message_ids

#: The columns of a frame that are read as they are, each with its type.
_READ = {
    name: {
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "interval day to second": pa.duration("us"),
    }[types[0]]
    for name, types in TYPES.items()
    if name not in ("Headers", "Queue", "RowVersion")
}
#: Stands for the destination of an event until it is known who has subscribed to it.
SUBSCRIBERS = ""


@dataclass(frozen=True, kw_only=True)
class MessageBuilder:
    """Turns record batches into messages; opens no connection.

    It works column by column, and in C for most rows. At 150,000 messages a second a core has 7 µs for each
    message, and Spark and the database need their part of that. A row that is touched in Python takes as much
    by itself.
    """

    #: The frame's, and the options of the database in which destinations lie.
    columns: FrameColumns
    options: SinkOptions
    #: Tells how an address is written in full.
    places: Places
    #: The headers of one hop that a new message keeps: it may be one for a store-and-forward queue.
    kept: frozenset[str] = frozenset({STORED_FOR, STORED_EVENT})

    def compose(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Make the messages of a task, in their order, chunk by chunk; a chunk goes out in one transaction.

        :raises ConfigurationError: a row cannot be sent as it is; the text says which row and why.
        """
        for chunk in chunks(batches, Target.of(self.options).dialect.written):
            with self.columns.telling_rows_apart(chunk):
                made = self.composed(chunk)
            make = self.columns.telling_rows_apart(chunk)(made.sends.make)
            yield replace(made, sends=replace(made.sends, make=make))

    def composed(
        self, batch: pa.RecordBatch, new_ids: NewIds | None = None, groups: Sequence[Alike] | None = None
    ) -> Chunk:
        """Make the messages of one chunk.

        :param new_ids: makes the ids of the messages that have none.
        :param groups: the rows by the headers that they have, where they are grouped already.
        :raises Unsendable: a row cannot be sent as it is.
        """
        given = {name: self.columns.column(batch, name).cast(type_) for name, type_ in _READ.items()}
        may_fail = self.columns.received and self.options.error_queue is not None
        if groups is None:
            groups = alike(
                self.columns.column(batch, "Headers"),
                received=self.columns.received,
                lost=ONE_HOP if self.columns.received else ONE_HOP - self.kept,
            )
        unreadable = poisoned(groups)
        if unreadable and not may_fail:
            raise _unreadable(unreadable, received=self.columns.received)
        failed = {at: poison(text) for at, text in unreadable.items()}
        own, nothing = told(given["Id"]), pa.nulls(len(batch), pa.string())
        received, to_send = (own, nothing) if self.columns.received else (nothing, own)
        ids = message_ids(told(given["MessageId"]), groups, received)
        if ids.null_count:
            ids = completed(ids, new_ids, needed=self.options.uses_outbox)
        delayed = pc.or_(given["DeliverAt"].is_valid(), given["DelayDeliveryFor"].is_valid())
        destinations = pc.coalesce(told(given["Destination"]), pa.scalar(self.options.queue, pa.string()))
        events = self._events(given, groups, delayed, failed)
        published = events.is_valid()
        destinations = pc.if_else(published, SUBSCRIBERS, destinations)
        if failed:  # a transform that goes by headers knows no destination for them
            its = among(list(failed), len(batch))
            destinations = pc.if_else(its, self.options.error_queue, destinations)
        nowhere = "A row's Destination is NULL and there is no option queue; give one, or filter these rows."
        refuse(destinations.is_null(), lambda _: nowhere)
        if (without := typeless(events)) is not None:
            if not may_fail:
                raise without
            failed |= failures_of(without)
        made = {"MessageId": ids, "Destination": destinations, "Id": ids_of_rows(to_send)}
        complete = pa.RecordBatch.from_pydict({**given, **made, "published": published})
        sends = Composed(
            id_column=ids,
            addresses=destinations,
            make=functools.cache(lambda: self._rows(complete, groups)),
            events=events,
            brought_ids=to_send.null_count < len(to_send),
            size=batch.nbytes,
            delayed=pc.any(delayed).as_py(),
            untyped=sum(self._untyped(group, published) for group in groups),
        )
        return Chunk(places=self.places, sends=sends, owners=range(len(ids)), failed=failed)

    def _rows(self, given: pa.RecordBatch, groups: Sequence[Alike]) -> pa.RecordBatch:
        """The rows of all messages, with the headers that they lack added."""
        standard = self._standard()
        made, wrong = [], list[Unsendable]()
        for group in groups:
            its = given if len(group.positions) == len(given) else given.take(group.positions)
            if group.poison:
                _, *columns = lasting(group.texts.to_pylist(), its["Body"]).columns
                made.append(pa.RecordBatch.from_arrays(columns, OUTGOING.names[1:]))
                continue
            try:
                made.append(self._alike(group, its, standard))
            except Unsendable as error:  # the other groups may have more of its kind
                wrong.append(error)
        if wrong:
            cause = wrong[0].__cause__
            texts = (each.texts.items() for each in wrong if type(each.__cause__) is type(cause))
            raise Unsendable(dict(chain.from_iterable(texts))) from cause
        rows = in_order([group.positions for group in groups], made)
        return pa.RecordBatch.from_arrays([given["Id"], *rows.columns], schema=OUTGOING)

    def _alike(self, group: Alike, given: pa.RecordBatch, standard: Mapping[str, str]) -> pa.RecordBatch:
        """The columns of :data:`OUTGOING` but for the first, for rows that lack the same headers.

        :param standard: the headers that are the same for all messages that are no events.
        """
        names, ids = group.names, given["MessageId"]
        of_events = self._of_events(given)
        own = {name: values for name, values in of_events.items() if name not in names}
        standard = {name: each for name, each in standard.items() if name not in of_events}
        body = given["Body"]
        reply_to = told(given["ReplyToAddress"])
        related = pc.coalesce(told(given["CorrelationId"]), ids)
        ttl = given["TimeToBeReceived"]
        if MESSAGE_ID not in names:
            own[MESSAGE_ID] = ids
        if CORRELATION_ID in names:
            related = pc.coalesce(told(group.asked[CORRELATION_ID]), related)
        else:
            own[CORRELATION_ID] = related
        if CONVERSATION_ID not in names:
            own[CONVERSATION_ID] = new_id_texts(len(ids))
        if CONTENT_TYPE not in names:
            own[CONTENT_TYPE] = content_types(body)
        if REPLY_TO_ADDRESS in names:
            reply_to = pc.coalesce(told(group.asked[REPLY_TO_ADDRESS]), reply_to)
        elif reply_to.null_count < len(ids):
            own[REPLY_TO_ADDRESS] = reply_to = self._full_addresses(reply_to, group.positions)
        if TIME_TO_BE_RECEIVED not in names:
            if ttl.null_count < len(ids):
                own[TIME_TO_BE_RECEIVED] = mapped(format_time_span, ttl, pa.string())
        elif "Expires" not in self.columns.names:
            ttl = pc.coalesce(ttl, mapped(parse_time_span, group.value(TIME_TO_BE_RECEIVED), ttl.type))
        own |= self._delayed(group, given)
        headers = group.completed(standard, [members(name, values) for name, values in own.items()])
        lasts = mapped(milliseconds, ttl, pa.int64())
        why = "A row's TimeToBeReceived is not above zero, so it is expired; give more, or NULL for never."
        refuse(pc.less_equal(lasts, 0), lambda _: why, group.positions)
        columns = [
            headers,
            body,
            lasts,
            _fitting(related),
            _fitting(reply_to),
            given["Expires"],
            pc.divide(given["DelayDeliveryFor"].cast(pa.int64()), 1_000),
            given["DeliverAt"],
        ]
        return pa.RecordBatch.from_arrays(columns, OUTGOING.names[1:])

    def _events(
        self,
        given: Mapping[str, pa.Array],
        groups: Sequence[Alike],
        delayed: pa.Array,
        failed: Collection[int],
    ) -> pa.Array:
        """What those of the messages are published as that are events (:mod:`.events`)."""
        none = pa.nulls(len(delayed), pa.string())
        if not (self.options.publish or self.columns.events):
            return none
        event_types = told(given["EventType"])
        published = pc.or_(event_types.is_valid(), self.options.publish)
        if failed:
            published = pc.and_not(published, among(list(failed), len(published)))
        if not pc.any(published).as_py():
            return none
        check_events(published, event_types, told(given["Destination"]), delayed)
        enclosed = asked_column(ENCLOSED_MESSAGE_TYPES, groups)
        enclosed = pc.coalesce(enclosed, event_types, self._message_type)
        types = pc.binary_join_element_wise(pc.fill_null(event_types, ""), pc.fill_null(enclosed, ""), ";")
        return pc.if_else(published, types, none)

    def _of_events(self, given: pa.RecordBatch) -> dict[str, pa.Array]:
        """The headers by which events differ from other messages; none where no message is an event."""
        published = given["published"]
        if not pc.any(published).as_py():
            return {}
        types = pc.coalesce(pc.if_else(published, told(given["EventType"]), None), self._message_type)
        return {MESSAGE_INTENT: pc.if_else(published, "Publish", "Send"), ENCLOSED_MESSAGE_TYPES: types}

    @property
    def _message_type(self) -> pa.Scalar:
        return pa.scalar(self.options.message_type, pa.string())

    def _delayed(self, group: Alike, given: pa.RecordBatch) -> dict[str, pa.Array]:
        """The headers of messages that wait until they are due: when that is, and where they go then."""
        delays = given["DelayDeliveryFor"]
        if given["DeliverAt"].null_count == delays.null_count == len(delays):
            return {}
        counted = pc.add(pa.scalar(datetime.now(UTC), given["DeliverAt"].type), delays)
        due = pc.coalesce(given["DeliverAt"], counted)
        why = (
            "A row has a time of delivery that no table can hold; give a time between the years 1753 "
            "and 9999 as DeliverAt, or as the end of DelayDeliveryFor."
        )
        first, last = (pa.scalar(datetime(year, 1, 1, tzinfo=UTC), due.type) for year in (1753, 9999))
        refuse(pc.or_(pc.less(due, first), pc.greater_equal(due, last)), lambda _: why, group.positions)
        to = pc.if_else(due.is_valid(), given["Destination"], pa.scalar(None, pa.string()))
        own = {FORWARD_DESTINATION: self._full_addresses(to, group.positions, kept=True)}
        if DELIVER_AT not in group.names:
            own[DELIVER_AT] = mapped_once(format_time, due)  # most messages are due at one of a few times
        return own

    def _untyped(self, group: Alike, published: pa.Array) -> int:
        """How many rows lack a type that they need; what endpoints exchange among themselves needs none."""
        typed = ENCLOSED_MESSAGE_TYPES in group.names or self.options.message_type is not None
        if typed or group.poison:
            return 0
        needless = pc.match_substring(group.texts, f'"{CONTROL_MESSAGE}"')
        needless = pc.or_(needless, published.take(group.positions))
        return len(needless) - (pc.sum(needless).as_py() or 0)

    def _full_addresses(self, addresses: pa.Array, positions: pa.Array, *, kept: bool = False) -> pa.Array:
        """The addresses as the transport writes them. One of a received row stays where it cannot be read.

        :param kept: it stays as it is in any case, because its message fails.
        """
        unread: dict[str, ConfigurationError] = {}

        def full(address: str) -> str:
            try:
                return self.places.full_address(self.places.destination(address))
            except ConfigurationError as error:
                unread[address] = error
                return address

        written = mapped_once(full, addresses)
        if unread and not (kept or self.columns.received):
            raise Unsendable({
                positions[at].as_py(): f"The ReplyToAddress of a row cannot be read: {unread[address]}"
                for at, address in enumerate(addresses.to_pylist())
                if address in unread
            }) from next(iter(unread.values()))  # fmt: skip
        return written

    def _standard(self) -> dict[str, str]:
        """The headers that all messages of a chunk get where they lack them, as members of the JSON."""
        standard = {
            MESSAGE_INTENT: "Send",
            ORIGINATING_MACHINE: machine(),
            ORIGINATING_ENDPOINT: self.options.sender or "sqlqueue",
            TIME_SENT: format_time(datetime.now(UTC)),
        }
        if self.options.message_type is not None:
            standard[ENCLOSED_MESSAGE_TYPES] = self.options.message_type
        return {name: format_member(name, value) for name, value in standard.items()}


def _unreadable(headers: Mapping[int, str], *, received: bool) -> Unsendable:
    remedy = (
        "set the option errorQueue, and these rows go there, or filter them."
        if received
        else "filter these rows, or give them headers of their own."
    )
    what = "The headers of a row are not a JSON object of strings"
    return Unsendable({at: f"{what}: {text[:80]!r}; {remedy}" for at, text in sorted(headers.items())})


def _fitting(values: pa.Array) -> pa.Array:
    """The values that fit into the columns CorrelationId and ReplyToAddress; NULL for those that do not."""
    short = pc.less_equal(pc.binary_length(values), COLUMN_BYTES)
    fits = pc.and_not(short, pc.match_substring(values, "\0"))
    return pc.if_else(fits, values, pa.scalar(None, pa.string()))
