"""Puts messages on the stage of an atomic pipeline, from which they go out when their batch is settled."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from sqlqueue_spark import faults
from sqlqueue_spark.connections import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inserting import fitted
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.composing import Composed
from sqlqueue_spark.send.destinations import Destinations, place
from sqlqueue_spark.stage import Stage, table_of


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What one task has put on the stage: it counts once the sink has sealed the stage with the task's name."""

    task: str
    destinations: tuple[str, ...]
    rows: int


def stage(options: SinkOptions, destinations: Destinations, chunks: Iterable[Composed]) -> Staged:
    """Stage messages in their order, under a task's name that nothing else has.

    Chunks are committed one by one: a task that fails leaves rows that never count and go when the stage is next emptied.
    """
    task = str(uuid.uuid4())
    used: dict[str, None] = {}
    rows = 0
    with connect(Target.of(options)) as connection:
        found = Stage(connection, table_of(options))
        for chunk in chunks:
            placed = place(
                chunk.destinations(), lambda address: destinations.find(address, lambda _: connection)
            )
            with connection.transaction():
                messages = {
                    to.table.name: fitted(connection, to.columns, chunk.rows(positions))
                    for to, positions in placed
                }
                found.add(task, messages)
                faults.step(faults.ROWS_STAGED)
            used |= dict.fromkeys(messages)
            rows += len(chunk)
    return Staged(task=task, destinations=tuple(used), rows=rows)


def seal(options: SinkOptions, staged: Iterable[Staged], run: str) -> None:
    """Say which tasks' rows count: those that Spark has accepted. Errors as :meth:`Stage.seal`."""
    done = list(staged)
    with connect(Target.of(options)) as connection, connection.transaction():
        Stage(connection, table_of(options)).seal(
            [each.task for each in done],
            list(dict.fromkeys(name for each in done for name in each.destinations)),
            run=run,
        )
    faults.step(faults.STAGE_SEALED)


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
