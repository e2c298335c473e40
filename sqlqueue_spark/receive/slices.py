"""One slice of a batch: the driver plans it, and a worker reads and counts its rows, or takes them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import RECORD_BATCH_BYTES, RECORD_BATCH_ROWS, Reader, Target, open_reader
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, LockTimeout, TryAgain
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.receive.claim import Claimed
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet, balanced, bounded

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

_NOBODY: Mapping[int, str] = MappingProxyType({})
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


@dataclass(frozen=True, kw_only=True)
class JointSlice:
    """What one task reads, or takes, of several queues: a slice of each, one after the other."""

    #: With the address that stands in the column ``Queue`` of its rows.
    slices: tuple[tuple[str, Slice], ...]


@dataclass(frozen=True, kw_only=True)
class Share:
    """The rows of one queue in a batch."""

    statement: Statement
    queue: str
    claimed: Claimed
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: What stands in the column ``Queue``.
    address: str = ""


def plan_jointly(shares: Sequence[Share], pieces: int, small_row: int | None = None) -> list[JointSlice]:
    """Cut the rows of several queues into at most ``pieces`` slices of similar bytes: a slice has a fixed cost.

    The rows of one queue are in RowVersion order, within a slice and from one to the next. ``small_row`` as for :func:`plan`.
    """
    return _joined(shares, pieces, lambda share, counts: _cut(share, counts, small_row))


def plan_taking_jointly(shares: Sequence[Share], pieces: int, most_rows: int) -> list[JointSlice]:
    """As :func:`plan_jointly`, for workers that take the rows."""

    def cut(share: Share, counts: Iterable[int]) -> list[DestructiveSlice]:
        return _to_take(share.claimed, _cut(share, counts), most_rows)

    return _joined(shares, pieces, cut)


def _joined(
    shares: Sequence[Share], pieces: int, cut: Callable[[Share, Iterable[int]], Sequence[Slice]]
) -> list[JointSlice]:
    counts = balanced(itertools.chain.from_iterable(share.claimed.sizes for share in shares), pieces)
    ends = set(itertools.accumulate(counts))
    joined: list[list[tuple[str, Slice]]] = [[]]
    seen = 0
    for share in shares:
        rows = len(share.claimed.live)
        if not rows:
            continue
        inner = sorted(end - seen for end in ends if seen < end < seen + rows)
        its = [after - before for before, after in itertools.pairwise([0, *inner, rows])]
        for part in cut(share, its):
            joined[-1].append((share.address, part))
            seen += len(part.rows)
            if seen in ends:
                joined.append([])
    return [JointSlice(slices=tuple(each)) for each in joined if each]


def plan(
    statement: Statement,
    queue: str,
    claimed: Claimed,
    pieces: int,
    small_row: int | None = None,
    *,
    witnesses: Mapping[int, str] = _NOBODY,
) -> list[Slice]:
    """Cut a claim into at most ``pieces`` contiguous slices of similar bytes.

    :param small_row: bytes up to which a row is small; None where size makes no difference.
    :param witnesses: the Ids of some dozens of rows, by RowVersion. A slice may have none of them, and that is enough: the
        first and the last row of the claim are always witnesses, and Spark does not log a batch of which one slice fails.
    """
    share = Share(statement=statement, queue=queue, claimed=claimed, witnesses=witnesses)
    return _cut(share, balanced(claimed.sizes, pieces), small_row)


def _cut(share: Share, counts: Iterable[int], small_row: int | None = None) -> list[Slice]:
    """Slices of so many rows each."""
    slices: list[Slice] = []
    begin = 0
    for rows in share.claimed.live.cut(counts):
        end = begin + len(rows)
        small = _small(rows, share.claimed.sizes[begin:end], small_row)
        vouching = {at: its for at, its in share.witnesses.items() if len(rows.between(at, at))}
        slices.append(
            Slice(statement=share.statement, queue=share.queue, rows=rows, small=small, witnesses=vouching)
        )
        begin = end
    return slices


def plan_taking(statement: Statement, queue: str, rows: Claimed, pieces: int, most_rows: int) -> list[Slice]:
    """As :func:`plan`, for workers that take the rows: at most ``most_rows`` and a record batch's bytes a statement."""
    return [*_to_take(rows, plan(statement, queue, rows, pieces), most_rows)]


def _to_take(claimed: Claimed, parts: Iterable[Slice], most_rows: int) -> list[DestructiveSlice]:
    """The slices that are taken, of the slices of a claim."""
    slices: list[DestructiveSlice] = []
    begin = 0
    for part in parts:
        end = begin + len(part.rows)
        counts = tuple(bounded(claimed.sizes[begin:end], most_rows, RECORD_BATCH_BYTES))
        slices.append(
            DestructiveSlice(statement=part.statement, queue=part.queue, rows=part.rows, counts=counts)
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

    def rows(self, part: Slice | JointSlice) -> Iterator[pa.RecordBatch]:
        """Read or take the rows of a slice, whichever its kind says, with the column ``Queue`` where it is of several queues."""
        if isinstance(part, JointSlice):
            for address, one in part.slices:
                for batch in self.rows(one):
                    yield with_queue(batch, address)
        else:
            yield from self.take(part) if isinstance(part, DestructiveSlice) else self.read(part)

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

    def peek(self, part: Slice | JointSlice) -> Iterator[pa.RecordBatch]:
        """The rows of a range that are there, in RowVersion order; others may take rows meanwhile."""
        if isinstance(part, JointSlice):
            for address, one in part.slices:
                for batch in self._batches(one, self._target):
                    yield with_queue(batch, address)
        else:
            yield from self._batches(part, self._target)

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


def with_queue(batch: pa.RecordBatch, address: str) -> pa.RecordBatch:
    """Rows with the address of their queue in the column ``Queue``."""
    addresses = pa.repeat(pa.scalar(address, pa.string()), batch.num_rows)
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
    yield from rows.to_batches(max_chunksize=RECORD_BATCH_ROWS)


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
