"""The slices of a batch: the driver cuts its rows for the tasks of the workers, by bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sqlqueue_spark.engines.connect import RECORD_BATCH_BYTES
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.receive.claiming.claim import Claimed
from sqlqueue_spark.receive.claiming.next_batch import QueueRows
from sqlqueue_spark.row_set import HIGHEST, RowSet, balanced, bounded
from sqlqueue_spark.tables.queues import Queue, read_statement

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

#: Rows that are further apart are read by separate statements: a statement costs about as much as 200 rows.
_GAP = 200
#: A run of this many small rows is worth a statement, and further ones for the rows around it.
_RUN = 1_000
#: If more than one row in 500 is large, no row counts as small: hardly a run would be worth it.
_FEW = 500


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
    #: The witnesses among the rows: by RowVersion, the Id when it was claimed. They prove the rows.
    witnesses: Mapping[int, str] = field(default_factory=dict)

    def above(self, row_version: int) -> Slice:
        """The slice without its rows up to this one."""
        return replace(self, rows=self.rows.between(row_version + 1, HIGHEST))

    def ranges(self) -> Iterator[tuple[RowSet, bool]]:
        """The rows in pieces, each read by one range; and whether a piece has small rows only."""
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


def uncut(parts: Sequence[QueueRows], *, several: bool, take: bool = False) -> list[Uncut]:
    """The rows of a batch, with the statement that reads or takes those of each queue."""
    return [
        Uncut(
            statement=read_statement(
                part.queue.connection.dialect,
                part.queue.table,
                "take" if take else "read",
                part.rows.kept_in_transit if take else (),
            ),
            queue=part.name,
            claimed=part.rows,
            witnesses=part.witnesses,
            address=address_column(part.queue, several=several),
        )
        for part in parts
    ]


def plan(batch: Sequence[Uncut], pieces: int, small_row: int | None = None) -> list[Task]:
    """Cut the rows of a batch for at most ``pieces`` tasks of similar bytes. A task has a fixed cost: small
    queues share one.

    The rows of one queue are in RowVersion order, within a task and from one to the next. A slice may have no
    witness, and that is enough: the first and the last row of the claim are always witnesses, and Spark does
    not log a batch of which one slice fails.

    :param small_row: bytes up to which a row is small; None where size makes no difference.
    """
    return _tasks(batch, pieces, lambda each, counts: _cut(each, counts, small_row))


def plan_taking(batch: Sequence[Uncut], pieces: int, most_rows: int) -> list[Task]:
    """As :func:`plan`, for workers that take the rows: a statement has ``most_rows`` and 8 MB at most."""

    def cut(each: Uncut, counts: Iterable[int]) -> list[Slice]:
        return _to_take(each.claimed, _cut(each, counts), most_rows)

    return _tasks(batch, pieces, cut)


def _tasks(
    batch: Sequence[Uncut], pieces: int, cut: Callable[[Uncut, Iterable[int]], Sequence[Slice]]
) -> list[Task]:
    counts = balanced(itertools.chain.from_iterable(each.claimed.sizes for each in batch), pieces)
    ends = set(itertools.accumulate(counts))
    tasks: list[list[Slice]] = [[]]
    seen = 0
    for each in batch:
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


def _cut(whole: Uncut, counts: Iterable[int], small_row: int | None = None) -> list[Slice]:
    """Slices of these numbers of rows."""
    slices: list[Slice] = []
    begin = 0
    for rows in whole.claimed.live.cut(counts):
        end = begin + len(rows)
        slices.append(
            Slice(
                statement=whole.statement,
                queue=whole.queue,
                address=whole.address,
                rows=rows,
                small=_small(rows, whole.claimed.sizes[begin:end], small_row),
                witnesses={at: its for at, its in whole.witnesses.items() if len(rows.between(at, at))},
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
                counts=tuple(bounded(claimed.sizes[begin:end], most_rows, RECORD_BATCH_BYTES)),
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
