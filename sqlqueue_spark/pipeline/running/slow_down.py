"""A job slows down while most messages fail: a broken service must not empty the queue into the error queue.

A .NET endpoint then tries one message a second. A batch of ours pauses a second for each failed message, half
a minute at most. Batches follow their duration (``adaptiveBatch``), so the next ones are smaller, down to
about a message a second, and grow again when messages succeed. The first batches fail at full size.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send import Sent
from sqlqueue_spark.spark.sink import SqlQueueSink

log = logger(__name__)

#: Fewer failures than these are no sign.
_LEAST = 10
_LONGEST_SECONDS = 30
_STEP_SECONDS = 0.2


@dataclass(frozen=True)
class SlowDown:
    """The sink of a job, as ``foreachBatch`` calls it.

    :param stop_file: the source's; while it is there nothing pauses.
    """

    sink: SqlQueueSink
    stop_file: Path

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.sink(df, batch_id)
        seconds = pause_after(self.sink.sent_in(batch_id) or Sent())
        if not seconds:
            return
        log.warning("slowing_down batch=%d seconds=%d: most of its messages failed", batch_id, seconds)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stop_file.exists():
            time.sleep(_STEP_SECONDS)


def pause_after(sent: Sent) -> int:
    """How many seconds a job pauses after a batch of which this became."""
    failed, went_well = sent.failed + sent.retried, max(sent.handled, sent.sent)  # some are only passed on
    return min(failed, _LONGEST_SECONDS) if failed >= _LEAST and failed > went_well else 0
