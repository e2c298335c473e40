"""Writes each batch of a stream into a Delta table exactly once; Spark logs no batch that Delta lacks.

Spark's own Delta sink silently skips a batch whose number Delta has. That is right for a replay, and a loss
where the number is another batch's. Our writer uses the same id and number. Before Spark may log the batch,
the writer looks at what Delta has under them. Of two streams on copies of one checkpoint, Delta lets one of
two concurrent transactions of one id fail, and the later stream finds the other's mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.pipeline.delta.checkpoint import Recorded, check_start, check_written, marked
from sqlqueue_spark.pipeline.delta.delta_table import CheckpointFolder, DeltaTable

#: The setting of the user's session for what Delta writes into each commit.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: Delta's error when another program has committed a batch of this query while we wrote one.
_CONFLICT = "ConcurrentTransactionException"
#: Writes a frame into the table of a path; the mapping holds Delta's options that make it exactly once.
Write = Callable[[DataFrame, str, Mapping[str, str]], None]
_STOPPED = re.compile(r"java\.(lang|io|nio\.channels)\.(Closed)?(ByInterrupt|Interrupted(IO)?)Exception")


def append(df: DataFrame, table: str, once: Mapping[str, str]) -> None:
    """Add all rows of a frame to a table."""
    df.write.format("delta").mode("append").options(**once).save(table)


class DeltaWriter:
    """A function for ``foreachBatch``: make it before the query starts; the query calls it with each batch.

    :param write: how a batch goes into the table.
    :raises ConfigurationError: the checkpoint has gone back behind what the table has.
    """

    def __init__(self, spark: SparkSession, table: str, checkpoint: str, write: Write = append) -> None:
        self._spark = spark
        self._write_into = write
        self._path = table
        self._table = DeltaTable(spark, table)
        self._folder = CheckpointFolder(spark, checkpoint)
        self._before = self._folder.read()
        self._query_id = self._before.query_id
        known = None if self._query_id is None else self._table.newest(self._query_id)
        check_start(self._before, table, known)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, or find that Delta has it already; Spark logs the batch when this returns.

        :raises ConfigurationError: Delta has another stream's batch of this number.
        """
        if self._query_id is None:  # Spark has made the checkpoint since
            self._query_id = self._folder.read().query_id
        assert self._query_id is not None, "a query that runs has an id"
        own = Recorded(batch_id, self._folder.digest(batch_id))
        self._write(df, own)
        check_written(self._before, self._path, own, self._table.recorded(self._query_id))

    def _write(self, df: DataFrame, own: Recorded) -> None:
        data = marked(own.mark or "", self._spark.conf.get(_USER_METADATA, None))
        assert self._query_id is not None, "the caller has read it"
        once = {"txnAppId": self._query_id, "txnVersion": str(own.batch), "userMetadata": data}
        try:
            self._write_into(df, self._path, once)
        except Exception as error:
            if _CONFLICT in str(error):
                return  # the caller now looks whose batch that was
            if stopped := _STOPPED.search(str(error)):
                # query.stop() came within the batch. Spark recognises it by this text. A long text makes
                # Spark overflow its stack (``StreamExecution.isInterruptionException``).
                said = "py4j.protocol.Py4JJavaError: An error occurred while calling save"
                raise SqlQueueError(f"{said}: {stopped[0]}") from None
            raise
