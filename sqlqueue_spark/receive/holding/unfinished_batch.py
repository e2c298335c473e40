"""Locks a claim again after its locks were lost: the same rows, proven to be the same, or none.

The receiver needs this when a connection is lost before the claim was settled, when a new process finds a
logged batch and its rows may still be there, and when Spark replays a batch.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark import plain_text
from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES
from sqlqueue_spark.errors import QueueError, RowsHeld, SqlQueueError
from sqlqueue_spark.messages.message import ORIGIN
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import LOWEST, bounded
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import OF_ORIGIN, keys
from sqlqueue_spark.tables.queues import Queue

log = plain_text.logger(__name__)


def relock(queue: Queue, wanted: Offset) -> QueueRows | None:
    """Lock what is left of the rows of one queue, and wait for rows that others hold.

    :returns: the rows; None where the rows with these numbers are not the claim's. None also for a batch of
        mode ``none``, which has claimed no rows: what its workers did not take was not emitted either.
    :raises RowsHeld: another session held a row for longer than ``lockTimeout``; the message says who.
    """
    if wanted.taken:
        return None
    if queue.identity() != wanted.identity:
        log.warning("not_the_same_table queue=%s rows=%d: dropped and created again since; nothing of the "
                    "batch is looked for", queue.table.name, wanted.claimed)  # fmt: skip
        return None
    left = QueueRows(queue=queue, witnesses=wanted.witnesses)
    try:
        with queue.connection.patient():
            for row_version, size in queue.lock(wanted.live):
                left.live.append(row_version)
                left.sizes.append(size)
            for row_version, _ in queue.lock(wanted.expired):
                left.expired.append(row_version)
    except RowsHeld as error:
        raise RowsHeld(
            f"Rows of an unfinished batch of {queue.table.name} are still held {_by_whom(queue, wanted)} "
            "after waiting lockTimeout; end that session if it is a stopped stream, or raise lockTimeout."
        ) from error
    except ValueError as error:
        raise QueueError(
            f"A RowVersion of an unfinished batch occurs twice in {queue.table.name} ({error}); the identity "
            "was reseeded: empty the queue by its own receivers and seed it above all rows."
        ) from error
    if not left.count:
        return left
    there = queue.ids(list(wanted.witnesses))
    if there and all(wanted.witnesses[row_version] == row_id for row_version, row_id in there.items()):
        return _up_to(left, max(there))
    log.warning("not_the_same_rows queue=%s rows=%d: the rows with these numbers are other messages (the "
                "table was truncated or restored), or every witness was taken; none is touched",
                queue.table.name, left.count)  # fmt: skip
    return None


def locked_again(session: QueueSession, wanted: Sequence[Offset]) -> list[QueueRows]:
    """Lock what is left of a batch, in each of its queues, in the open transaction. Errors as :func:`relock`.

    What a queue has no more, because it is gone or because its rows are others now, does not hold up the
    rest.
    """
    while True:
        parts: list[QueueRows] = []
        refused: list[Offset] = []
        for each in wanted:
            if (queue := session.named(each.queue)) is None:
                log.warning("not_the_same_table queue=%s rows=%d: dropped since; nothing of the batch is "
                            "looked for", each.queue, each.claimed)  # fmt: skip
                continue
            if (rows := relock(queue, each)) is None:
                refused.append(each)
            parts.append(rows or QueueRows(queue=queue, witnesses=each.witnesses))
        if not refused:
            return parts
        session.connection.rollback()  # it may have locked rows that are not the batch's
        if len(wanted) == 1:
            return parts
        wanted = [each for each in wanted if each not in refused]


def known_to_the_sink(part: QueueRows, options: SourceOptions) -> QueueRows:
    """The locked rows of a logged batch whose outcome the sink's outbox knows, and those that had expired.

    A server that fails over to an asynchronous replica may have forgotten what the sink had committed. Where
    the sink's outbox lies in the database of the queue (``outboxEndpoint``), it tells. All other rows are
    free again: they come in later batches, and the outboxes drop what they know.

    :raises QueueError: there is no such outbox.
    """
    outbox = OutboxTable(part.queue.connection, options.outbox_endpoint or "", options.default_schema)
    left = QueueRows(queue=part.queue, expired=part.expired, witnesses=part.witnesses)
    sizes, digits = iter(part.sizes), part.queue.table.digits
    portions = bounded(part.sizes, part.queue.connection.dialect.chunk, RECORD_BATCH_BYTES)
    for chunk in part.live.cut(portions):
        found = part.queue.headers_of(chunk.rows())
        texts = []
        for version, (row_id, headers) in found.items():
            told = (headers or "").partition(f'"{ORIGIN}":"')[2].partition('"')[0]
            texts.append(f"{Origin.of(row_id, version, told).key}-{digits}")
        by_key = dict(zip(keys(pa.array(texts, pa.string()), "", OF_ORIGIN).to_pylist(), found, strict=True))
        known = {by_key[each] for each in outbox.seen(by_key)}
        for version, size in zip(chunk.rows(), sizes, strict=False):
            if version in known:
                left.live.append(version)
                left.sizes.append(size)
    if given_back := len(part.live) - len(left.live):
        log.warning("given_back queue=%s rows=%d: the outbox of %s does not know an outcome of them, so they "
                    "come again, and what was sent of them is not sent twice",
                    part.name, given_back, options.outbox_endpoint)  # fmt: skip
    return left


def _up_to(rows: QueueRows, last: int) -> QueueRows:
    """The rows up to the last witness: a witness that matches proves the rows before it, and none after it.

    A table that was restored from a copy goes on from the copy's last number. If the copy was made in the
    middle of the claim, a number above the last witness can belong to a message that came since.
    """
    live, expired = (runs.between(LOWEST, last) for runs in (rows.live, rows.expired))
    kept = replace(rows, live=live, expired=expired, sizes=rows.sizes[: len(live)])
    if left := rows.count - kept.count:
        log.info("left_unproven rows=%d: they stand above the last witness and will be claimed anew", left)
    return kept


def _by_whom(queue: Queue, wanted: Offset) -> str:
    try:
        queue.connection.rollback()
        holders = {holder for runs in (wanted.live, wanted.expired) if runs for holder in queue.holders(runs)}
    except SqlQueueError:
        return "by a session that this login may not see"
    return "by " + (", ".join(sorted(map(str, holders))) or "another session")
