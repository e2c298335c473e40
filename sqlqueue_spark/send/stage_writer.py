"""Puts messages on the stage of an atomic pipeline; they go out from there when their batch is settled."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.delivery import acknowledged
from sqlqueue_spark.send.destinations import Destinations, Rows
from sqlqueue_spark.send.outbox_lookups import has_sent, undecided, unsent
from sqlqueue_spark.send.outcome_delivery import placed, rows_beside
from sqlqueue_spark.send.outcomes import Decided, Outcomes
from sqlqueue_spark.send.preflight import rehearse
from sqlqueue_spark.send.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import fitted
from sqlqueue_spark.tables.stage import Run, Stage
from sqlqueue_spark.tables.stage_table import table_of


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What one task has put on the stage. It counts once the sink has sealed the stage with the task's name."""

    task: str
    destinations: tuple[str, ...]
    rows: int
    #: What these rows are. Repeated are those that it has left out: the outbox knows them from times in which the pipeline was not
    #: atomic.
    sent: Sent = field(default_factory=Sent)


def stage(options: SinkOptions, destinations: Destinations, chunks: Iterable[Composed | Outcomes]) -> Staged:
    """Stage messages, or outcomes, in their order, under a new name for the task, which no other attempt has.

    Chunks are committed one by one. A task that fails leaves rows on the stage. They never count, and they go when the stage
    is next emptied.

    :raises TryAgain: the database gave way too often, or nobody knows whether a chunk was committed.
    """
    with _StageWriter(options, destinations) as writer:
        sent = writer.send(chunks)
    return Staged(
        task=writer.task,
        destinations=tuple(writer.staged),
        rows=sum(writer.staged.values()),
        sent=sent,
    )


def seal(options: SinkOptions, staged: Iterable[Staged], run: Run, *, own_ids: bool = False) -> None:
    """Write into the mark which tasks' rows count: those of the tasks that Spark has accepted. To repeat it does no harm.

    First the sink rehearses each destination, so that it finds what a destination would refuse while the batch can still be
    refused. Errors as :meth:`Stage.seal`.

    :param run: what :func:`prepare` returned.
    :param own_ids: whether the rows have Ids of their own. A destination may have any of these already.
    :raises QueueError: a destination is not there any more, or refuses a message.
    """
    done = list(staged)
    tasks: dict[str, int | None] = {each.task: each.rows for each in done}
    names = list(dict.fromkeys(name for each in done for name in each.destinations))
    if not run.claimed and not any(tasks.values()):
        return  # the source has no rows in the batch, and there is nothing to send

    def sealed() -> None:
        with connect(Target.of(options), again=True) as connection:
            stage = Stage(connection, table_of(options))
            for name in sorted(names):
                rehearse(connection, stage, tasks, name, whole=own_ids)
            with connection.transaction():
                stage.seal(tasks, names, run=run.name, batch=run.batch)

    Retry(f"sealing the stage of {options.sender}").retried(sealed)
    fail_points.step(fail_points.STAGE_SEALED)


class _StageWriter(Sender):
    """Puts chunks on the stage over a connection of its own, each chunk in one transaction.

    It tries again as long as it is certain that the chunk is not on the stage.
    """

    def __init__(self, options: SinkOptions, destinations: Destinations) -> None:
        super().__init__(options, destinations)
        self.task = str(uuid.uuid4())
        #: The names of the tables that messages go to, each with the number of messages.
        self.staged: Counter[str] = Counter()
        self._committing = False
        self._retry = Retry(f"staging by {options.sender}")

    def _sent(self, chunk: Composed, _: Container[int] | None = None) -> Sent:
        return self._put(lambda connection: self._messages(chunk, connection))

    def _outcomes_sent(self, outcomes: Outcomes) -> Sent:
        return self._put(lambda connection: self._outcomes(outcomes, connection))

    def _put(self, rows_of: Callable[[Connection], tuple[list[Rows], Sent]]) -> Sent:
        own = Target.of(self._options)
        return self._retry.retried(
            lambda: self._attempt(rows_of),
            lambda _: not self._committing,
            on_failure=lambda error: self._gave_way(own, error),
        )

    def _attempt(self, rows_of: Callable[[Connection], tuple[list[Rows], Sent]]) -> Sent:
        self._committing = False
        connection = self._connected(Target.of(self._options))
        rows, sent = rows_of(connection)
        with connection.transaction():
            messages = {
                replace(to.table.table, catalog=to.table.database).to_text(): fitted(
                    connection, to.columns, its
                )
                for to, its in rows
            }
            Stage(connection, table_of(self._options)).add(self.task, messages)
            fail_points.step(fail_points.ROWS_STAGED)
            self._committing = True
        self.staged.update({name: len(its) for name, its in messages.items()})
        return sent

    def _messages(self, chunk: Composed, connection: Connection) -> tuple[list[Rows], Sent]:
        """The rows of a chunk by destination, but for those that the outbox knows."""
        routes = self._routes
        chunk, placed = routes.placed(chunk)
        if has_sent(self._options, self._destinations, connection):
            placed = unsent(routes, chunk, connection, placed)
        done = chunk.counted(positions for _, positions in placed)
        rows = [part for to, positions in placed for part in routes.parted(to, chunk.rows(positions))]
        told = acknowledged(routes, chunk, placed)
        done += Sent(acknowledged=sum(its.num_rows for _, its in told))
        return _by_table([*rows, *told]), done + Sent(repeated=len(chunk) - done.sent - done.failed)

    def _outcomes(self, outcomes: Outcomes, connection: Connection) -> tuple[list[Rows], Sent]:
        """The rows of a chunk of outcomes by destination, but for the outcomes that the outbox knows."""
        routes = self._routes
        outcomes = routes.reachable(outcomes)
        accepted: Sequence[int] = range(len(outcomes))
        if has_sent(self._options, self._destinations, connection):
            accepted = undecided(routes, outcomes, connection)
        positions = outcomes.sent_by(accepted)
        rows: list[Rows] = []
        sent = Sent()
        if positions and outcomes.sends is not None:
            sends = outcomes.sends
            sent = sends.counted([positions])
            rows = [
                part
                for to, its in placed(routes, outcomes, positions)
                for part in routes.parted(to, sends.rows(its))
            ]
        others, beside = rows_beside(routes, outcomes, Decided(accepted))
        return _by_table([*rows, *others]), sent + beside

    def _connected(self, _: Target) -> Connection:
        """The database of the stage holds all tables, too."""
        own = Target.of(self._options)
        if own not in self._connections:
            self._connections[own] = connect(own, again=True)
        return self._connections[own]


def _by_table(rows: Iterable[Rows]) -> list[Rows]:
    """The rows with those of one table together."""
    together: dict[str, Rows] = {}
    for to, its in rows:
        name = to.table.address
        before = together.get(name)
        together[name] = (to, its if before is None else pa.concat_batches([before[1], its]))
    return list(together.values())
