"""Reads a task on a worker over a connection of its own: its rows are read and counted, or taken."""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connection import RECORD_BATCH_ROWS
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import MOST_WAITING, Reader, Target, open_reader
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, LockTimeout, TryAgain
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.receive.reading.first_reading import ONLY, Reading, check_first
from sqlqueue_spark.receive.reading.slices import JOINT_SCHEMA, SCHEMA, Slice, Task
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet

_TAKEN = SCHEMA.append(pa.field("expired", pa.bool_()))

#: How long a worker keeps its connection for the next slice.
_IDLE_SECONDS = 30.0


class SliceReader:
    """Reads slices on a worker, one after the other, over a connection of its own."""

    def __init__(self, target: Target, reading: Reading = ONLY) -> None:
        self._target = target
        self._reading = reading

    def rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Read or take the rows of a task, as each slice says."""
        for part in task:
            for batch in self.take(part) if part.asking else self.read(part):
                yield _with_queue(batch, part)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice in RowVersion order, and exactly those.

        :raises ClaimLost: fewer rows are there than were claimed, or other rows have their numbers; Spark
            must not log the batch.
        """
        hasty = replace(self._target, lock_timeout=min(self._target.lock_timeout, MOST_WAITING))
        seen = 0
        try:
            for batch in self._batches(part, hasty, lambda error: not isinstance(error, LockTimeout)):
                _check_same(batch, part)
                seen += batch.num_rows
                yield batch
                fail_points.step(fail_points.HALF_READ)
        except LockTimeout as error:
            raise LockTimeout(
                f"A slice of {part.queue} could not be read within {hasty.lock_timeout.total_seconds():.0f} "
                "s, so its task fails: another session has locked the whole table, or waits to alter it, "
                "which it cannot before this batch is done, while senders wait behind it; give that "
                "statement a lock timeout, or stop the stream for it."
            ) from error
        if seen != len(part.rows):
            raise ClaimLost(
                f"A slice of {part.queue} has {seen} of the {len(part.rows)} rows that were claimed: the "
                "claim's transaction was lost and another consumer took rows, so this batch fails; start the "
                "stream again to replay it."
            )

    def take(self, part: Slice) -> Generator[pa.RecordBatch, None, None]:
        """Delete the free rows of a slice, commit, and yield the unexpired ones in RowVersion order.

        :raises ConfigurationError: another reading has the slice; nothing is taken.
        """
        if part.asking is not None:
            check_first(part.asking, part.queue, self._reading)
        patience = Retry(f"taking from {part.queue}")

        def taken(rows: RowSet) -> list[pa.RecordBatch]:
            with _let_in(), _KEPT.lent(self._target) as reader:
                return reader.take(part.statement, rows, _TAKEN)

        for rows in part.rows.cut(part.counts):
            # It runs again even where the answer to a commit was lost: only at-most-once is promised.
            batches = patience.retried(partial(taken, rows))
            fail_points.step(fail_points.ROWS_TAKEN)
            yield from _unexpired(batches)

    def peek(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges that are there, in RowVersion order; others may take rows meanwhile."""
        for part in task:
            for batch in self._batches(part, self._target):
                yield _with_queue(batch, part)

    def _batches(
        self, part: Slice, target: Target, worth_it: Callable[[TryAgain], bool] = lambda _: True
    ) -> Iterator[pa.RecordBatch]:
        """Read a slice. After an error that may pass, go on behind the last row, on a new connection."""
        patience = Retry(f"reading {part.queue}")
        batches, seen = self._attempt(part, target), LOWEST

        def following() -> pa.RecordBatch | None:
            with _let_in():
                return next(batches, None)

        def begin_again(_: TryAgain) -> None:
            nonlocal batches
            batches = self._attempt(replace(part, rows=part.rows.between(seen + 1, HIGHEST)), target)

        try:
            while (batch := patience.retried(following, worth_it, on_failure=begin_again)) is not None:
                yield batch
                seen = batch["RowVersion"][-1].as_py()
        finally:
            batches.close()

    def _attempt(self, part: Slice, target: Target) -> Generator[pa.RecordBatch, None, None]:
        with _KEPT.lent(target) as reader:
            for rows in part.ranges():
                whole = len(rows) == rows.last - rows.first + 1
                found = reader.batches(part.statement, rows, SCHEMA)
                with contextlib.closing(found) as batches:
                    for batch in batches:
                        kept = batch if whole else _only(batch, rows)
                        if kept.num_rows:
                            yield kept


def _with_queue(batch: pa.RecordBatch, part: Slice) -> pa.RecordBatch:
    """The rows of a slice, with the column ``Queue`` where the stream has one."""
    if not part.address:
        return batch
    addresses = pa.repeat(pa.scalar(part.address, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, addresses], schema=JOINT_SCHEMA)


def _check_same(batch: pa.RecordBatch, part: Slice) -> None:
    """Refuse other rows with the numbers of the claimed ones: the table was truncated and filled again."""
    numbers = batch["RowVersion"]
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    for row_version, row_id in part.witnesses.items():
        if not first <= row_version <= last:
            continue
        at = pc.index(numbers, pa.scalar(row_version, pa.int64())).as_py()
        if at >= 0 and (found := batch["Id"][at].as_py()) != row_id:
            raise ClaimLost(
                f"The row with RowVersion {row_version} of {part.queue} was the message {row_id} when it was "
                f"claimed, and is {found} now: the claim's transaction was lost and the table truncated or "
                "restored, so this batch fails; start the stream again, which leaves the rows of others "
                "alone."
            )


@contextlib.contextmanager
def _let_in() -> Iterator[None]:
    """Treat a refusal that may pass as a lost connection, so that the worker tries again."""
    try:
        yield
    except ConfigurationError as error:
        if not error.may_pass:
            raise
        raise ConnectionLost(str(error)) from error


def _only(batch: pa.RecordBatch, rows: RowSet) -> pa.RecordBatch:
    """Those rows of a record batch that belong to the claim; the batch is in RowVersion order."""
    numbers = batch.column("RowVersion")
    claimed = rows.between(numbers[0].as_py(), numbers[-1].as_py()).rows()
    return batch.filter(pc.is_in(numbers, value_set=pa.array(claimed, pa.int64())))


def _unexpired(taken: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The unexpired rows of one statement, in RowVersion order: SQL Server deletes in no order."""
    rows = pa.Table.from_batches(taken, _TAKEN)
    if pc.any(rows["expired"]).as_py():
        rows = rows.filter(pc.invert(rows["expired"]))
    rows = rows.drop_columns("expired")
    numbers = rows["RowVersion"].combine_chunks()
    if not pc.all(pc.less(numbers[:-1], numbers[1:])).as_py():
        rows = rows.sort_by("RowVersion")
    yield from rows.to_batches(max_chunksize=RECORD_BATCH_ROWS)


class _Kept:
    """The connection that a worker process keeps between slices: a new one costs as much as 40,000 rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Target, Reader] | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def lent(self, target: Target) -> Iterator[Reader]:
        """The kept connection, if it leads to the same place, else a new one; closed if the block fails."""
        kept = self._exchanged(None)
        if kept is not None and kept[0] != target:
            kept[1].close()
            kept = None
        reader = open_reader(target) if kept is None else kept[1]
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self._keep((target, reader))

    def _exchanged(self, kept: tuple[Target, Reader] | None) -> tuple[Target, Reader] | None:
        """Keep this from now on, and return what was kept."""
        with self._lock:
            before, self._kept = self._kept, kept
            if self._timer is not None:
                self._timer.cancel()
            if kept is not None:
                self._timer = threading.Timer(_IDLE_SECONDS, self._keep, [None])
                self._timer.daemon = True
                self._timer.start()
        return before

    def _keep(self, kept: tuple[Target, Reader] | None) -> None:
        if (replaced := self._exchanged(kept)) is not None:
            replaced[1].close()


_KEPT = _Kept()
