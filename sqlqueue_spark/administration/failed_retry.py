"""Puts failed messages back into the queues that they failed for, each once, whenever this is interrupted.

A batch is one transaction: it locks the free rows, inserts them at their destinations with new row ids,
deletes them and commits. A destination that takes nothing (a table that is missing, in another database,
without the right) keeps its own rows in the error queue; the others go.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.administration.error_queue import BATCH_ROWS, ErrorQueue, opened
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.failure_headers import put_back_headers
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables import queue_shape, queue_table
from sqlqueue_spark.tables.insert import Inserter, moved
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.queues import InTransit

#: The batches a second of a retry with a steady rate.
_PORTIONS = 10
_UNKNOWN = (
    "They say in no header NServiceBus.FailedQ for which queue they have failed; name one with --to QUEUE, "
    "or look at them with: sqlqueue errors list."
)


@dataclass(kw_only=True)
class Retried:
    """What a retry did, or would do.

    :ivar went: how many messages went to which queue.
    :ivar stayed: how many stay, by the reason.
    :ivar held: how many others hold, or have taken meanwhile.
    """

    queue: str
    went: Counter[str] = field(default_factory=Counter)
    stayed: Counter[str] = field(default_factory=Counter)
    held: int = 0

    @property
    def count(self) -> int:
        return self.went.total()


def plan(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    to: str | None = None,
    looked: Callable[[int], object] = lambda _: None,
) -> Retried:
    """What :func:`retry` would do now. It changes nothing and locks no row.

    :param looked: is told how many more rows were looked at.
    """
    with opened(options, queue, selection, looked=looked) as error_queue:
        counted = Counter(row.failed_queue or to for row in error_queue.rows() if row.is_failure)
        found = Retried(queue=error_queue.admin.name)
        for address, count in counted.items():
            try:
                with (
                    error_queue.admin.connection.transaction(),
                    _destination(error_queue, address, chosen=address == to) as destination,
                ):
                    found.went[destination.name] += count
            except ConnectionLost:
                raise
            except SqlQueueError as error:
                found.stayed[str(error)] += count
        return found


def retry(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    to: str | None = None,
    rate: int | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Retried:
    """Put the failed messages that are meant back into their queues.

    :param to: the queue of messages that do not say for which one they have failed.
    :param rate: messages a second, steadily; None is as fast as it goes.
    :param progress: is told how many more messages are put back and committed.
    """
    most = BATCH_ROWS if rate is None else max(1, min(BATCH_ROWS, rate // _PORTIONS))
    with opened(options, queue, selection) as error_queue:
        done = Retried(queue=error_queue.admin.name)
        refusals: dict[str | None, str] = {}
        began = time.monotonic()
        for batch in error_queue.batches(most):
            if rate is not None:
                time.sleep(max(0.0, began + done.count / rate - time.monotonic()))
            went: Counter[str] = Counter()
            with queue_tables.changing(options, error_queue.admin, deleting=True):
                locked = error_queue.lock(batch)
                fail_points.step(fail_points.RETRY_LOCKED)
                by_address: dict[str | None, list[InTransit]] = {}
                for each, row in locked:
                    by_address.setdefault(row.failed_queue or to, []).append(each)
                gone: list[InTransit] = []
                for address, rows in by_address.items():
                    if address not in refusals and (
                        name := _delivered(error_queue, address, rows, refusals, chosen=address == to)
                    ):
                        went[name] += len(rows)
                        gone += rows
                    else:
                        done.stayed[refusals[address]] += len(rows)
                fail_points.step(fail_points.RETRY_INSERTED)
                error_queue.delete(gone)
                fail_points.step(fail_points.RETRY_DELETED)
            fail_points.step(fail_points.RETRY_COMMITTED)
            done.went += went
            done.held += len(batch) - len(locked)
            progress(went.total())
        return done


def _delivered(
    error_queue: ErrorQueue,
    address: str | None,
    rows: Sequence[InTransit],
    refusals: dict[str | None, str],
    *,
    chosen: bool,
) -> str | None:
    """Insert rows where they are to go; the name of that queue, or None with the reason in ``refusals``."""
    connection = error_queue.admin.connection
    try:
        with connection.attempt(), _destination(error_queue, address, chosen=chosen) as found:
            back = [row._replace(headers=put_back_headers(row.headers), expires=None) for row in rows]
            Inserter(connection, found).insert(moved(back))
    except ConnectionLost:
        raise
    except SqlQueueError as error:
        refusals[address] = str(error)
        return None
    return found.name


@contextlib.contextmanager
def _destination(error_queue: ErrorQueue, address: str | None, *, chosen: bool) -> Iterator[QueueTable]:
    """The queue at an address, into which the block inserts.

    :param chosen: whether the person who retries has named it; else a message has.
    :raises SqlQueueError: there is none, it cannot be reached, or it is the error queue itself.
    """
    if address is None:
        raise QueueError(_UNKNOWN)
    table = error_queue.naming.table(address)
    find = queue_shape.find_queue if chosen else queue_table.find  # else `allowed` looks at its shape
    found = find(error_queue.admin.connection, table)
    if found is None:
        raise QueueError(
            f"There is no queue table {table}, for which they have failed; create it with: sqlqueue create "
            f"{for_shell(address)}{_machine(address, table)}."
        )
    if found.address == error_queue.admin.table.address:
        raise ConfigurationError(f"They have failed for {found.name}, which is the error queue itself.")
    with (
        contextlib.nullcontext() if chosen else error_queue.allowed.into(error_queue.admin.connection, found)
    ):
        yield found


def _machine(address: str, table: Table) -> str:
    """What else an address may mean that the oldest senders have written."""
    bare = f"{table.table}@{table.schema}"
    if address != bare:
        return ""
    return (
        f", or, where {table.schema!r} is a machine of the same database server, say --legacy-addresses; a "
        "queue on another server is out of reach"
    )
