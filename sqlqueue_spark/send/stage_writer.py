"""Puts messages on the stage of an atomic pipeline, from which they go out when their batch is settled."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connections import Connection, Target, connect
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, RowsHeld, TryAgain
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.destinations import Destinations, place
from sqlqueue_spark.send.message_builder import Composed
from sqlqueue_spark.tables.insert import fitted
from sqlqueue_spark.tables.stage import Run, Stage, table_of

log = logging.getLogger(__name__)

#: How long a rehearsal waits for others' locks.
_REHEARSAL_MS = 100


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What one task has put on the stage: it counts once the sink has sealed the stage with the task's name."""

    task: str
    destinations: tuple[str, ...]
    rows: int


def stage(options: SinkOptions, destinations: Destinations, chunks: Iterable[Composed]) -> Staged:
    """Stage messages in their order, under a task's name that nothing else has.

    Chunks are committed one by one: a task that fails leaves rows that never count and go when the stage is next emptied.

    :raises TryAgain: the database gave way too often, or nobody knows whether a chunk was committed.
    """
    task = str(uuid.uuid4())
    used: dict[str, None] = {}
    rows = 0
    with _StageWriter(options, destinations, task) as stager:
        for chunk in chunks:
            used |= dict.fromkeys(stager.put(chunk))
            rows += len(chunk)
    return Staged(task=task, destinations=tuple(used), rows=rows)


def seal(options: SinkOptions, staged: Iterable[Staged], run: Run, *, own_ids: bool = False) -> None:
    """Say which tasks' rows count: those that Spark has accepted; saying it again is harmless. Errors as :meth:`Stage.seal`.

    What a destination would refuse is found first, while the batch can still be refused.

    :param run: as :func:`prepare` said.
    :param own_ids: the rows have Ids of their own, any of which a destination may have already.
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
                _rehearse(connection, stage, tasks, name, whole=own_ids)
            with connection.transaction():
                stage.seal(tasks, names, run=run.name, batch=run.batch)

    Retry(f"sealing the stage of {options.sender}").retried(sealed)
    fail_points.step(fail_points.STAGE_SEALED)


def _rehearse(
    connection: Connection, stage: Stage, tasks: Mapping[str, int | None], name: str, *, whole: bool
) -> None:
    """Send to a destination what settling will send, or a message of it, and take it back."""
    try:
        with connection.rehearsal(_REHEARSAL_MS):
            stage.rehearse(tasks, name, whole=whole)
    except RowsHeld:
        log.debug("not_rehearsed destination=%s: it is locked, which says nothing of its messages", name)


class _StageWriter:
    """Puts chunks on the stage over a connection of its own, each in a transaction of its own."""

    def __init__(self, options: SinkOptions, destinations: Destinations, task: str) -> None:
        self._options = options
        self._destinations = destinations
        self._task = task
        self._connection: Connection | None = None
        self._committing = False
        self._patience = Retry(f"staging by {options.sender}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def put(self, chunk: Composed) -> list[str]:
        """Stage a chunk, again while it is certain that it is not there; the names of the tables it goes to."""
        return self._patience.retried(
            lambda: self._put(chunk), lambda _: not self._committing, on_failure=self._failed
        )

    def _put(self, chunk: Composed) -> list[str]:
        self._committing = False
        connection = self._connected()
        placed = place(
            chunk.destinations(), lambda address: self._destinations.find(address, lambda _: connection)
        )
        with connection.transaction():
            messages = {
                replace(to.table.table, catalog=to.table.database).to_text(): fitted(
                    connection, to.columns, chunk.rows(positions)
                )
                for to, positions in placed
            }
            Stage(connection, table_of(self._options)).add(self._task, messages)
            fail_points.step(fail_points.ROWS_STAGED)
            self._committing = True
        return list(messages)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(Target.of(self._options), again=True)
        return self._connection

    def _failed(self, error: TryAgain) -> None:
        if isinstance(error, ConnectionLost):
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def check_one_database(options: SinkOptions, destinations: Destinations, addresses: Iterable[str]) -> None:
    """Refuse a destination in another database: one transaction cannot reach it.

    :raises ConfigurationError: the message names the destination.
    """
    own = Target.of(options)
    for address in addresses:
        target, _ = destinations.where(address)
        if target != own:
            raise ConfigurationError(
                f"The destination {address!r} lies in another database, which transactionMode sendsAtomicWithReceive cannot "
                "reach in one transaction; send to it with receiveOnly and an outbox."
            )
