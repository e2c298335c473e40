"""The slices of a batch: the driver cuts its rows for the tasks of the workers, by bytes."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.reading.first_reading import Asking
from sqlqueue_spark.row_set import RowSet, balanced, bounded
from sqlqueue_spark.tables.queues import read_statement

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
#: A slice has a fixed cost. More than four are cut only where each is large, unless options ask for more than
#: by default. A lower ``maxConcurrency``, like the number of cores, never leads to more slices.
_FEW_SLICES, _LARGE_SLICE = 4, 125_000


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Rows that one task reads, and the statement that reads them."""

    statement: Statement
    queue: str
    rows: RowSet
    #: What stands in the column ``Queue`` of the rows; empty where the stream has no such column.
    address: str = ""
    #: The witnesses among the rows: the Ids when claimed, by RowVersion. They prove the rows the same.
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: How many rows each statement takes, where the task takes the rows; empty where it reads them.
    counts: tuple[int, ...] = ()
    #: How the task asks whether it may take the rows; None where it reads them.
    asking: Asking | None = None

    def ranges(self) -> Iterator[RowSet]:
        """The rows in pieces, each read by one range."""
        return self.rows.spans(_GAP)


def slice_count(rows: int, options: SourceOptions) -> int:
    """The most slices that a batch of this many rows is cut into."""
    most = min(options.max_concurrency, rows // options.min_messages_per_partition)
    by_default = options.min_messages_per_partition == SourceOptions.min_messages_per_partition
    if by_default and options.max_concurrency <= SourceOptions.max_concurrency:
        most = min(most, max(_FEW_SLICES, rows // _LARGE_SLICE))
    return max(1, most)


#: What one task reads, or takes: slices of one queue or of several, one after the other.
Task = tuple[Slice, ...]


def tasks_of(
    parts: Sequence[QueueRows], options: SourceOptions, take: Callable[[int], Asking] | None = None
) -> list[Task]:
    """The tasks of a batch.

    :param take: their workers take the rows, and do not only read them: how each slice asks, by its number.
    """
    if not parts:
        return []
    dialect = parts[0].queue.connection.dialect
    whole = []
    for part in parts:
        table, kept = part.queue.table, part.kept_in_transit if take else ()
        its = Slice(
            statement=read_statement(dialect, table, "take" if take else "read", kept),
            queue=part.name,
            rows=part.live,
            address=part.queue.connection.dialect.address(table.table) if options.several else "",
            witnesses=part.witnesses,
        )
        whole.append((its, part.sizes))
    pieces = slice_count(sum(len(part.live) for part in parts), options)
    if take is None:
        return plan(whole, pieces)
    numbers = itertools.count()
    return [
        tuple(replace(part, asking=take(next(numbers))) for part in task)
        for task in plan(whole, pieces, most_rows=dialect.chunk)
    ]


def plan(
    batch: Sequence[tuple[Slice, Sequence[int]]], pieces: int, *, most_rows: int | None = None
) -> list[Task]:
    """Cut a batch for at most ``pieces`` tasks of similar bytes: a task has a fixed cost; small queues share.

    The rows of one queue are in RowVersion order, within a task and from one to the next. A slice may have no
    witness, and that is enough: the first and the last row of the claim are always witnesses, and Spark does
    not log a batch of which one slice fails.

    :param batch: all rows of each queue, and their sizes in bytes.
    :param most_rows: of a statement that takes rows, which has 8 MB at most; None where the rows are read.
    """
    counts = balanced(itertools.chain.from_iterable(sizes for _, sizes in batch), pieces)
    ends = set(itertools.accumulate(counts))
    tasks: list[list[Slice]] = [[]]
    seen = 0
    for whole, sizes in batch:
        live = whole.rows
        cuts = [0, *sorted(end - seen for end in ends if seen < end < seen + len(live)), len(live)]
        pairs = list(itertools.pairwise(cuts)) if live else []
        for (begin, end), rows in zip(pairs, live.cut(end - begin for begin, end in pairs), strict=True):
            own = sizes[begin:end]
            part = replace(
                whole,
                rows=rows,
                witnesses={at: its for at, its in whole.witnesses.items() if len(rows.between(at, at))},
                counts=() if most_rows is None else tuple(bounded(own, most_rows, RECORD_BATCH_BYTES)),
            )
            tasks[-1].append(part)
            seen += len(rows)
            if seen in ends:
                tasks.append([])
    return [tuple(each) for each in tasks if each]
