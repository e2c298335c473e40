"""Reads what a Delta table has recorded of a query, and what its checkpoint says.

The commit of a batch holds an action ``txn`` with the query's id and the batch's number, as Spark's own Delta
sink writes it. Files are read through the JVM, so any store works that Spark can reach.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from pyspark.sql import SparkSession

from sqlqueue_spark.pipeline.delta.checkpoint import Checkpoint, Recorded, mark_in


class DeltaTable:
    """The log of a Delta table; the table need not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._files = _Files(spark)

    def newest(self, query_id: str) -> int | None:
        """The newest batch that the table has of a query."""
        _, snapshot = self._now()
        batches = snapshot.transactions()
        return int(batches.apply(query_id)) if batches.contains(query_id) else None

    def recorded(self, query_id: str) -> Recorded | None:
        """The newest batch that the table has of a query, and its mark; None if the log has lost its commit.

        The batch is in the newest commit, unless others have written since.
        """
        log, snapshot = self._now()
        folder = log.logPath().toString()
        for version in range(snapshot.version(), -1, -1):
            commit = self._files.text(f"{folder}/{version:020}.json")
            if commit is None:
                return None
            if (found := batch_in(commit, query_id)) is not None:
                return found
        return None

    def _now(self) -> tuple[Any, Any]:
        """The table's log and its newest snapshot."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 -- the way to Delta's log
        delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
        both = delta_log.forTableWithSnapshot(self._spark._jsparkSession, self._path)  # noqa: SLF001
        return both.productElement(0), both.productElement(1)


class CheckpointFolder:
    """The folder of a streaming query's checkpoint, which Spark makes and keeps."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._folder = folder
        self._files = _Files(spark)

    def read(self) -> Checkpoint:
        """Read what the checkpoint says now; a folder that is not there yet says nothing."""
        metadata = self._files.text(f"{self._folder}/metadata")
        return Checkpoint(
            folder=self._folder,
            query_id=None if metadata is None else json.loads(metadata)["id"],
            begun=max(self._batches("offsets"), default=None),
            done=max(self._batches("commits"), default=None),
        )

    def digest(self, batch: int) -> str:
        """A digest of what ``offsets`` says of a batch that was begun; it never changes."""
        said = self._files.text(f"{self._folder}/offsets/{batch}")
        assert said is not None, "Spark logs a batch before it begins"
        return hashlib.sha256(said.encode()).hexdigest()

    def _batches(self, log: str) -> list[int]:
        names = self._files.names(f"{self._folder}/{log}")
        return [int(name) for name in names if re.fullmatch(r"\d+", name)]


class _Files:
    """Files of any store that Spark can reach."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 -- the way to Hadoop's file systems
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 -- likewise

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if there is no such folder."""
        path, store = self._at(folder)
        return [each.getPath().getName() for each in store.listStatus(path)] if store.exists(path) else []

    def text(self, file: str) -> str | None:
        """The content of a file; None if there is no such file."""
        path, store = self._at(file)
        if not store.exists(path):
            return None
        stream = store.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        return path, path.getFileSystem(self._conf)


def batch_in(commit: str, query_id: str) -> Recorded | None:
    """The query's batch that a commit of the log holds, if it holds one."""
    batch, said = None, None
    for line in commit.splitlines():
        if query_id in line and (txn := json.loads(line).get("txn", {})).get("appId") == query_id:
            batch = int(txn["version"])
        elif line.startswith('{"commitInfo"'):
            said = json.loads(line)["commitInfo"].get("userMetadata")
    return None if batch is None else Recorded(batch, mark_in(said))
