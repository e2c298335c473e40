"""Which rows of a batch are settled after its claim was lost: those whose outcome the sink's outbox knows.

Spark has logged the batch, but a server that fails over to an asynchronous replica may have forgotten what
the sink had committed. Where the sink's outbox lies in the database of the queue (``outboxEndpoint``), it
tells. All other rows are free again: they come in later batches, and the outboxes drop what they know.
"""

import pyarrow as pa

from sqlqueue_spark.engines.connection import RECORD_BATCH_BYTES
from sqlqueue_spark.messages.message import ORIGIN
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.row_set import bounded
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_keys import OF_ORIGIN, keys

log = logger(__name__)


def known_to_the_sink(part: QueueRows, options: SourceOptions) -> QueueRows:
    """Those of the locked rows of a queue that the outbox knows, and those that had expired.

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
