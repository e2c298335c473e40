"""The stage of an atomic pipeline, ``<stream>.Outgoing``: what a batch sends, kept until its claim is settled.

Workers stage rows under a name of their own task, in transactions of their own. When Spark has accepted the tasks, the
sink seals the stage: the mark then says which tasks' rows count, and how many they are. Settling the claim moves these rows
into their destinations in the claim's own transaction, so that a message is at its source or at its destination, never at
both or at neither. Rows of other tasks are void. They stay until the stage is cleared, and nobody waits for that.

Every method runs inside the connection's open transaction and never commits.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlqueue_spark.engines.connect import Connection, rows_awaited
from sqlqueue_spark.engines.registry import Dialect, dialect_of
from sqlqueue_spark.engines.statements import Parameters, Statement
from sqlqueue_spark.errors import (
    ClaimLost,
    ConfigurationError,
    Duplicate,
    NoRight,
    QueueError,
    SqlQueueError,
    TryAgain,
)
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.delayed import due_column
from sqlqueue_spark.tables.insert import columns_of, present_columns
from sqlqueue_spark.tables.rights import RECEIVER, remedy_command
from sqlqueue_spark.tables.stage_mark import NO_BATCH, Batch, Mark

#: A stage's name is its stream's and this. PostgreSQL's names have at most 63 bytes, and the index's name has a few more.
_SUFFIX = ".Outgoing"
_LONGEST_STREAM = 40

_NOBODY_SENDS = (
    "nobody would send what is put there; give the source the sink's stream and database, and transactionMode "
    "sendsAtomicWithReceive."
)


class Incomplete(ConfigurationError):
    """Not all that a batch has staged is on the stage, so it can neither go out nor count as nothing."""


class Unsealed(Incomplete):
    """No sink has sealed the stage for the batch, or the database has lost the seal."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a sink has found on the stage before its tasks begin."""

    #: The name of the run in the stage's mark.
    name: str = ""
    #: Whether the source has rows in the batch.
    claimed: bool = False
    batch: Batch = NO_BATCH
    #: Whether the sink has seen an atomic source in this run of the query.
    source_seen: bool = False


def table_of(options: SourceOptions | SinkOptions) -> Table:
    """The table of a stream's stage, for the options of an atomic pipeline's source or sink. Errors as :func:`table_named`."""
    assert options.stream is not None, "the options were checked"
    return table_named(options.stream, options.default_schema or dialect_of(options.url).default_schema)


def table_named(stream: str, schema: str) -> Table:
    """The table of a stream's stage.

    :raises ConfigurationError: the name is too long for a table's.
    """
    if len(stream.encode()) > _LONGEST_STREAM:
        raise ConfigurationError(
            f"The option stream is {stream!r}, which is longer than the {_LONGEST_STREAM} bytes that leave room for "
            f"the name of the table {stream}{_SUFFIX}; shorten it."
        )
    return Table(table=stream + _SUFFIX, schema=schema)


def create_statements(dialect: Dialect, table: Table) -> list[Statement]:
    """The statements that create a stage."""
    names = {"stage": dialect.table(table), "mark": dialect.quote(f"{table.table}_task_idx")}
    return [dialect.render(each, **names) for each in ("stage_create", "stage_storage", "stage_index")]


class Stage:
    """A stage on an open connection."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table
        self._doing = f"staging in {table}"

    def exists(self) -> bool:
        return queues.find(self._connection, self._table) is not None

    def create(self) -> None:
        """Create the table. The caller holds the lock of its creation and has looked that the table is not there."""
        for statement in create_statements(self._connection.dialect, self._table):
            self._connection.execute(statement, doing=f"creating {self._table}")

    # -- whose the stage is ---------------------------------------------------------------------

    def hold(self) -> None:
        """Hold the stage for a source for as long as the connection lives, not only for the transaction.

        :raises RowsHeld: somebody else has held it for longer than the lock timeout.
        """
        name = self._name_of_lock()
        with rows_awaited():
            self._execute("stage_hold", name=name)

    def holders(self) -> list[str]:
        """Which other sessions hold the stage: those of live sources."""
        rows = self._execute("stage_held", name=self._name_of_lock())
        return [
            f"session {session}" if session is not None else "another session of the database"
            for (session,) in rows
        ]

    def _name_of_lock(self) -> str:
        """The table's name as the database spells it; on SQL Server an option may spell it otherwise."""
        found = queues.find(self._connection, self._table)
        table = self._table if found is None else found.table
        return self._connection.dialect.table(replace(table, catalog=None))

    def mark(self) -> Mark | None:
        """The mark, which stays locked until the transaction ends; None when the stage was never anybody's."""
        rows = self._execute("stage_mark")
        return Mark.from_json(rows[0][0]) if rows else None

    def begin(self) -> None:
        """Write into a missing or idle mark that a source has taken the stage, and no sink has told of a batch since."""
        mark = self.mark()
        if mark is None or (mark.idle and mark.batch != NO_BATCH):
            self._write(Mark())

    def open(self, claim: str, *, queue: str = "", mode: str = "") -> str:
        """Give the stage to a claim. Rows that are there already never count.

        :param queue: the claim's.
        :param mode: that of a sink which sends the batch by itself, so that nothing on the stage is ever sent for the claim.
        :returns: the name of this run of the claim.
        :raises ConfigurationError: a sink has begun to send the batch by itself.
        """
        before = self.mark()
        if before is not None and before.claim == claim and before.mode and not mode:
            raise ConfigurationError(
                f"The unfinished batch whose messages {self._table} was to hold was taken up with transactionMode {before.mode}, "
                f"so its sink may have sent some of it by itself; start once with transactionMode {before.mode}."
            )
        mark = Mark(
            claim=claim,
            queue=queue,
            run=str(uuid.uuid4()),
            mode=mode,
            batch=NO_BATCH if before is None else before.batch,
            sealed=bool(mode),
            after=self._last(),
        )
        self._write(mark)
        return mark.run

    def clear(self) -> None:
        """Empty the stage but for its mark. It needs the table for itself: call it where no statement waits for locks."""
        mark = self.mark()
        self._execute("stage_clear")
        self._execute("stage_open", mark=(mark or Mark()).to_json())

    def _last(self) -> int:
        """The number of the last row that is there."""
        last: int | None = self._execute("stage_last")[0][0]
        return LOWEST if last is None else last

    def _write(self, mark: Mark) -> None:
        text = mark.to_json()
        with self._explained():
            known = self._connection.modify(self._render("stage_seal"), {"mark": text}, doing=self._doing)
        if not known:
            self._execute("stage_open", mark=text)

    # -- staging --------------------------------------------------------------------------------

    def add(self, task: str, messages: Mapping[str, pa.RecordBatch]) -> None:
        """Stage at most :attr:`Database.written` messages (:data:`OUTGOING`), given by destination, a table as text."""
        bound = self._connection.dialect.bind_staged(task, messages)
        with self._explained():
            self._connection.load(self._render("stage_insert"), bound, doing=self._doing)

    def enter(self, batch: Batch, last: Run | None) -> Run:
        """Find out what a batch is staged for, and refuse to stage what nobody would send.

        :param last: what this returned for the sink's last batch.
        :raises ConfigurationError: no atomic source is there.
        """
        mark = self._opened(self.mark() if self.exists() else None)
        same_run = last is not None and last.batch.attempt == batch.attempt
        seen = (same_run and last is not None and last.source_seen) or bool(self.holders())
        # A batch in which the source has no rows may be the first that Spark runs again after a restart. Then nobody has
        # asked the source for anything yet, and it does not hold the stage. It is enough that the mark has a batch of this
        # query (or of a query that Spark does not name either): the source was atomic then. Or the mark has no batch: an
        # atomic source took the stage last. If the source is not atomic any more, what is staged here goes out with the
        # next batch, and that batch is refused.
        known = not same_run and (mark.batch == NO_BATCH or mark.batch.query == batch.query)
        if mark.mode or not (seen or (known and not mark.claim)):
            raise ConfigurationError(
                f"No atomic source that runs holds the stage {self._table}: {_NOBODY_SENDS} Where its connection was just "
                "lost, start again, and the batch runs again; where the database has lost what was committed, give a new "
                "checkpoint folder."
            )
        return Run(name=mark.run, claimed=bool(mark.claim), batch=batch, source_seen=seen)

    def seal(
        self,
        tasks: Mapping[str, int | None],
        destinations: Sequence[str],
        *,
        run: str,
        batch: Batch = NO_BATCH,
    ) -> None:
        """Seal the stage: from now on the rows of these tasks count, beside those that count already.

        :param tasks: how many messages each task has staged.
        :param run: the name that :meth:`enter` returned.
        :raises ConfigurationError: no source has opened the stage.
        :raises ClaimLost: a stream that took this one's place has begun the batch again, or another query's sink has told
            of a batch of its own meanwhile.
        """
        mark = self._opened(self.mark())
        if mark.run != run or (mark.sealed and mark.batch != batch):
            raise ClaimLost(
                f"The stage {self._table} was opened again while this batch ran: another run of the stream has taken it over, "
                "or another query has the same option stream, so this one ends and nothing that it staged is sent; see that the "
                "stream runs only once."
            )
        self._write(mark.adding(tasks, tuple(destinations), batch))

    def _opened(self, mark: Mark | None) -> Mark:
        if mark is None:
            raise ConfigurationError(
                f"The stage {self._table} belongs to no batch: {_NOBODY_SENDS} Where the mode or the stream was changed while a "
                "batch had not ended, start once with those of before; where the database has lost what was committed, give a "
                "new checkpoint folder."
            )
        return mark

    # -- sending --------------------------------------------------------------------------------

    def move(self, claim: str) -> int | None:
        """Send what a claim has staged.

        :returns: how many messages; None when the stage is not the claim's.
        :raises Incomplete: the batch was not sealed, or rows that it counts are gone.
        :raises QueueError: a destination is not there any more, or refuses a message.
        """
        mark = self.mark()
        if mark is None or mark.claim != claim:
            return None
        return self._send(mark)

    def move_waiting(self, *, before: Batch | None = None) -> int | None:
        """Send what a batch without a claim has sealed. Errors as :meth:`move`, with the remedy.

        :param before: the batch that comes next. If it is the one that waits, Spark runs it again: what an earlier run has
            staged becomes void, and what this run has staged stays as it is.
        :returns: how many messages; None when nothing was to be sent.
        """
        mark = self.mark()
        if mark is None or not mark.waits or mark.batch == before:
            return None
        if before is not None and (mark.batch.query, mark.batch.number) == (before.query, before.number):
            self._write(mark.done())
            return None
        try:
            return self._send(mark)
        except Incomplete as error:
            raise self.lost(error) from error

    def lost(self, error: Incomplete) -> Incomplete:
        """The error for an incomplete batch that cannot run again, because no row of it is left in the queue."""
        return Incomplete(
            f"{error}, so it is not sent: the database has lost what was committed. To go on without these messages, drop "
            f"the table {self._table} and start the stream."
        )

    def give_up(self) -> Mark | None:
        """Make the mark idle, so that no row on the stage counts; return the mark as it was, None if it was nobody's."""
        mark = self.mark()
        if mark is None or mark.idle:
            return None
        self._write(mark.done())
        return mark

    def rehearse(self, tasks: Mapping[str, int | None], destination: str, *, whole: bool) -> None:
        """Send what these tasks have staged for a destination, or one message of it. The caller rolls it back.

        :param whole: send all of it, not only one message.
        :raises QueueError: the destination is not there any more, or refuses a message.
        """
        staged = [task for task, count in tasks.items() if count]
        if whole:
            self._move(destination, staged, LOWEST, settling=False)
        else:
            bound = self._which(destination, staged)

            def insert(queue: str, columns: str, values: str) -> int:
                statement = self._render("stage_try", queue=queue, columns=columns, values=values)
                return self._connection.modify(statement, bound, doing=f"sending to {destination}")

            self._into(destination, insert, settling=False)

    def _send(self, mark: Mark) -> int:
        if not mark.sealed:
            raise Unsealed(f"The stage {self._table} was opened for the batch, but never sealed")
        self._check_counts(mark)
        tasks = list(mark.tasks)
        moved = sum(
            self._move(destination, tasks, mark.after, settling=True)
            for destination in sorted(mark.destinations)
        )
        self._write(mark.done())
        return moved

    def _check_counts(self, mark: Mark) -> None:
        wanted = {task: count for task, count in mark.tasks.items() if count}
        if not wanted:
            return
        tasks = self._connection.dialect.bind_texts(list(wanted))
        counted = self._execute("stage_count", tasks=tasks, after=mark.after)
        found = {task: int(count) for task, count in counted}
        if found != wanted:
            raise Incomplete(
                f"The stage {self._table} holds {sum(found.values())} of the {sum(wanted.values())} messages that the batch "
                "has staged"
            )

    def _move(self, destination: str, tasks: Sequence[str], after: int, *, settling: bool) -> int:
        which = self._which(destination, tasks)

        def move(queue: str, columns: str, values: str) -> int:
            statement = self._render("stage_move", queue=queue, columns=columns, values=values)
            rows, done_to = 0, after
            while (up_to := self._end_of_chunk(which, done_to)) is not None:
                bound = {**which, "after": done_to, "up_to": up_to}
                rows += self._connection.modify(statement, bound, doing=f"sending to {destination}")
                done_to = up_to
                if up_to == HIGHEST:
                    break
            return rows

        return self._into(destination, move, settling=settling)

    def _into(self, destination: str, insert: Callable[[str, str, str], int], *, settling: bool) -> int:
        """Let ``insert`` fill a destination: it is given the destination's name and columns, quoted, and what these get."""
        dialect = self._connection.dialect
        table = Table.from_text(destination)
        found = queues.find(self._connection, table)
        if found is None:
            pasted = for_shell(table.to_address(quoted=dialect.quoted_addresses))
            raise QueueError(
                f"The destination {destination} is not there any more, and its messages wait on the stage {self._table}; "
                f"create it again with: sqlqueue create {pasted}, and start the stream."
            )
        columns = [dialect.quote(each) for each in present_columns(columns_of(self._connection, found))]
        values = columns
        if due := due_column(found.columns):  # it has nowhere a time of expiry, and on SQL Server no Ids
            columns, values = [*columns, dialect.quote(due)], [*values, dialect.staged_due]
        try:
            return insert(dialect.table(table), ", ".join(columns), ", ".join(values))
        except SqlQueueError as error:
            if isinstance(error, TryAgain) and not isinstance(error, Duplicate):
                raise
            raise _refusal(destination, self._table, error, settling=settling) from error

    def _end_of_chunk(self, which: Parameters, after: int) -> int | None:
        """The last row that one statement may move, None when none is left.

        Where many row locks never become a table lock, one statement may move all rows.
        """
        if not self._connection.dialect.escalates:
            return HIGHEST
        rows = self._connection.dialect.written
        last: int | None = self._execute("stage_next", **which, after=after, count=rows)[0][0]
        return last

    def _which(self, destination: str, tasks: Sequence[str]) -> Parameters:
        """The parameters that say which rows of the stage are meant."""
        return {"destination": destination, "tasks": self._connection.dialect.bind_texts(tasks)}

    def _execute(self, statement: str, /, **parameters: object) -> list[tuple]:  # type: ignore[type-arg] # rows differ
        with self._explained():
            return self._connection.execute(self._render(statement), parameters, doing=self._doing)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the rights that a stage needs, which are not those of a queue."""
        try:
            yield
        except NoRight as error:
            stream = self._table.table.removesuffix(_SUFFIX)
            raise error.needing(
                "a stage needs SELECT, INSERT and UPDATE on its table, and TRUNCATE (on SQL Server ALTER) to be emptied; "
                f"{remedy_command(self._connection.dialect, RECEIVER, '--stream', stream)} writes the statements."
            ) from error.__cause__

    def _render(self, name: str, **identifiers: str) -> Statement:
        return self._connection.dialect.render(
            name, stage=self._connection.dialect.table(self._table), **identifiers
        )


def _refusal(destination: str, stage: Table, error: SqlQueueError, *, settling: bool) -> SqlQueueError:
    """The error for a destination that refuses what a stage has for it."""
    kind = ConfigurationError if isinstance(error, ConfigurationError) else QueueError
    taken = "A row with that Id is there already: " if isinstance(error, Duplicate) else ""
    if settling:
        remedy = "take it away" if taken else "Mend the table or the rights to it"
        return kind(
            f"The destination {destination} refuses a message of a batch that is done: {error} Its messages wait on the stage "
            f"{stage}, and its rows in the queue. {taken}{remedy}, and start the stream."
        )
    remedy = (
        "leave the column Id out of the frame, and each message gets a new one"
        if taken
        else "Mend the table or the rights to it, or send elsewhere"
    )
    return kind(
        f"The destination {destination} refuses a message that this batch sends: {error} Nothing of the batch was sent, and its "
        f"rows stay in the queue. {taken}{remedy}; the batch then runs again."
    )
