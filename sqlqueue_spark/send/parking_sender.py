"""Sends messages of which some go to databases that are down: these wait, as the rows that they were received as, and hold nobody up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark.engines.connect import Connection, Reader, Target, open_reader
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.frame_columns import FrameColumns
from sqlqueue_spark.send.outbox_keys import OF_ORIGIN, keys_by_queue, origins
from sqlqueue_spark.send.outcome_builder import OutcomeBuilder
from sqlqueue_spark.send.outcomes import Outcomes
from sqlqueue_spark.send.parking import DatabaseDown
from sqlqueue_spark.send.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queues

_READ = pa.schema(
    [("Id", pa.string()), ("Headers", pa.string()), ("Body", pa.binary()), ("RowVersion", pa.int64())]
)
_QUEUE = pa.field("Queue", pa.string())


class ParkingSender(Sender):
    """A sender to several databases, in whose own one the messages were received.

    What is parked is the whole received row, once, whatever copies of it were to go where. When it comes back, all of them are made
    again, and the outboxes know those that have arrived.
    """

    def __init__(self, options: SinkOptions, destinations: Destinations, down: Mapping[Target, str]) -> None:
        """:param down: the databases that are known to be down, each with the name of the option that leads there."""
        super().__init__(options, destinations)
        self._own = Target.of(options)
        self._parking = self.parking(down)
        self._rows = ReceivedRows(options, destinations)

    def __exit__(self, *exception: object) -> None:
        self._rows.close()
        super().__exit__(*exception)

    def _sent(self, chunk: Composed, positions: Container[int] | None = None) -> Sent:
        away = self._away(chunk) if chunk.received is not None and self._parking.possible else {}
        if not away:
            return super()._sent(chunk, positions)
        before = (
            self._parking.parked_before(functools.partial(_origins, chunk.received))
            if positions is None
            else set()
        )
        left = [at for at in range(len(chunk)) if at not in before and (positions is None or at in positions)]
        done = Sent(repeated=len(before))
        while left:
            down = {
                at: name
                for target, its in away.items()
                if (name := self._parking.down.get(target))
                for at in its
            }
            for name in dict.fromkeys(down.values()):
                done += self._park(chunk, [at for at in left if down.get(at) == name], name)
            left = [at for at in left if at not in down]
            try:
                return done + (super()._sent(chunk.only(left)) if left else Sent())
            except DatabaseDown as lost:  # what has gone out meanwhile is known by its outbox
                if lost.target not in away:  # that of the error queue, without which nobody can go on
                    raise
                self._parking.note(lost, self._destinations.option_of(lost.target))
        return done

    def _away(self, chunk: Composed) -> dict[Target, list[int]]:
        """The messages that go to other databases, by database."""
        found: dict[Target, list[int]] = {}
        for address, positions in chunk.destinations():
            try:
                target, _ = self._destinations.where(address)
            except ConfigurationError:  # such messages fail
                continue
            if target != self._own and self._destinations.stored_for(address) is None:
                found.setdefault(target, []).extend(positions)
        return found

    def _park(self, chunk: Composed, positions: Sequence[int], database: str) -> Sent:
        """Park the received rows of the messages at these positions, each once."""
        if not positions or chunk.received is None:
            return Sent()
        its = chunk.received.take(pa.array(positions, pa.int32()))
        outcomes = self._rows.outcomes(self._connected(self._own), _distinct(its))
        return self._outcomes_sent(self._parking.parked(outcomes, range(len(outcomes)), database))

    def _connected(self, target: Target) -> Connection:
        try:
            return super()._connected(target)
        except ConnectionLost as error:
            if target == self._own or not self._parking.possible:
                raise
            raise DatabaseDown(target, error) from error


def _distinct(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each row once, in the order of the first ones."""
    told = pa.StructArray.from_arrays(rows.columns, rows.schema.names).to_pylist()
    first = {tuple(each.values()): at for at, each in reversed(list(enumerate(told)))}
    return rows.take(pa.array(sorted(first.values()), pa.int32()))


def _origins(rows: pa.RecordBatch, final: Callable[[str], str]) -> list[str]:
    """The outbox keys of the origins of these rows."""
    return keys_by_queue(rows["Queue"], origins(rows["Id"], rows["RowVersion"]), OF_ORIGIN, final)


class ReceivedRows:
    """Reads rows of queues of one database again as they were received: a frame may have changed their headers and bodies.

    Their batch is not settled, so they stand in their table, and the claim's locks hide nothing from a plain read. The connection opens
    when it is first needed.
    """

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        self._options = options
        names = [*_READ.names, _QUEUE.name]
        self._builder = OutcomeBuilder(
            columns=FrameColumns(names={name: name for name in names}),
            options=options,
            destinations=destinations,
        )
        self._reader: Reader | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def outcomes(self, connection: Connection, rows: pa.RecordBatch) -> Outcomes:
        """These rows, which send nothing and have not failed.

        :param connection: one to their database, with no open transaction.
        :param rows: the columns ``Queue``, ``RowVersion`` and ``Id``, each row once.
        :raises ClaimLost: a row is not there any more.
        """
        parts = [
            self._of_queue(connection, queue, rows.filter(pc.equal(rows["Queue"], queue)))
            for queue in pc.unique(rows["Queue"]).to_pylist()
        ]
        batch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        return replace(self._builder.received(batch, self._builder.grouped(batch)), by_id=False)

    def _of_queue(self, connection: Connection, queue: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        with connection.transaction():
            table = queues.get(connection, queue, self._options.naming(connection.dialect)).table
        if self._reader is None:
            self._reader = open_reader(Target.of(self._options))
        span = pc.min_max(rows["RowVersion"]).as_py()
        statement = queues.read_statement(connection.dialect, table)
        read = [
            batch.filter(pc.is_in(batch["RowVersion"], value_set=rows["RowVersion"]))
            for batch in self._reader.batches(statement, (span["min"], span["max"]), _READ)
        ]
        found = pa.Table.from_batches(read, _READ).combine_chunks().sort_by("RowVersion")
        asked = dict(zip(rows["RowVersion"].to_pylist(), pc.utf8_lower(rows["Id"]).to_pylist(), strict=True))
        there = dict(
            zip(found["RowVersion"].to_pylist(), pc.utf8_lower(found["Id"]).to_pylist(), strict=True)
        )
        if there != asked:
            raise ClaimLost(
                f"{len(asked.items() - there.items())} rows of {queue} are not there any more while their batch is sent; start the stream "
                "again, which receives what is left."
            )
        batch = found.to_batches()[0] if found.num_rows else pa.RecordBatch.from_pylist([], _READ)
        return batch.append_column(_QUEUE, pa.array([queue] * batch.num_rows, pa.string()))
