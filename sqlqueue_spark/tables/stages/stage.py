"""The stage of an atomic pipeline: what a batch sends, kept until its claim is settled.

Each worker stages rows under the name of its task, in transactions of its own. When Spark has accepted the
tasks, the sink seals the stage: it writes into the mark which tasks' rows count, and how many they are.
Settling the claim moves these rows into their destinations in the claim's own transaction. So a message is at
its source or at its destination, never at both or at neither. Rows of other tasks are void, and stay until
the stage is cleared.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from sqlqueue_spark.engines.connection import rows_awaited
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, QueueError, StatementTimeout
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.row_set import LOWEST
from sqlqueue_spark.tables.stages.stage_mark import NO_BATCH, Batch, Mark
from sqlqueue_spark.tables.stages.stage_table import Gone, StageTable
from sqlqueue_spark.tables.table_code import check_went_in

_NOT_SENT = (
    "nothing would send what is put there; give the source the sink's stream and database, and "
    "transactionMode sendsAtomicWithReceive."
)


class Incomplete(ConfigurationError):
    """Not all that a batch has staged is on the stage, so it can neither go out nor count as nothing."""


class Unsealed(Incomplete):
    """No sink has sealed the stage for the batch, or the database has lost the seal."""


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """What a sink has found on the stage before its tasks begin."""

    #: The name of the run in the stage's mark.
    name: str = ""
    #: Whether the source has rows in the batch.
    claimed: bool = False
    batch: Batch = NO_BATCH
    #: Whether the sink has seen an atomic source in this run of the query.
    source_seen: bool = False


class Stage(StageTable):
    def hold(self) -> None:
        """Hold the stage for a source as long as the connection lives, beyond the end of the transaction.

        :raises RowsHeld: another source has held it for longer than the lock timeout.
        """
        name = self.name_of_lock()
        with rows_awaited():
            self.execute("stage_hold", name=name)

    def holders(self) -> list[str]:
        """Which other sessions hold the stage: those of live sources."""
        held = self.execute("stage_held", name=self.name_of_lock())
        return ["another session of the database" if each is None else f"session {each}" for (each,) in held]

    def mark(self) -> Mark | None:
        """The mark, which stays locked until the transaction ends; None on a stage that was never opened."""
        rows = self.execute("stage_mark")
        return Mark.from_json(rows[0][0]) if rows else None

    def begin(self) -> None:
        """Write into a missing or idle mark that a source has taken the stage, with no batch yet."""
        mark = self.mark()
        if mark is None or (mark.idle and mark.batch != NO_BATCH):
            self._write(Mark())

    def open(self, claim: str, *, queue: str = "", mode: str = "") -> str:
        """Give the stage to a claim. Rows that are there already never count.

        :param queue: the claim's.
        :param mode: that of a sink which sends the batch by itself: the stage then sends nothing for the
            claim.
        :returns: the name of this run of the claim.
        :raises ConfigurationError: a sink has begun to send the batch by itself.
        """
        before = self.mark()
        if before is not None and before.claim == claim and before.mode and not mode:
            raise ConfigurationError(
                f"The unfinished batch whose messages {self.table} was to hold was taken up with "
                f"transactionMode {before.mode}, so its sink may have sent some of it by itself; start once "
                f"with transactionMode {before.mode}."
            )
        mark = Mark(
            claim=claim,
            queue=queue,
            run=str(uuid.uuid4()),
            mode=mode,
            batch=NO_BATCH if before is None else before.batch,
            sealed=bool(mode),
            after=LOWEST if (last := self.execute("stage_last")[0][0]) is None else last,
        )
        self._write(mark)
        return mark.run

    def clear(self) -> None:
        """Empty the stage but for its mark. It needs the table for itself: call it with a short timeout."""
        mark = self.mark()
        self.execute("stage_clear")
        self._insert_mark((mark or Mark()).to_json())

    def _write(self, mark: Mark) -> None:
        text = mark.to_json()
        if not self.modify("stage_seal", mark=text):
            self._insert_mark(text)

    def _insert_mark(self, text: str) -> None:
        check_went_in(self.modify("stage_open", mark=text), 1, self.table)

    def add(self, task: str, messages: "Mapping[str, pa.RecordBatch]") -> None:
        """Stage at most :attr:`Database.written` messages (:data:`OUTGOING`), by the destination as text."""
        rows, load = self.connection.dialect.bind_staged(task, messages)
        check_went_in(self.load("stage_insert", load), rows, self.table)

    def enter(self, batch: Batch, last: StageRun | None) -> StageRun:
        """Find out what a batch is staged for, and refuse to stage what would never be sent.

        :param last: what this returned for the sink's last batch.
        :raises ConfigurationError: no atomic source is there.
        """
        mark = self._opened(self.mark() if self.exists() else None)
        same_run = last is not None and last.batch.attempt == batch.attempt
        seen = (same_run and last is not None and last.source_seen) or bool(self.holders())
        # A batch without rows of the source may be the first that Spark runs again after a restart. The
        # source has not been asked for anything yet then, and does not hold the stage. The mark must tell
        # that the source was atomic before: it has a batch of this query (or of a query that Spark does not
        # name either), or no batch, because an atomic source took the stage last. If the source is not atomic
        # any more, what is staged here goes out with the next batch, and that batch is refused.
        known = not same_run and (mark.batch == NO_BATCH or mark.batch.query == batch.query)
        if mark.mode or not (seen or (known and not mark.claim)):
            raise ConfigurationError(
                f"No atomic source that runs holds the stage {self.table}: {_NOT_SENT} Where its connection "
                "was just lost, start again, and the batch runs again; where the database has lost what was "
                "committed, give a new checkpoint folder (a state that the query keeps is lost)."
            )
        return StageRun(name=mark.run, claimed=bool(mark.claim), batch=batch, source_seen=seen)

    def rehearse(
        self, tasks: Mapping[str, int | None], destination: str, *, whole: bool, named: bool = False
    ) -> None:
        """Send what these tasks have staged for a destination, or one message. The caller rolls it back.

        :param named: whether a message has named the destination, and no option.
        :raises QueueError: the destination is not there any more (:class:`Gone`), or refuses a message.
        """
        staged = [task for task, count in tasks.items() if count]
        with self.entered(destination, named=named) as to:
            if whole:
                counts = self.staged(staged, LOWEST)
                self.move_rows(destination, to, staged, LOWEST, counts, settling=False)
            else:
                self.try_row(destination, to, staged)

    def seal(
        self,
        tasks: Mapping[str, int | None],
        destinations: Sequence[str],
        *,
        run: str,
        batch: Batch = NO_BATCH,
        named: Sequence[str] = (),
        void: Collection[str] = (),
    ) -> None:
        """Seal the stage: from now on the rows of these tasks count, beside those that count already.

        :param tasks: how many messages each task has staged.
        :param run: the name that :meth:`enter` returned.
        :param named: those of the destinations that messages have named, and no option.
        :param void: tasks that do not count any more: a call that raised may have sealed them.
        :raises ConfigurationError: no source has opened the stage.
        :raises ClaimLost: a stream that took this one's place has begun the batch again, or another query's
            sink has told of a batch of its own meanwhile.
        """
        mark = self._opened(self.mark())
        if mark.run != run or (mark.sealed and mark.batch != batch):
            raise ClaimLost(
                f"The stage {self.table} was opened again while this batch ran: another run of the stream "
                "has taken it over, or another query has the same option stream, so this one ends and "
                "nothing that it staged is sent; see that the stream runs only once."
            )
        before = {task: count for task, count in mark.tasks.items() if task not in void}
        sealed = replace(
            mark,
            sealed=True,
            batch=batch,
            tasks={**before, **tasks},
            destinations=tuple(dict.fromkeys((*mark.destinations, *destinations))),
            named=tuple(dict.fromkeys((*mark.named, *named))),
        )
        self._write(sealed)

    def _opened(self, mark: Mark | None) -> Mark:
        if mark is None:
            raise ConfigurationError(
                f"The stage {self.table} belongs to no batch: {_NOT_SENT} Where the mode or the stream was "
                "changed while a batch had not ended, start once with those of before; where the database "
                "has lost what was committed, give a new checkpoint folder "
                "(a state that the query keeps is lost)."
            )
        return mark

    def move(self, claim: str) -> int | None:
        """Send what a claim has staged.

        :returns: how many messages; None when the stage is not the claim's.
        :raises Incomplete: the batch was not sealed, or rows that it counts are gone.
        :raises QueueError: a destination is not there any more, or refuses a message.
        """
        mark = self.mark()
        return None if mark is None or mark.claim != claim else self._send(mark)

    def move_waiting(self, *, before: Batch | None = None) -> int | None:
        """Send what a batch without a claim has sealed. Errors as :meth:`move`, with the remedy.

        :param before: the batch that comes next. If it is the one that waits, Spark runs it again: what an
            earlier run has staged becomes void, and what this run has staged stays as it is.
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
        """The error for an incomplete batch that cannot run again: no row of it is left in the queue."""
        return Incomplete(
            f"{error}, so it is not sent: the database has lost what was committed. To go on without these "
            f"messages, drop the table {self.table} and start the stream."
        )

    def give_up(self) -> Mark | None:
        """Make the mark idle, so that no row on the stage counts.

        :returns: the mark as it was; None if there was none, or an idle one.
        """
        mark = self.mark()
        if mark is None or mark.idle:
            return None
        self._write(mark.done())
        return mark

    def _send(self, mark: Mark) -> int:
        if not mark.sealed:
            raise Unsealed(f"The stage {self.table} was opened for the batch, but never sealed")
        wanted = {task: count for task, count in mark.tasks.items() if count}
        tasks, after = list(mark.tasks), mark.after
        if _by_task(staged := self.staged(tasks, after), wanted) != wanted:
            staged = self.staged(tasks, after := LOWEST)  # the numbers of the stage may have begun again
        if (found := _by_task(staged, wanted)) != wanted:
            raise Incomplete(
                f"The stage {self.table} holds {sum(found.values())} of the {sum(wanted.values())} messages "
                "that the batch has staged"
            )
        self._write(mark.done())
        moved = 0
        for each in sorted(mark.destinations):
            named = each in mark.named
            try:
                with (
                    self.entered(each, named=named) as to,
                    self.connection.attempt() if named else nullcontext(),
                ):
                    moved += self.move_rows(each, to, tasks, after, staged)
            except (QueueError, ConfigurationError, StatementTimeout) as error:
                if not named and not isinstance(error, Gone):
                    raise
                moved += self.fail_rows(each, tasks, after, error)
        return moved


def _by_task(staged: Mapping[tuple[str, str], int], tasks: Collection[str]) -> dict[str, int]:
    """How many messages each of these tasks has staged, of those that :meth:`Stage.staged` counts."""
    found = dict.fromkeys(tasks, 0)
    for (task, _), count in staged.items():
        if task in found:
            found[task] += count
    return found
