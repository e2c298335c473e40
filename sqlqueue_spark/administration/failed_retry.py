"""Puts failed messages back into the queues that they failed for, each once, whenever this is interrupted.

A batch is inserted at its destinations, with new row ids, in the transaction that deletes its rows. A
destination that takes nothing (a table that is missing, in another database, without the right) keeps its own
rows in the error queue; the others go.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark.administration import Progress, untold
from sqlqueue_spark.administration.error_queue import ErrorQueue, opened
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, SqlQueueError
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.messages.failure_headers import put_back_headers
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables import queue_table, queues
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.insert import insert_moved
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.queues import InTransit
from sqlqueue_spark.tables.refused_messages import Why, refused


@dataclass(kw_only=True)
class Retried:
    """What a retry did, or would do: how many messages went to which queue, and how many stayed, and why.

    :ivar held: how many others hold, or have taken meanwhile.
    """

    queue: str
    went: Counter[str] = field(default_factory=Counter)
    stayed: Counter[str] = field(default_factory=Counter)
    held: int = 0

    @property
    def count(self) -> int:
        return self.went.total()

    def add(self, result: QueueTable | str, count: int) -> None:
        """Count messages, by what :func:`_put_back` has returned for them."""
        if isinstance(result, str):
            self.stayed[result] += count
        else:
            self.went[result.name] += count


def plan(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    to: str | None = None,
    looked: Progress = untold,
) -> Retried:
    """What :func:`retry` would do now. It changes nothing and locks no row.

    It looks at the destinations as a retry does, so for a moment it keeps new code out of each. Errors as
    :func:`retry`.
    """
    with _opened(options, queue, selection, to, looked) as error_queue:
        rows = error_queue.rows(selection.message_ids)
        counted = Counter(row.failed_queue or to for row in rows if row.is_failure)
        found = Retried(queue=error_queue.admin.name)
        for address, count in counted.items():
            with error_queue.admin.connection.transaction():
                found.add(_put_back(error_queue, address, to)[0], count)
        return found


def retry(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    to: str | None = None,
    rate: int | None = None,
    progress: Progress = untold,
) -> Retried:
    """Put the failed messages that are meant back into their queues.

    :param to: the queue of messages that do not say for which one they have failed.
    :param rate: messages a second, steadily; None is as fast as it goes.
    :raises QueueError: the error queue or ``to`` is missing.
    """
    with _opened(options, queue, selection, to) as error_queue:
        done = Retried(queue=error_queue.admin.name)
        closed: dict[str | None, str] = {}

        def put_back(locked: list[tuple[InTransit, ErrorRow]]) -> list[InTransit]:
            by_address: dict[str | None, list[InTransit]] = {}
            for each, row in locked:
                by_address.setdefault(row.failed_queue or to, []).append(each)
            gone: list[InTransit] = []
            for address, rows in by_address.items():
                known = closed.get(address)
                result, refusals = (known, ()) if known else _put_back(error_queue, address, to, rows)
                if isinstance(result, str):
                    closed[address] = result
                    done.add(result, len(rows))
                    continue
                stay = {row.row_version for part, _ in refusals for row in part}
                for part, error in refusals:
                    done.add(str(error), len(part))
                if went := [row for row in rows if row.row_version not in stay]:
                    done.add(result, len(went))
                gone += went
            return gone

        _, done.held = error_queue.take_out(put_back, progress, rate)
        return done


@contextlib.contextmanager
def _opened(
    options: ConnectionOptions, queue: str, selection: Selection, to: str | None, looked: Progress = untold
) -> Iterator[ErrorQueue]:
    """The error queue; the queue that the person names is there, also where no message needs it."""
    with opened(options, queue, selection, looked=looked) as error_queue:
        if to is not None:
            with error_queue.admin.connection.transaction() as connection:
                queues.get(connection, to, options.naming(connection.dialect))
        yield error_queue


def _put_back(
    error_queue: ErrorQueue, address: str | None, to: str | None, rows: Sequence[InTransit] = ()
) -> tuple[QueueTable | str, Sequence[Why[InTransit]]]:
    """Insert rows where they are to go.

    :returns: that queue, or why it takes nothing; and the rows that it refuses: a sender may have written one
        that no queue takes.
    """
    connection = error_queue.admin.connection

    def inserted(some: Sequence[InTransit]) -> None:
        back = [row._replace(headers=put_back_headers(row.headers), expires=None) for row in some]
        insert_moved(connection, found, back)

    try:
        with connection.attempt(), _destination(error_queue, address, chosen=address == to) as found:
            refusals = refused(connection, inserted, rows, chosen=True)
    except ConnectionLost:
        raise
    except SqlQueueError as error:
        return str(error), ()
    return found, refusals


@contextlib.contextmanager
def _destination(error_queue: ErrorQueue, address: str | None, *, chosen: bool) -> Iterator[QueueTable]:
    """The queue at an address, into which the block inserts.

    :param chosen: whether the person who retries has named it; else a message has.
    :raises SqlQueueError: there is none, it cannot be reached, or it is the error queue itself.
    """
    if address is None:
        raise QueueError(
            "They say in no header NServiceBus.FailedQ for which queue they have failed; name one with --to "
            f"QUEUE, or look at them with: {error_queue.listing}."
        )
    connection, own = error_queue.admin.connection, error_queue.admin.table
    table = error_queue.options.naming(connection.dialect).table(address)
    find = queue_table.find_queue if chosen else queue_table.find  # else `allowed` looks at its shape
    if (found := find(connection, table)) is None:
        named = connection.dialect.address(table)
        machine = (  # as the oldest senders have written it
            f", or, where {table.schema!r} is a machine of the same database server, say --legacy-addresses; "
            "a queue on another server is out of reach"
        )
        raise QueueError(
            f"There is no queue table {table}, for which they have failed; create it with: sqlqueue create "
            f"{for_shell(named)}{machine if address == f'{table.table}@{table.schema}' else ''}."
        )
    if found.address == own.address:
        raise ConfigurationError(f"They have failed for {found.name}, which is the error queue itself.")
    allowed = AllowedDestinations(error_queue.options, (own,))
    with allowed.into(connection, found, shaped=not chosen):
        yield found
