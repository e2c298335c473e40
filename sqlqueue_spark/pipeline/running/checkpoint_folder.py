"""What the folder of a checkpoint holds, in a store of any kind that Spark can reach."""

import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

from py4j.java_gateway import JavaClass, is_instance_of  # type: ignore[import-untyped] # it ships none
from pyspark.sql import SparkSession


class Files:
    """The files that Spark's Java reaches by their paths, through Hadoop's file systems."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 -- the way to Hadoop's file systems
        self._jvm: Any = spark._jvm  # noqa: SLF001 -- likewise
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 -- likewise

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if there is no such folder."""
        path, store = self._at(folder)
        return [each.getPath().getName() for each in store.listStatus(path)] if store.exists(path) else []

    def text(self, file: str) -> str | None:
        """The content of a file; None if there is no such file."""
        path, store = self._at(file)
        if not store.exists(path):
            return None
        with closing(store.open(path)) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def write(self, file: str, text: str) -> None:
        """Give a file this content by a new one in its place, and make the folders that it lacks."""
        path, store = self._at(file)
        store.mkdirs(path.getParent())
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        manager = streaming.checkpointing.CheckpointFileManager
        if not isinstance(manager, JavaClass):  # an earlier Spark
            manager = streaming.CheckpointFileManager
        with closing(manager.create(path, self._conf).createAtomic(path, True)) as stream:
            stream.write(bytearray(text.encode()))

    def _at(self, name: str) -> tuple[Any, Any]:
        hadoop = self._jvm.org.apache.hadoop.fs
        path = hadoop.Path(name)
        store = path.getFileSystem(self._conf)
        # A file of this machine has its checksum in another one, and a kill may leave them apart.
        checks = is_instance_of(self._gateway, store, hadoop.ChecksumFileSystem)
        return path, store.getRawFileSystem() if checks else store


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint's folder says; the newest batch of ``offsets`` is begun, that of ``commits`` done."""

    folder: str
    query_id: str | None = None
    begun: int | None = None
    done: int | None = None

    @classmethod
    def of(cls, files: Files, folder: str) -> Self:
        """What the folder says now; one that is not there yet says nothing."""
        whole = re.fullmatch(r'\{"id":"(.+)"\}\s*', files.text(f"{folder}/metadata") or "")
        begun, done = (
            [int(name) for name in files.names(f"{folder}/{log}") if re.fullmatch(r"\d+", name)]
            for log in ("offsets", "commits")
        )
        return cls(
            folder=folder,
            query_id=whole[1] if whole else None,  # a power loss may leave the file empty or cut
            begun=max(begun, default=None),
            done=max(done, default=None),
        )

    @property
    def pending(self) -> int | None:
        """The batch that was begun and not done, which Spark runs again."""
        done = self.begun is None or (self.done is not None and self.done >= self.begun)
        return None if done else self.begun
