"""Tells the messages of a store-and-forward queue apart: those that go to the other database, and those that stay in this one.

Format: the headers ``$.store-and-forward.destination`` and ``$.store-and-forward.eventtype`` of the .NET transport's store-and-forward
sample. They end with this hop; all other headers and the body go on as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.message import STORED_EVENT, STORED_FOR
from sqlqueue_spark.send.column_values import among, in_order, told
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.header_shapes import Alike
from sqlqueue_spark.send.message_builder import MessageBuilder
from sqlqueue_spark.send.outcome_builder import OutcomeBuilder
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.send.received_in_transit import in_transit

#: The columns that are added: where a message goes in the other database, or as an event of which type.
_TO, _EVENT = "store-and-forward to", "store-and-forward event"
#: What the column of a frame is called that the messages for the other database are made of.
STORED_COLUMNS = {"Destination": _TO, "EventType": _EVENT}


@dataclass(frozen=True)
class Stored:
    """Messages for the other database, each of one received row.

    :param received: gives the rows at some positions, which are in ascending order, as they were received.
    """

    sends: Composed
    received: Callable[[Sequence[int]], Outcomes]


@dataclass(frozen=True, kw_only=True)
class StoredBuilder:
    """Turns record batches into messages for the other database and outcomes in this one; opens no connection.

    :param forward: makes the messages for the other database, and ``local`` the outcomes of all other rows.
    """

    forward: MessageBuilder
    local: OutcomeBuilder

    def compose(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Stored | Outcomes]:
        """Make what a task sends, chunk by chunk; a chunk is one transaction in each database.

        :raises ConfigurationError: a row goes nowhere: it has none of the two headers, and nothing is said of such rows.
        """
        for chunk in self.local.chunks(batches):
            yield from self._of(chunk)

    def _of(self, batch: pa.RecordBatch) -> Iterator[Stored | Outcomes]:
        groups = self.local.grouped(batch)
        to = _read(STORED_FOR, groups)
        # A message that names a queue goes there, and not to those that have subscribed.
        event = pc.if_else(to.is_null(), _read(STORED_EVENT, groups), pa.scalar(None, pa.string()))
        batch = batch.append_column(_TO, to).append_column(_EVENT, event)
        stays = pc.and_(to.is_null(), event.is_null())
        queues = batch.column(self.local.columns.names["Queue"])
        # Nobody has moved these on, so they fail.
        moving = [at for at, *_ in in_transit(groups, queues, self.local.options)]
        if moving:
            stays = pc.or_(stays, among(moving, len(to)))
        if not pc.any(stays).as_py():
            yield from self._stored(batch, groups)
            return
        goes = pc.invert(stays)
        if pc.any(goes).as_py():
            its = batch.filter(goes)
            yield from self._stored(its, self.local.grouped(its))
        others = batch.filter(stays)
        self._check_local(others)
        yield self.local.outcomes(others)

    def _stored(self, batch: pa.RecordBatch, groups: Sequence[Alike]) -> Iterator[Stored | Outcomes]:
        """The messages of rows that go to the other database. One that cannot be made has failed, and the rest goes on."""

        def received(positions: Sequence[int]) -> Outcomes:
            its = batch.take(pa.array(positions, pa.int32()))
            return replace(self.local.received(its, self.local.grouped(its)), by_id=False)

        while True:
            try:
                yield Stored(self.forward.composed(batch, groups=groups), received)
            except Unsendable as error:
                wrong = received([error.position])
                yield wrong.failing({0: Failure.of(error)}, self.local.destinations)
                left = [at for at in range(batch.num_rows) if at != error.position]
                if not left:
                    return
                batch = batch.take(pa.array(left, pa.int32()))
                groups = self.local.grouped(batch)
            else:
                return

    def _check_local(self, rows: pa.RecordBatch) -> None:
        columns = self.local.columns
        if columns.outgoing or self.local.options.queue is not None:
            return
        readable = [group for group in self.local.grouped(rows) if not group.poison]
        if not readable:
            return
        at = readable[0].positions[0].as_py()
        named = ", ".join(
            f"{name} {rows.column(columns.names[name])[at].as_py()}" for name in ("RowVersion", "Id", "Queue")
        )
        raise ConfigurationError(
            f"A message has neither the header {STORED_FOR} nor {STORED_EVENT}, so it does not go to the other database; name a handler for "
            f"such messages, or a queue of this database as localQueue. It is the row with {named}."
        )


def _read(name: str, groups: Sequence[Alike]) -> pa.Array:
    """A header's value of each row; NULL where a row has none, or an empty one."""
    values = [group.asked.get(name, pa.nulls(len(group.positions), pa.string())) for group in groups]
    return told(in_order([group.positions for group in groups], values))
