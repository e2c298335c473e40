"""Moves rows of a stage into their destinations: those of a batch that is settled, or as a rehearsal.

The sink rehearses before it seals the stage, in a transaction that is rolled back. So it finds what a
destination refuses while the batch can still run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.errors import ConfigurationError, Duplicate, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.delayed import due_column
from sqlqueue_spark.tables.insert import columns_of, present_columns
from sqlqueue_spark.tables.stage_table import StageTable


def move(stage: StageTable, destination: str, tasks: Sequence[str], after: int) -> int:
    """Move what these tasks have staged for a destination, and return how many messages that were.

    :param after: rows up to this number do not count.
    :raises QueueError: the destination is not there any more, or refuses a message.
    """
    return _move(stage, destination, tasks, after, settling=True)


def rehearse(stage: StageTable, destination: str, tasks: Sequence[str], *, whole: bool) -> None:
    """Send what these tasks have staged for a destination, or one message of it. The caller rolls it back.

    :param whole: send all of it, not only one message.
    :raises QueueError: the destination is not there any more, or refuses a message.
    """
    if whole:
        _move(stage, destination, tasks, LOWEST, settling=False)
        return
    bound = _which(stage, destination, tasks)

    def insert(queue: str, columns: str, values: str) -> int:
        statement = stage.render("stage_try", queue=queue, columns=columns, values=values)
        return stage.connection.modify(statement, bound, doing=f"sending to {destination}")

    _into(stage, destination, insert, settling=False)


def _move(stage: StageTable, destination: str, tasks: Sequence[str], after: int, *, settling: bool) -> int:
    which = _which(stage, destination, tasks)

    def insert(queue: str, columns: str, values: str) -> int:
        statement = stage.render("stage_move", queue=queue, columns=columns, values=values)
        rows, done_to = 0, after
        while (up_to := _end_of_chunk(stage, which, done_to)) is not None:
            bound = {**which, "after": done_to, "up_to": up_to}
            rows += stage.connection.modify(statement, bound, doing=f"sending to {destination}")
            done_to = up_to
            if up_to == HIGHEST:
                break
        return rows

    return _into(stage, destination, insert, settling=settling)


def _into(
    stage: StageTable, destination: str, insert: Callable[[str, str, str], int], *, settling: bool
) -> int:
    """Let ``insert`` fill a destination: its arguments are its quoted name, its columns, and their values."""
    dialect = stage.connection.dialect
    table = Table.from_text(destination)
    found = queues.find(stage.connection, table)
    if found is None:
        pasted = for_shell(table.to_address(quoted=dialect.quoted_addresses))
        raise QueueError(
            f"The destination {destination} is not there any more, and its messages wait on the stage "
            f"{stage.table}; create it again with: sqlqueue create {pasted}, and start the stream."
        )
    columns = [dialect.quote(each) for each in present_columns(columns_of(stage.connection, found))]
    values = columns
    if due := due_column(
        found.columns
    ):  # a table of delayed messages has no time of expiry, and on SQL Server no Ids
        columns, values = [*columns, dialect.quote(due)], [*values, dialect.staged_due]
    try:
        return insert(dialect.table(table), ", ".join(columns), ", ".join(values))
    except SqlQueueError as error:
        if isinstance(error, TryAgain) and not isinstance(error, Duplicate):
            raise
        raise _refusal(destination, stage.table, error, settling=settling) from error


def _end_of_chunk(stage: StageTable, which: Parameters, after: int) -> int | None:
    """The last row that one statement may move, None when none is left.

    Where many row locks never become a table lock, one statement may move all rows.
    """
    dialect = stage.connection.dialect
    if not dialect.escalates:
        return HIGHEST
    last: int | None = stage.execute("stage_next", **which, after=after, count=dialect.written)[0][0]
    return last


def _which(stage: StageTable, destination: str, tasks: Sequence[str]) -> Parameters:
    """The parameters that say which rows of the stage are meant."""
    return {"destination": destination, "tasks": stage.connection.dialect.bind_texts(tasks)}


def _refusal(destination: str, stage: Table, error: SqlQueueError, *, settling: bool) -> SqlQueueError:
    """The error for a destination that refuses what a stage has for it."""
    kind = ConfigurationError if isinstance(error, ConfigurationError) else QueueError
    taken = "A row with that Id is there already: " if isinstance(error, Duplicate) else ""
    if settling:
        remedy = "take it away" if taken else "Mend the table or the rights to it"
        return kind(
            f"The destination {destination} refuses a message of a batch that is done: {error} Its messages "
            f"wait on the stage {stage}, and its rows in the queue. {taken}{remedy}, and start the stream."
        )
    remedy = (
        "leave the column Id out of the frame, and each message gets a new one"
        if taken
        else "Mend the table or the rights to it, or send elsewhere"
    )
    return kind(
        f"The destination {destination} refuses a message that this batch sends: {error} Nothing of the "
        f"batch was sent, and its rows stay in the queue. {taken}{remedy}; the batch then runs again."
    )
