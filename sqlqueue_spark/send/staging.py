"""Puts messages on the stage of an atomic pipeline, from which they go out when their batch is settled."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from sqlqueue_spark import faults
from sqlqueue_spark.connections import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inserting import fitted
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.outgoing import Outgoing
from sqlqueue_spark.send.chunking import chunks
from sqlqueue_spark.send.composing import Composed
from sqlqueue_spark.send.destinations import Destination, Destinations
from sqlqueue_spark.stage import Stage, table_of


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What one task has put on the stage: it counts once the sink has sealed the stage with the task's name."""

    task: str
    destinations: tuple[str, ...]
    rows: int


def stage(options: SinkOptions, destinations: Destinations, messages: Iterable[Composed]) -> Staged:
    """Stage messages in their order, under a task's name that nothing else has.

    Chunks are committed one by one: a task that fails leaves rows that never count and go when the stage is next emptied.
    """
    task = str(uuid.uuid4())
    used: dict[str, None] = {}
    rows = 0
    with connect(Target.of(options)) as connection:
        found = Stage(connection, table_of(options))
        for chunk in chunks(messages, connection.dialect.written):
            placed = [(destinations.find(each.destination, lambda _: connection), each.row) for each in chunk]
            with connection.transaction():
                found.add(task, _fitted(connection, placed))
                faults.step(faults.ROWS_STAGED)
            used |= dict.fromkeys(destination.table.name for destination, _ in placed)
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


def _fitted(connection: Connection, placed: list[tuple[Destination, Outgoing]]) -> list[tuple[str, Outgoing]]:
    """The rows as their destinations can take them, in their order; the database is asked once a destination at most."""
    positions: dict[str, list[int]] = {}
    for position, (destination, _) in enumerate(placed):
        positions.setdefault(destination.table.name, []).append(position)
    ready: dict[int, tuple[str, Outgoing]] = {}
    for name, theirs in positions.items():
        columns = placed[theirs[0]][0].columns
        rows = fitted(connection, columns, [placed[position][1] for position in theirs])
        ready |= {position: (name, row) for position, row in zip(theirs, rows, strict=True)}
    return [ready[position] for position in range(len(placed))]
