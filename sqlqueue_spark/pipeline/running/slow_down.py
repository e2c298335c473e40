"""A job slows down while most messages fail: a broken service must not empty the queue into the error queue.

A .NET endpoint then tries one message a second. A batch of ours pauses a second for each failed message, half
a minute at most. Batches follow their duration (``adaptiveBatch``), so the next ones are smaller, down to
about a message a second, and grow again when messages succeed. The first batches fail at full size.
"""

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from sqlqueue_spark.engines.database_retry import paused
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.sink import SqlQueueSink

log = logger(__name__)

#: Fewer failures than these are no sign.
_LEAST, _LONGEST_SECONDS = 10, 30


def slowing_down(sink: SqlQueueSink, stop_file: Path) -> Callable[[DataFrame, int], None]:
    """The sink of a job, for ``foreachBatch``. Nothing pauses while the source's stop file is there."""

    def send(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        if seconds := pause_after(sink.sent_in(batch_id) or Sent()):
            log.warning("slowing_down batch=%d seconds=%d: most of its messages failed", batch_id, seconds)
            paused(seconds, lambda: os.path.exists(stop_file))  # noqa: PTH110 -- as the source looks for it

    return send


def pause_after(sent: Sent) -> int:
    """How many seconds a job pauses after a batch of which this became."""
    failed = sent.failed + sent.retried
    others = max(sent.handled, sent.sent) + sent.waiting  # what is only passed on is sent, and not handled
    return min(failed, _LONGEST_SECONDS) if failed >= _LEAST and failed > others else 0
