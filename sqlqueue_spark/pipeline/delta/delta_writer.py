"""Writes each batch of a stream into a Delta table exactly once; Spark logs no batch that Delta lacks.

The checkpoint numbers the batches of a query in its folders ``offsets`` (begun) and ``commits`` (done). Delta
has the number in its log: the commit of a batch holds an action ``txn`` with it and the query's id. Spark's
own Delta sink silently skips a batch whose number Delta has. That is right for a replay, and a loss where the
number is another batch's. Our writer uses the same id and number, and looks at what Delta has under them
before Spark may log the batch. Of two concurrent transactions of one id Delta lets one fail.

A checkpoint can go back: it is restored from a backup or copied, or its newest files are lost. Then Spark
gives new messages numbers that Delta has: Delta would skip them, Spark would log them, the source would
delete them. So the newest batch of Delta must be one that the checkpoint has begun.

Two streams on copies of one checkpoint count alike. So each commit has a *mark*, a digest of what the
checkpoint's ``offsets`` say of its batch. A replay has it too. Files are read through the JVM, so any store
works that Spark can reach.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint, Files
from sqlqueue_spark.spark.error_boundary import end_if_stopped

#: The setting of the user's session for what Delta writes into each commit.
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: Delta's error when another program has committed a batch of this query while we wrote one.
_CONFLICT = "ConcurrentTransactionException"
_FORGETS = "delta.setTransactionRetentionDuration"  # a property of a table
_MARK = re.compile(r"\bsqlqueue offsets=([0-9a-f]{64})\b")
_NEW_FOLDER = "it loses nothing, and only rows of the last batch that a crash left in the queue come twice"
#: Writes a frame into the table of a path; the mapping holds Delta's options that make it exactly once.
Write = Callable[[DataFrame, str, Mapping[str, str]], None]


@dataclass(frozen=True)
class Recorded:
    """The newest batch that a Delta table has of a query, and its mark, if the commit has one."""

    batch: int
    mark: str | None


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
        self._jvm: Any = spark._jvm  # noqa: SLF001 -- the way to Delta's log
        self._files = Files(spark)
        self._before = Checkpoint.of(self._files, checkpoint)
        self._query_id = self._before.query_id
        check_start(self._before, table, self._newest())

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, or find that Delta has it already; Spark logs the batch when this returns.

        :raises ConfigurationError: Delta has another stream's batch of this number.
        """
        # Of a new query Spark has made the id since.
        self._query_id = self._query_id or Checkpoint.of(self._files, self._before.folder).query_id
        assert self._query_id is not None, "a query that runs has an id"
        # A digest of what ``offsets`` says of the batch; it never changes.
        said = self._files.text(f"{self._before.folder}/offsets/{batch_id}")
        assert said is not None, "Spark logs a batch before it begins"
        own = Recorded(batch_id, hashlib.sha256(said.encode()).hexdigest())
        data = marked(own.mark or "", self._spark.conf.get(_USER_METADATA, None))
        # Delta may have forgotten the number of a batch that runs again. The commits in its log have it.
        again = batch_id == self._before.pending
        forgets = again and self._log()[1].metadata().configuration().contains(_FORGETS)
        found = self._recorded(self._query_id, batch_id) if forgets else None
        if again and batch_id == (self._newest() if found is None else found.batch):
            # Delta would skip it. A plan that keeps a state must run all the same, or Spark fails the query.
            df.write.format("noop").mode("overwrite").save()
        else:
            self._write(df, {"txnAppId": self._query_id, "txnVersion": str(batch_id), "userMetadata": data})
        check_written(self._before, self._path, own, self._recorded(self._query_id, batch_id))

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

    def _recorded(self, query_id: str, batch: int) -> Recorded | None:
        """The newest batch that the table has of a query, and its mark; None if the log has lost its commit.

        :raises ConfigurationError: it has this batch, and was put back since to a version that lacks it.
        """
        log, snapshot = self._log()
        folder, oldest, newest = log.logPath().toString(), snapshot.version(), None
        for version in range(snapshot.version(), -1, -1):
            if (commit := self._files.text(f"{folder}/{version:020}.json")) is None:
                break
            if (found := batch_in(commit, query_id)) is not None:
                if newest is not None:  # Spark's own sink wrote it, on a copy if ours wrote the batch before
                    return newest if found.mark is None else replace(newest, mark="")
                if oldest < version and found.batch >= batch:
                    raise ConfigurationError(
                        f"Batch {found.batch} is not logged and its messages stay in the queue, because the "
                        f"Delta table {self._path} was put back to a version without it, and Delta would not "
                        f"write it again; give this stream a new folder: {_NEW_FOLDER}."
                    )
                if (newest := found).mark is not None:
                    return found
            oldest = min(oldest, restored_to(commit, version))
        return newest

    def _log(self) -> tuple[Any, Any]:
        delta_log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        both = delta_log.forTableWithSnapshot(self._spark._jsparkSession, self._path)  # noqa: SLF001
        return both.productElement(0), both.productElement(1)


def check_start(checkpoint: Checkpoint, table: str, known: int | None) -> None:
    """Refuse to start a query if Delta would drop its messages.

    :param known: the newest batch that the table has of the checkpoint's query.
    :raises ConfigurationError: the checkpoint has gone back, or has lost its file ``metadata``.
    """
    if checkpoint.query_id is None and checkpoint.begun is not None:
        raise ConfigurationError(
            f"The checkpoint {checkpoint.folder} has no file metadata that names its query, so it is "
            f"not known which of its batches the Delta table {table} has; put the file back, or give a new "
            f"folder: {_NEW_FOLDER}."
        )
    if known is not None and (checkpoint.begun is None or known > checkpoint.begun):
        newest = "no batch" if checkpoint.begun is None else f"batch {checkpoint.begun}"
        raise ConfigurationError(
            f"The checkpoint {checkpoint.folder} has gone back: its newest is {newest}, but the Delta table "
            f"{table} has batch {known} of its query and would drop new messages under the numbers that it "
            f"has; give the newest checkpoint, or a new folder: {_NEW_FOLDER}."
        )


def check_written(checkpoint: Checkpoint, table: str, own: Recorded, found: Recorded | None) -> None:
    """Check, before Spark logs a batch, that Delta has this batch, and not another one of the same number.

    :param checkpoint: the checkpoint as it was before the start.
    :param found: what the table has of the query now; None where it no longer keeps the commit.
    :raises ConfigurationError: the table has another stream's batch.
    """
    # A version that left no mark wrote it, or it was written long ago.
    unmarked = own.batch == checkpoint.pending and found in (None, Recorded(own.batch, None))
    if found == own or unmarked:
        return
    has = "it" if found is None or found.batch == own.batch else f"batch {found.batch} of this query"
    raise ConfigurationError(
        f"Batch {own.batch} is not logged and its messages stay in the queue, because the Delta table "
        f"{table} has {has} from another stream, which runs on a copy of the checkpoint {checkpoint.folder}; "
        f"give this stream a new folder: {_NEW_FOLDER}."
    )


def marked(digest: str, by_user: str | None = None) -> str:
    """What to write into a commit's ``userMetadata``: the mark, behind what the user's settings say."""
    return f"{by_user} sqlqueue offsets={digest}" if by_user else f"sqlqueue offsets={digest}"


def mark_in(user_metadata: str | None) -> str | None:
    """The digest in a commit's ``userMetadata``, if it has one."""
    found = _MARK.search(user_metadata or "")
    return found[1] if found else None


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
