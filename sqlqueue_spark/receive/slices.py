"""One slice of a batch: the driver plans it, and a worker reads and counts its rows, or takes them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import BATCH_BYTES, BATCH_ROWS, Reader, Target, open_reader
from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, LockTimeout, TryAgain
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.receive.claim import Claimed
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet, balanced, bounded
from sqlqueue_spark.tables.queues import Queue

SCHEMA = pa.schema(
    [
        ("Id", pa.string()),
        ("CorrelationId", pa.string()),
        ("ReplyToAddress", pa.string()),
        ("Recoverable", pa.bool_()),
        ("Expires", pa.timestamp("us", tz="UTC")),
        ("Headers", pa.string()),
        ("Body", pa.binary()),
        ("RowVersion", pa.int64()),
    ]
)

#: The columns of a stream over several queues.
JOINT_SCHEMA = SCHEMA.append(pa.field("Queue", pa.string()))

_TAKEN = SCHEMA.append(pa.field("expired", pa.bool_()))

#: Rows that are further apart are read by separate statements: a statement costs about as much as so many rows.
_GAP = 200
#: So many small rows on end are worth a statement of their own, and further statements for the rows around them.
_RUN = 1_000
#: If more than one row in so many is large, the slice counts as having no small rows: hardly a run would be worth it.
_FEW = 500
#: So long a worker waits for a lock. Who alters the table waits for the claim, the worker behind him, and the claim for the worker:
#: no server sees that circle, and meanwhile every sender waits, too. Spark may run the task again.
MOST_WAITING = timedelta(seconds=5)
#: So long a worker keeps its connection for the next slice.
_IDLE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Rows that one task reads, and the statement that reads them."""

    statement: Statement
    queue: str
    rows: RowSet
    #: What stands in the column ``Queue`` of the rows; empty where the stream has no such column.
    address: str = ""
    #: Those of the rows that are known to be small.
    small: RowSet = field(default_factory=RowSet)
    #: The witnesses among the rows: by RowVersion, the Id when the row was claimed. They prove that the rows are the same.
    witnesses: Mapping[int, str] = field(default_factory=dict)

    def above(self, row_version: int) -> Slice:
        """The slice without its rows up to this one."""
        return replace(self, rows=self.rows.between(row_version + 1, HIGHEST))

    def ranges(self) -> Iterator[tuple[RowSet, bool]]:
        """The rows in pieces, in their order, each read by one range; and whether a piece is a run of small rows only."""
        for span in self.rows.spans(_GAP):
            begin = span.first
            for first, last in self.small.between(span.first, span.last):
                if last - first + 1 < min(_RUN, span.last - span.first + 1):
                    continue
                if begin < first and len(before := span.between(begin, first - 1)):
                    yield before, False
                yield RowSet([(first, last)]), True
                begin = last + 1
            if begin <= span.last:
                yield span.between(begin, span.last), False


@dataclass(frozen=True, kw_only=True)
class DestructiveSlice(Slice):
    """Rows that one task takes; ``counts`` says how many with each statement."""

    counts: tuple[int, ...]


#: What one task reads, or takes: slices of one queue or of several, one after the other.
Task = tuple[Slice, ...]


@dataclass(frozen=True, kw_only=True)
class Uncut:
    """The rows of one queue that are to be cut into slices."""

    statement: Statement
    queue: str
    claimed: Claimed
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: As :attr:`Slice.address`.
    address: str = ""


def address_column(queue: Queue, *, several: bool) -> str:
    """What stands in the column ``Queue`` of a queue's rows; empty where the stream has no such column."""
    table, dialect = queue.table.table, queue.connection.dialect
    return table.to_address(quoted=dialect.quoted_addresses) if several else ""


def plan(uncut: Sequence[Uncut], pieces: int, small_row: int | None = None) -> list[Task]:
    """Cut the rows of a batch for at most ``pieces`` tasks of similar bytes. A task has a fixed cost, so small queues share one.

    The rows of one queue are in RowVersion order, within a task and from one to the next. A slice may have no witness, and
    that is enough: the first and the last row of the claim are always witnesses, and Spark does not log a batch of which
    one slice fails.

    :param small_row: bytes up to which a row is small; None where size makes no difference.
    """
    return _tasks(uncut, pieces, lambda each, counts: _cut(each, counts, small_row))


def plan_taking(uncut: Sequence[Uncut], pieces: int, most_rows: int) -> list[Task]:
    """As :func:`plan`, for workers that take the rows: at most ``most_rows`` and a record batch's bytes a statement."""

    def cut(each: Uncut, counts: Iterable[int]) -> list[Slice]:
        return _to_take(each.claimed, _cut(each, counts), most_rows)

    return _tasks(uncut, pieces, cut)


def _tasks(
    uncut: Sequence[Uncut], pieces: int, cut: Callable[[Uncut, Iterable[int]], Sequence[Slice]]
) -> list[Task]:
    counts = balanced(itertools.chain.from_iterable(each.claimed.sizes for each in uncut), pieces)
    ends = set(itertools.accumulate(counts))
    tasks: list[list[Slice]] = [[]]
    seen = 0
    for each in uncut:
        rows = len(each.claimed.live)
        if not rows:
            continue
        inner = sorted(end - seen for end in ends if seen < end < seen + rows)
        for part in cut(each, [after - before for before, after in itertools.pairwise([0, *inner, rows])]):
            tasks[-1].append(part)
            seen += len(part.rows)
            if seen in ends:
                tasks.append([])
    return [tuple(each) for each in tasks if each]


def _cut(uncut: Uncut, counts: Iterable[int], small_row: int | None = None) -> list[Slice]:
    """Slices of these numbers of rows."""
    slices: list[Slice] = []
    begin = 0
    for rows in uncut.claimed.live.cut(counts):
        end = begin + len(rows)
        slices.append(
            Slice(
                statement=uncut.statement,
                queue=uncut.queue,
                address=uncut.address,
                rows=rows,
                small=_small(rows, uncut.claimed.sizes[begin:end], small_row),
                witnesses={at: its for at, its in uncut.witnesses.items() if len(rows.between(at, at))},
            )
        )
        begin = end
    return slices


def _to_take(claimed: Claimed, parts: Iterable[Slice], most_rows: int) -> list[Slice]:
    """The slices that are taken, of the slices of a claim."""
    slices: list[Slice] = []
    begin = 0
    for part in parts:
        end = begin + len(part.rows)
        slices.append(
            DestructiveSlice(
                statement=part.statement,
                queue=part.queue,
                address=part.address,
                rows=part.rows,
                counts=tuple(bounded(claimed.sizes[begin:end], most_rows, BATCH_BYTES)),
            )
        )
        begin = end
    return slices


def _small(rows: RowSet, sizes: Sequence[int], small_row: int | None) -> RowSet:
    """The rows that are known to be small; none where many are large."""
    if small_row is None:
        return RowSet()
    if max(sizes) <= small_row:  # almost always so, and no list of a million rows is made
        return rows
    large = [position for position, size in enumerate(sizes) if size > small_row]
    return RowSet() if len(large) * _FEW > len(sizes) else rows.without(large)


class SliceReader:
    """Reads slices on a worker, one after the other, over a connection of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Read or take the rows of a task, whichever the kind of its slices says."""
        for part in task:
            for batch in self.take(part) if isinstance(part, DestructiveSlice) else self.read(part):
                yield _with_queue(batch, part)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice in RowVersion order, and exactly those.

        :raises ClaimLost: fewer rows are there than were claimed, or other rows have their numbers; Spark must not log the
            batch.
        """
        hasty = replace(self._target, lock_timeout=min(self._target.lock_timeout, MOST_WAITING))
        seen = 0
        try:
            for batch in self._batches(
                part, hasty, worth_it=lambda error: not isinstance(error, LockTimeout)
            ):
                _check_same(batch, part)
                seen += batch.num_rows
                yield batch
                fail_points.step(fail_points.HALF_READ)
        except LockTimeout as error:
            raise LockTimeout(
                f"A slice of {part.queue} could not be read within {hasty.lock_timeout.total_seconds():.0f} s, so its task fails: "
                "somebody has locked the whole table, or waits to alter it, which he cannot before this batch is done, while senders "
                "wait behind him; give such a statement a lock timeout, or stop the stream for it."
            ) from error
        if seen != len(part.rows):
            raise ClaimLost(
                f"A slice of {part.queue} has {seen} of the {len(part.rows)} rows that were claimed: the claim's transaction "
                "was lost and another consumer took rows, so this batch fails; start the stream again to replay it."
            )

    def take(self, part: DestructiveSlice) -> Generator[pa.RecordBatch, None, None]:
        """Delete the free rows of a slice, commit, and then yield them in RowVersion order, without the expired ones."""
        reader = _KEPT.take(self._target)
        patience = Retry(f"taking from {part.queue}")

        def taken(rows: RowSet) -> list[pa.RecordBatch]:
            nonlocal reader
            with _let_in():
                reader = reader or open_reader(self._target)
                bound = {"first": rows.first, "last": rows.last, "count": len(rows)}
                return reader.take(part.statement, bound, _TAKEN)

        def give_up(_: TryAgain) -> None:
            nonlocal reader
            if reader is not None:
                reader.close()
            reader = None

        try:
            for rows in part.rows.cut(part.counts):
                # It runs again even where the answer to a commit was lost: only at-most-once is promised.
                batches = patience.retried(partial(taken, rows), on_failure=give_up)
                fail_points.step(fail_points.ROWS_TAKEN)
                yield from _unexpired(batches)
        except BaseException:
            if reader is not None:
                reader.close()
            raise
        if reader is not None:
            _KEPT.put(self._target, reader)

    def peek(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges that are there, in RowVersion order; others may take rows meanwhile."""
        for part in task:
            for batch in self._batches(part, self._target):
                yield _with_queue(batch, part)

    def _batches(
        self, part: Slice, target: Target, *, worth_it: Callable[[TryAgain], bool] = lambda _: True
    ) -> Iterator[pa.RecordBatch]:
        """Read a slice. After an error that may pass, go on behind the last row that was read, on a new connection.

        A connection that was kept may have died meanwhile.
        """
        patience = Retry(f"reading {part.queue}")
        batches, seen = self._attempt(part, target), LOWEST

        def following() -> pa.RecordBatch | None:
            with _let_in():
                return next(batches, None)

        def begin_again(_: TryAgain) -> None:
            nonlocal batches
            batches = self._attempt(part.above(seen), target)

        try:
            while (batch := patience.retried(following, worth_it, on_failure=begin_again)) is not None:
                yield batch
                seen = batch["RowVersion"][-1].as_py()
        finally:
            batches.close()

    def _attempt(self, part: Slice, target: Target) -> Generator[pa.RecordBatch, None, None]:
        reader = _KEPT.take(target) or open_reader(target)
        try:
            for rows, small in part.ranges():
                whole = len(rows) == rows.last - rows.first + 1
                with contextlib.closing(
                    reader.batches(part.statement, (rows.first, rows.last), SCHEMA, small=small)
                ) as batches:
                    for batch in batches:
                        kept = batch if whole else _only(batch, rows)
                        if kept.num_rows:
                            yield kept
        except BaseException:
            reader.close()
            raise
        _KEPT.put(target, reader)


def _with_queue(batch: pa.RecordBatch, part: Slice) -> pa.RecordBatch:
    """The rows of a slice, with the column ``Queue`` where the stream has one."""
    if not part.address:
        return batch
    addresses = pa.repeat(pa.scalar(part.address, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, addresses], schema=JOINT_SCHEMA)


def _check_same(batch: pa.RecordBatch, part: Slice) -> None:
    """Refuse other rows that have the numbers of the claimed ones: the table was truncated and filled again."""
    numbers = batch["RowVersion"]
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    for row_version, row_id in part.witnesses.items():
        if not first <= row_version <= last:
            continue
        at = pc.index(numbers, pa.scalar(row_version, pa.int64())).as_py()
        if at >= 0 and (found := batch["Id"][at].as_py()) != row_id:
            raise ClaimLost(
                f"The row with RowVersion {row_version} of {part.queue} was the message {row_id} when it was claimed, and is "
                f"{found} now: the claim's transaction was lost and the table truncated or restored, so this batch fails; "
                "start the stream again, which leaves the rows of others alone."
            )


@contextlib.contextmanager
def _let_in() -> Iterator[None]:
    """Treat a refusal that may pass as a lost connection, so that the worker tries again: the driver has the same login."""
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
    """The unexpired rows that one statement took, in RowVersion order: SQL Server promises no order of deleted rows."""
    rows = pa.Table.from_batches(taken, _TAKEN)
    if pc.any(rows["expired"]).as_py():
        rows = rows.filter(pc.invert(rows["expired"]))
    rows = rows.drop_columns("expired")
    numbers = rows["RowVersion"].combine_chunks()
    if not pc.all(pc.less(numbers[:-1], numbers[1:])).as_py():
        rows = rows.sort_by("RowVersion")
    yield from rows.to_batches(max_chunksize=BATCH_ROWS)


class _Kept:
    """The connection that a worker process keeps between slices: making a new one costs as much as 40,000 rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Target, Reader] | None = None
        self._timer: threading.Timer | None = None

    def take(self, target: Target) -> Reader | None:
        """The kept connection, if it leads to the same place."""
        with self._lock:
            kept, self._kept = self._kept, None
            if self._timer is not None:
                self._timer.cancel()
        if kept is None:
            return None
        if kept[0] == target:
            return kept[1]
        kept[1].close()
        return None

    def put(self, target: Target, reader: Reader) -> None:
        """Keep a connection for a while."""
        with self._lock:
            replaced, self._kept = self._kept, (target, reader)
            self._timer = threading.Timer(_IDLE_SECONDS, self._close)
            self._timer.daemon = True
            self._timer.start()
        if replaced is not None:
            replaced[1].close()

    def _close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()


_KEPT = _Kept()
