"""Peeks at ranges or rows of a queue: nothing is claimed, locked, counted or deleted."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import NoRight, TryAgain
from sqlqueue_spark.messages.body import LARGEST_ROW
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.receive.claiming.queue_list import opened
from sqlqueue_spark.receive.reading.slices import Slice, Task, slice_count
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.queues import Queue

log = logger(__name__)

#: The most numbers of one range, however few rows have them: a :class:`RowSet` counts them in 63 bits.
_WIDEST = 1 << 62


class Present(NamedTuple):
    """A row that stands in a queue: its number, its Id, the bytes of its headers and body."""

    row_version: int
    id: str
    size: int


def look_before(options: SourceOptions) -> None:
    """Refuse what is wrong with the queues of a frame when it is made, before a query starts.

    A database that is down is no error yet.

    :raises ConfigurationError: the database refuses the login, or a driver is missing.
    :raises QueueError: there is no such queue.
    :raises NoRight: the login may not look.
    """
    try:
        _look(replace(Target.of(options), hasty=True), options)
    except TryAgain as error:
        log.warning("not_looked queue=%s: %s What runs on this frame looks again.", options.title, error)


def check_visible(options: SourceOptions) -> None:
    """The same look before a job that only looks. It waits for the database, and fails where it is down."""
    try:
        _look(Target.of(options), options)
    except NoRight as error:
        raise error.needing(f"a login that looks at the queue {options.title} needs SELECT on it") from error


def _look(target: Target, options: SourceOptions) -> None:
    with connect(target) as connection, connection.transaction():
        for queue in opened(connection, options, looking=True):
            queue.look(LOWEST, HIGHEST, 1)


def present_rows(options: SourceOptions, *, again: bool = False) -> Iterator[Present]:
    """Every row that can be read, in RowVersion order; none is read whole, no transaction stays open.

    A look goes over the whole queue, because no number tells what is new: numbers are given before rows are
    committed, so a lower one may appear later. The look ends at the highest number of its beginning.

    :param again: whether the database was reached before, as for ``connect``.
    """
    target = Target.of(options)
    with connect(target, again=again) as connection:
        with connection.transaction():
            queue = queues.get(connection, options.one_queue, options.naming(target.dialect))
            highest = queue.highest()
        after = LOWEST
        while after < highest:
            with connection.transaction():
                found = queue.look(after, highest, target.dialect.chunk)
                ids = {} if found is None else queue.ids(found[0])
            if found is None:
                return
            row_versions, _, sizes, _ = found
            for row_version, size in zip(row_versions, sizes, strict=True):
                if row_version in ids and size <= LARGEST_ROW:  # else it has gone between the two statements
                    yield Present(row_version, ids[row_version], size)
            after = row_versions[-1]


def plan_rows(options: SourceOptions, rows: RowSet) -> list[Task]:
    """Tasks of similar size for these rows. A reader gets the rows that are still there and not expired."""
    target = Target.of(options)
    dialect = target.dialect

    def found() -> QueueTable:
        with connect(target, again=True) as connection, connection.transaction():
            return queues.get(connection, options.one_queue, options.naming(dialect)).table

    table = Retry(f"looking at {options.one_queue}").retried(found)
    statement = queues.read_statement(dialect, table, "read_unexpired")
    return [
        (Slice(statement=statement, queue=table.name, rows=piece),)
        for piece in rows.chunks(max(1, -(-len(rows) // slice_count(len(rows), options))))
    ]


def plan_peek(options: SourceOptions) -> list[Task]:
    """Ranges of similar width that cover what is in each queue now; none for a queue that is empty."""
    with connect(Target.of(options)) as connection, connection.transaction():
        return [
            task for queue in opened(connection, options, looking=True) for task in _ranges(queue, options)
        ]


def _ranges(queue: Queue, options: SourceOptions) -> list[Task]:
    if (there := queue.waiting(LOWEST)) is None:
        return []
    width = there.last - there.first + 1
    pieces = max(slice_count(width, options), -(-width // _WIDEST))
    firsts = [there.first + width * piece // pieces for piece in range(pieces + 1)]
    statement = queues.read_statement(queue.connection.dialect, queue.table, "read_unexpired")
    address = queue.connection.dialect.address(queue.table.table) if options.several else ""
    return [
        (Slice(statement=statement, queue=queue.name, rows=RowSet([(first, end - 1)]), address=address),)
        for first, end in pairwise(firsts)
    ]
