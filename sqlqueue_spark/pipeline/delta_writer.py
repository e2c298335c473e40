"""Writes each batch of a stream into a Delta table exactly once, and lets Spark log none that Delta does not have.

Spark's own Delta sink skips a batch whose number Delta has and says nothing: right for a replay, and a loss where the
number is another batch's. Here a batch is written under the same id and number, and before Spark may log it, it is looked
at what Delta has of it. Two streams on copies of one checkpoint may both get here: Delta lets one of two concurrent
transactions of an id fail, and who comes later finds the other's mark.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.pipeline.checkpoint import Recorded, check_start, check_written, marked
from sqlqueue_spark.pipeline.delta_table import CheckpointFolder, DeltaTable

#: What the user's session writes into each commit.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: Somebody else has committed a batch of this query while we wrote one.
_CONFLICT = "ConcurrentTransactionException"
_STOPPED = re.compile(r"java\.(lang|io|nio\.channels)\.(Closed)?(ByInterrupt|Interrupted(IO)?)Exception")


class DeltaWriter:
    """For ``foreachBatch``: made before the query starts, called by it with each batch.

    :raises ConfigurationError: the checkpoint has gone back behind what the table has.
    """

    def __init__(self, spark: SparkSession, table: str, checkpoint: str) -> None:
        self._spark = spark
        self._path = table
        self._table = DeltaTable(spark, table)
        self._folder = CheckpointFolder(spark, checkpoint)
        self._before = self._folder.read()
        self._query_id = self._before.query_id
        known = None if self._query_id is None else self._table.newest(self._query_id)
        check_start(self._before, table, known)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, or find it written; Spark logs it when this returns.

        :raises ConfigurationError: Delta has another stream's batch of this number.
        """
        if self._query_id is None:  # Spark has made the checkpoint since
            self._query_id = self._folder.read().query_id
        assert self._query_id is not None, "a query that runs has an id"
        own = Recorded(batch_id, self._folder.digest(batch_id))
        self._write(df, own)
        check_written(self._before, self._path, own, self._table.recorded(self._query_id))

    def _write(self, df: DataFrame, own: Recorded) -> None:
        said = marked(own.mark or "", self._spark.conf.get(_USER_METADATA, None))
        once = {"txnAppId": self._query_id, "txnVersion": str(own.batch), "userMetadata": said}
        try:
            df.write.format("delta").mode("append").options(**once).save(self._path)
        except Exception as error:
            if _CONFLICT in str(error):
                return  # whose batch it was, is looked at now
            if stopped := _STOPPED.search(str(error)):
                raise _stopped(stopped[0]) from None
            raise


def _stopped(by: str) -> SqlQueueError:
    """What ``query.stop()`` in the middle of a batch ends it with: Spark knows it by this text, and by a long one overflows
    its stack (``StreamExecution.isInterruptionException``).
    """
    return SqlQueueError(f"py4j.protocol.Py4JJavaError: An error occurred while calling save: {by}")
