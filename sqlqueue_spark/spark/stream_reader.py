"""The stream's reader for Spark 4.2 and later: that Spark says how far it is and how much it wants."""

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sqlqueue_spark.receive.offset import Offset, to_json
from sqlqueue_spark.spark.error_boundary import sentence_first
from sqlqueue_spark.spark.readers import QueueStreamReader


@sentence_first
class SqlQueueStreamReader(QueueStreamReader, SupportsTriggerAvailableNow):
    """A reader with admission control, ``Trigger.AvailableNow``, and metrics of how much waits."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.most_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", None)
        return to_json(self._source.latest(Offset.from_json(start), rows))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._source.waiting()

    def prepareForTriggerAvailableNow(self) -> None:
        self._source.stop_at_present_end()
