"""Which queues a stream over several reads: those of a list, or all whose names a pattern matches.

A pattern names no table, so a table of a stranger must not run code as this login: its owner is neither this
login nor an administrator. It is looked at now, and again in each transaction that receives from it.
"""

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Iterator

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError, LockTimeout, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import NO_TRANSACTION, SourceOptions
from sqlqueue_spark.plain_text import logger, warn_once
from sqlqueue_spark.tables import queue_table, queues, table_code, table_kinds
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.table_kinds import FoundTable

log = logger(__name__)

#: The program that matches names, and the seconds that it gets.
_MATCH = (
    "import json, re, sys; pattern, names = json.load(sys.stdin); "
    "print(json.dumps([*filter(re.compile(pattern).fullmatch, names)]))"
)
_MATCH_SECONDS = 10
_LEFT_ALONE = "queue_left_alone queue=%s: %s"


def tables_of(connection: Connection, options: SourceOptions) -> list[Table]:
    """The tables that the options name now. A pattern finds only queue tables of the default schema."""
    naming = options.naming(connection.dialect)
    if options.queue_pattern is None:
        return [naming.table(address) for address in _listed(options)]
    return [each.table for each in _matching(connection, options, options.queue_pattern)]


@functools.lru_cache(maxsize=10)
def of_pattern(pattern: str, names: tuple[str, ...]) -> frozenset[str]:
    """Those of the names that a pattern matches as a whole.

    Another process matches them: nothing ends a pattern here that takes exponential time, and a user of SQL
    may have written it.

    :raises ConfigurationError: that takes too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MATCH],
            input=json.dumps([pattern, names]),
            stdout=subprocess.PIPE,
            timeout=_MATCH_SECONDS,
            check=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"To match the names of the queues by the option queuePattern {pattern!r} takes longer than "
            f"{_MATCH_SECONDS} s; write it without a repetition within a repetition, or list them as queues."
        ) from None
    return frozenset(json.loads(done.stdout))


def opened(connection: Connection, options: SourceOptions, *, looking: bool = False) -> list[Queue]:
    """The queues that the options name now.

    :param looking: their rows are only looked at, in the open transaction.
    :raises QueueError: a queue of a list is not there, or its table has not the columns of a queue.
    :raises ConfigurationError: a list names one queue twice.
    """
    if options.queue_pattern is not None:
        found = []
        for each in _matching(connection, options, options.queue_pattern, looking=looking):
            guarded = bool(each.stranger) and not looking
            if (queue := queues.at(connection, each.table, guarded=guarded, shaped=False)) is None:
                continue  # it has gone between two statements
            try:
                queue_table.check_shape(queue.table, connection.dialect.queue_columns)
            except QueueError as error:
                warn_once(log, _LEFT_ALONE, queue.name, str(error))
            else:
                found.append(queue)
        return found
    naming = options.naming(connection.dialect)
    listed: dict[str, Queue] = {}
    for address in _listed(options):
        queue = queues.get(connection, address, naming)
        if queue.table.address in listed:
            raise ConfigurationError(
                f"The option queues names the queue {queue.name} twice, in two forms; name it once."
            )
        listed[queue.table.address] = queue
    return list(listed.values())


def _matching(
    connection: Connection, options: SourceOptions, pattern: str, *, looking: bool = False
) -> Iterator[FoundTable]:
    """The queue tables whose names a pattern matches, but for those that are left alone."""
    found = table_kinds.find(connection, options.naming(connection.dialect).default_schema)
    names = tuple(each.table.table for each in found if each.kind == table_kinds.QUEUE)
    matching = of_pattern(pattern, names)
    for each in found:
        if each.kind != table_kinds.QUEUE or each.table.table not in matching:
            continue
        why = _left_alone(connection, options, each, looking=looking) if each.stranger else None
        if why is None:
            yield each
        else:
            warn_once(log, _LEFT_ALONE, each.name, f"{why}; to receive from it, name it in queues")


def _left_alone(
    connection: Connection, options: SourceOptions, found: FoundTable, *, looking: bool
) -> str | None:
    if options.transaction_mode == NO_TRANSACTION and not looking:
        return f"it belongs to {found.stranger!r}, and no lock keeps new code out while workers take its rows"
    if looking:
        return queue_table.passed_over(connection, found.table, table_code.LOOK, shaped=True)
    connection.hurry(queue_table.LOCKED_MS)
    why = None
    with contextlib.suppress(LockTimeout):  # its queue looks again before it is received from
        why = queues.not_received(connection, found.table)
    connection.hurry(None)
    return why


def _listed(options: SourceOptions) -> tuple[str, ...]:
    return options.queues if options.queue is None else (options.queue,)
