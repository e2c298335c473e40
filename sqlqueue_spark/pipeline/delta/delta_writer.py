"""Writes each batch of a stream into a Delta table exactly once; Spark logs no batch that Delta lacks.

Spark's own Delta sink silently skips a batch whose number Delta has. That is right for a replay, and a loss
where the number is another batch's. Our writer uses the same id and number, and looks at what Delta has under
them before Spark may log the batch. Of two concurrent transactions of one id Delta lets one fail.

The commit of a batch holds an action ``txn`` with the query's id and the batch's number, as Spark's own Delta
sink writes it. Files are read through the JVM, so any store works that Spark can reach.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.pipeline.delta.checkpoint import (
    Recorded,
    check_start,
    check_written,
    mark_in,
    marked,
    put_back,
)
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint, Files
from sqlqueue_spark.spark.error_boundary import end_if_stopped

#: The setting of the user's session for what Delta writes into each commit.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: Delta's error when another program has committed a batch of this query while we wrote one.
_CONFLICT = "ConcurrentTransactionException"
#: Writes a frame into the table of a path; the mapping holds Delta's options that make it exactly once.
Write = Callable[[DataFrame, str, Mapping[str, str]], None]


def append(df: DataFrame, table: str, once: Mapping[str, str]) -> None:
    df.write.format("delta").mode("append").options(**once).save(table)


class DeltaWriter:
    """A function for ``foreachBatch``: make it before the query starts; the query calls it with each batch.

    :param write: how a batch goes into the table, which need not be there yet.
    :raises ConfigurationError: the checkpoint has gone back behind what the table has.
    """

    def __init__(self, spark: SparkSession, table: str, checkpoint: str, write: Write = append) -> None:
        self._spark = spark
        self._write_into = write
        self._path = table
        self._folder = checkpoint
        self._jvm: Any = spark._jvm  # noqa: SLF001 -- the way to Delta's log
        self._files = Files(spark)
        self._before = Checkpoint.of(self._files, checkpoint)
        self._query_id = self._before.query_id
        check_start(self._before, table, self._newest())

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, or find that Delta has it already; Spark logs the batch when this returns.

        :raises ConfigurationError: Delta has another stream's batch of this number.
        """
        self._query_id = (
            self._query_id or Checkpoint.of(self._files, self._folder).query_id
        )  # Spark may have made it since
        assert self._query_id is not None, "a query that runs has an id"
        # A digest of what ``offsets`` says of the batch; it never changes.
        said = self._files.text(f"{self._folder}/offsets/{batch_id}")
        assert said is not None, "Spark logs a batch before it begins"
        own = Recorded(batch_id, hashlib.sha256(said.encode()).hexdigest())
        data = marked(own.mark or "", self._spark.conf.get(_USER_METADATA, None))
        self._write(df, {"txnAppId": self._query_id, "txnVersion": str(batch_id), "userMetadata": data})
        check_written(self._before, self._path, own, self._recorded(self._query_id))

    def _write(self, df: DataFrame, once: Mapping[str, str]) -> None:
        try:
            self._write_into(df, self._path, once)
        except Exception as error:
            if _CONFLICT in str(error):
                return  # the caller now looks whose batch that was
            end_if_stopped(error)
            raise

    def _newest(self) -> int | None:
        """The newest batch that the table has of the checkpoint's query."""
        if self._query_id is None:
            return None
        batches = self._log()[1].transactions()
        return int(batches.apply(self._query_id)) if batches.contains(self._query_id) else None

    def _recorded(self, query_id: str) -> Recorded | None:
        """The newest batch that the table has of a query, and its mark; None if the log has lost its commit.

        :raises ConfigurationError: the table was put back since to a version that lacks it.
        """
        log, snapshot = self._log()
        folder, oldest = log.logPath().toString(), snapshot.version()
        for version in range(snapshot.version(), -1, -1):
            if (commit := self._files.text(f"{folder}/{version:020}.json")) is None:
                return None
            if (found := batch_in(commit, query_id)) is not None:
                if oldest < version:
                    raise put_back(self._path, found)
                return found
            oldest = min(oldest, restored_to(commit, version))
        return None

    def _log(self) -> tuple[Any, Any]:
        delta_log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        both = delta_log.forTableWithSnapshot(self._spark._jsparkSession, self._path)  # noqa: SLF001
        return both.productElement(0), both.productElement(1)


def batch_in(commit: str, query_id: str) -> Recorded | None:
    """The query's batch that a commit of the log holds, if it holds one."""
    batch, said = None, None
    for line in commit.splitlines():
        if query_id in line and (txn := json.loads(line).get("txn", {})).get("appId") == query_id:
            batch = int(txn["version"])
        elif line.startswith('{"commitInfo"'):
            said = json.loads(line)["commitInfo"].get("userMetadata")
    return None if batch is None else Recorded(batch, mark_in(said))


def restored_to(commit: str, version: int) -> int:
    """The version of its table that a commit has put back; its own where it has put back none.

    Format: the ``commitInfo`` of Delta's RESTORE. One by a time does not say the version, and counts as -1.
    """
    for line in commit.splitlines():
        said = json.loads(line)["commitInfo"] if line.startswith('{"commitInfo"') else {}
        if said.get("operation") == "RESTORE":
            return int(said.get("operationParameters", {}).get("version") or -1)
    return version
