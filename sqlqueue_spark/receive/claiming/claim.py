"""Claims the next rows, as many of them as fit, and deletes them again when their batch is done."""

import heapq
import itertools
import operator
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlqueue_spark import plain_text
from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES
from sqlqueue_spark.engines.dialect import ClaimedColumns
from sqlqueue_spark.errors import ClaimLost, QueueError
from sqlqueue_spark.messages.body import LARGEST_ROW
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import RowSet, portions
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)

#: How many rows the first statement of a claim locks, before their sizes are known.
_FIRST_CHUNK = 256

#: Tells which of some rows of a queue are messages in transit to another queue.
Elsewhere = Callable[[Queue, Sequence[int]], Collection[int]]


@dataclass(kw_only=True)
class QueueRows:
    """The rows of one queue in a batch. After a replay they may be fewer than the offset names."""

    queue: Queue
    live: RowSet = field(default_factory=RowSet)
    expired: RowSet = field(default_factory=RowSet)
    #: The bytes of the live rows in order.
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    bytes: int = 0
    #: A limit ended the claim. It locked no row above, where more are likely to wait.
    full: bool = False
    #: Rows of others stood between those that were locked, as far as the engine tells.
    stepped_over: bool = False
    #: Messages in transit among the rows, and their bytes: they are locked, and not claimed.
    in_transit: dict[int, int] = field(default_factory=dict)
    #: Claimed rows whose headers name a way that ends here, or that they cannot go.
    kept_in_transit: list[int] = field(default_factory=list)
    #: The Ids of some dozens of the rows that the offset names, by RowVersion.
    witnesses: Mapping[int, str] = field(default_factory=dict)
    #: The open transaction has deleted the rows already. Others see that only when it is committed.
    deleted: bool = False
    #: The rows are locked. In mode ``none`` they were only seen.
    locked: bool = True

    @property
    def name(self) -> str:
        """The canonical name of the queue."""
        return self.queue.name

    @property
    def count(self) -> int:
        """How many rows there are, with the expired ones."""
        return len(self.live) + len(self.expired)

    @property
    def last(self) -> int:
        """The highest RowVersion among the rows."""
        return max(runs.last for runs in (self.live, self.expired) if runs)

    def offset(self, identity: str) -> Offset:
        """What the offset says of this queue; ``identity`` is its table's."""
        live, expired, witnesses = self.live, self.expired, self.witnesses
        return Offset(queue=self.name, identity=identity, live=live, expired=expired, witnesses=witnesses)

    def delete(self) -> None:
        """Delete the rows in the open transaction, if that is not done yet.

        :raises ClaimLost: more rows were deleted than are locked, or fewer; the caller must not commit.
        """
        if self.deleted:
            return
        if (deleted := self.queue.delete(self.live) + self.queue.delete(self.expired)) != self.count:
            raise ClaimLost(
                f"Deleting from {self.name} found {deleted} of {self.count} locked rows, so nothing was "
                "deleted; stop what keeps rows (a trigger, a rule) or changes them without locking them."
            )


def claim(queue: Queue, after: int, up_to: int, limits: BatchLimits, elsewhere: Elsewhere) -> QueueRows:
    """Lock rows above ``after`` and up to ``up_to`` in RowVersion order until a limit, or until none is left.

    One statement locks at most ``Dialect.chunk`` rows, and no more than fit if they have the mean size of the
    rows before. Rows that then do not fit are not claimed, but stay locked until the transaction ends. The
    next claim takes them first. A claim whose rows are enough by now ends as at a limit. On a heap the caller
    has to claim again where rows of others were stepped over: see :func:`claim_again`.

    :param elsewhere: which of the rows that may be messages in transit are to go elsewhere. These are not
        claimed.
    """
    claimed = gather(queue, queue.claim, after, up_to, limits, elsewhere=elsewhere)
    # We ask only where it matters: on a heap, and before the next batch is claimed ahead where others step
    # over each row.
    if claimed.count and (queue.table.keeps_skipped or (claimed.full and not queue.table.row_versions)):
        # The claim looked up to its last row, or to the end if it got too few.
        claimed.stepped_over = queue.count(after, claimed.last if claimed.full else up_to) > claimed.count
    return claimed


def claim_again(before: QueueRows) -> QueueRows:
    """Lock the rows of a claim that was rolled back, but for those that were taken meanwhile, and no other.

    The claim before had stepped over rows of others. On a heap it may have kept the index key of one of them.
    The session that holds that row and then needs its key would wait until the batch is settled. It might
    hold what the batch needs.
    """
    claimed = QueueRows(queue=before.queue, full=before.full, stepped_over=True, in_transit=before.in_transit)
    for columns in before.queue.claim_runs(RowSet(heapq.merge(before.live, before.expired))):
        _add(claimed, columns, before.bytes, frozenset())
    return claimed


def gather(
    queue: Queue,
    next_rows: Callable[[int, int, int], ClaimedColumns | None],
    after: int,
    up_to: int,
    limits: BatchLimits,
    *,
    elsewhere: Elsewhere,
) -> QueueRows:
    """The rows of :func:`claim` by another statement: a look locks none, and takes expired rows for live."""
    claimed = QueueRows(queue=queue)
    chunk = min(_FIRST_CHUNK, queue.connection.dialect.chunk)
    while (want := min(chunk, limits.rows - claimed.count)) > 0:
        if (columns := next_rows(after, up_to, want)) is None:
            return claimed
        after, found = columns[0][-1], len(columns[0])
        columns = _readable(queue, columns)
        leaving = _leaving(queue, columns, elsewhere) if columns[3] else frozenset()
        claimed.kept_in_transit += [each for each in columns[3] if each not in leaving]
        if not _add(claimed, columns, limits.bytes, leaving) or found < want:
            return claimed
        if limits.enough is not None and limits.enough(claimed.count):
            break
        if claimed.live:
            mean = max(1, claimed.bytes // len(claimed.live))
            chunk = min(queue.connection.dialect.chunk, (limits.bytes - claimed.bytes) // mean)
    claimed.full = True
    return claimed


def _readable(queue: Queue, columns: ClaimedColumns) -> ClaimedColumns:
    """Without the rows that no client can read: these stay in the queue."""
    row_versions, expired, sizes, maybe = columns
    if max(sizes) <= LARGEST_ROW:
        return columns
    reads = [over or size <= LARGEST_ROW for over, size in zip(expired, sizes, strict=True)]
    kept, kept_expired, kept_sizes = ([*itertools.compress(each, reads)] for each in columns[:3])
    left = set(row_versions).difference(kept)
    for each in left:
        plain_text.warn_once(
            log, "too_large_to_read queue=%s row=%d: it has more than %d bytes, so it stays there; delete it "
                 "with SQL", queue.table.name, each, LARGEST_ROW,
        )  # fmt: skip
    return kept, [*map(bool, kept_expired)], kept_sizes, [each for each in maybe if each not in left]


def _leaving(queue: Queue, columns: ClaimedColumns, elsewhere: Elsewhere) -> Collection[int]:
    """The rows that go elsewhere, as their headers say. Long headers are read in portions."""
    row_versions, _, sizes, maybe = columns
    size_of = dict(zip(row_versions, sizes, strict=True)).__getitem__
    parts = portions(maybe, size_of, len(maybe), RECORD_BATCH_BYTES)
    return {each for part in parts for each in elsewhere(queue, part)}


def _add(claimed: QueueRows, columns: ClaimedColumns, most_bytes: int, leaving: Collection[int]) -> bool:
    """Add the rows of one statement as far as they fit, and return whether all did.

    :param leaving: those of the rows that are messages in transit.
    """
    row_versions, expired, sizes, _ = columns
    if not row_versions:
        return True
    first, total = row_versions[0], sum(sizes)
    in_a_row = all(map(operator.eq, row_versions, itertools.count(first)))
    if in_a_row and not leaving and not any(expired) and claimed.bytes + total <= most_bytes:
        claimed.live.append(first, row_versions[-1])  # almost always so, and ten times as fast
        claimed.sizes.extend(sizes)
        claimed.bytes += total
        return True
    for row_version, is_expired, size in zip(*columns[:3], strict=True):
        if row_version in leaving and not is_expired:
            claimed.in_transit[row_version] = size
            continue
        if not is_expired and claimed.live and claimed.bytes + size > most_bytes:
            return False
        try:
            (claimed.expired if is_expired else claimed.live).append(row_version)
        except ValueError as error:
            raise QueueError(
                f"RowVersion {row_version} occurs twice in {claimed.name}, so a claim cannot name its rows; "
                "the identity was reseeded: empty the queue by its own receivers and seed it above all rows."
            ) from error
        if not is_expired:
            claimed.sizes.append(size)
            claimed.bytes += size
    return True
