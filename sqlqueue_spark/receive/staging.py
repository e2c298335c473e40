"""What a batch has staged goes out with its claim, in the claim's own transaction (``sendsAtomicWithReceive``)."""

from __future__ import annotations

import hashlib
import json
import logging

from sqlqueue_spark import tables
from sqlqueue_spark.addresses import Naming, Table
from sqlqueue_spark.connections import Connection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.offsets import Offset
from sqlqueue_spark.options import ATOMIC, SourceOptions
from sqlqueue_spark.queues import Queue
from sqlqueue_spark.receive.held import Json
from sqlqueue_spark.receive.pool import Pool
from sqlqueue_spark.stage import Stage, table_of

log = logging.getLogger(__name__)


class Staging:
    """Opens the stage for each batch, and sends what is on it when the batch is settled.

    A batch remembers its stage in its offset: it goes out even when the stream was started again in another mode.
    """

    def __init__(self, options: SourceOptions, pool: Pool) -> None:
        self._options = options
        self._pool = pool
        self._opened: Json | None = None

    def open(self, offset: Offset, end: Json) -> None:
        """Empty the stage for the batch that ends with ``end``, once: Spark may plan a batch again while it runs."""
        if self._opened == end:
            return
        with self._pool.borrowed() as queue:
            connection = queue.connection
            if (table := self._table(offset)) is not None:
                create_if_missing(connection, table)
                with connection.transaction():
                    Stage(connection, table).open(_digest(end))
        self._opened = end

    def send(self, queue: Queue, offset: Offset, end: Json, *, deleting: int) -> None:
        """Move what the batch has staged into its destinations, in the open transaction. Calling again is harmless.

        :param deleting: how many of the batch's rows the transaction deletes. None: an earlier one did all this.
        :raises ConfigurationError: rows would be deleted, but what was sent because of them is gone.
        """
        table = self._table(offset)
        if table is None:
            return
        stage = Stage(queue.connection, table)
        ours = self._opened == end
        moved = stage.move(_digest(end)) if ours or stage.exists() else None
        if moved is not None:
            log.info("sent queue=%s stage=%s sent=%d", queue.table.name, table, moved)
        elif deleting and (ours or offset.stage):
            raise ConfigurationError(
                f"What the last batch of {queue.table.name} sent is not on the stage {table} any more, so its {deleting} "
                "rows stay in the queue: another pipeline of the same option stream has emptied the stage. Give each a "
                "name of its own, and remove the newest file of the checkpoint's folder commits: the batch then runs again."
            )

    def forget(self) -> None:
        """The next batch is another attempt, even at the same rows."""
        self._opened = None

    def _table(self, offset: Offset) -> Table | None:
        """The stage that the batch was, or is, to use."""
        if offset.stage:
            return Naming(default_schema="").table(offset.stage)  # it names its schema
        return stage_of(self._options)


def stage_of(options: SourceOptions) -> Table | None:
    """The stage of a stream; None where its mode needs none."""
    return table_of(options) if options.transaction_mode == ATOMIC else None


def _digest(end: Json) -> str:
    """A claim's name, short and the same after a restart."""
    return hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()


def create_if_missing(connection: Connection, table: Table) -> bool:
    """Create a stage in a transaction of its own; True if it was not there."""
    stage = Stage(connection, table)
    with connection.transaction():
        if stage.exists():
            return False
        tables.lock_creation(connection, table)
        if stage.exists():
            return False
        stage.create()
        log.info("created stage=%s", table)
        return True
