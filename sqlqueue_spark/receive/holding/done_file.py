"""The file in which a program tells which batches Spark has logged, so that they are settled at once.

Spark itself says so only when it asks for the next batch, which may be an hour later.
"""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from sqlqueue_spark import plain_text
from sqlqueue_spark.options.own_file import OwnFile, opened
from sqlqueue_spark.receive.offset import Offset

log = plain_text.logger(__name__)

_LOOK_SECONDS = 0.05
#: Files beside it, in which the source says that rows of a logged batch were given back, their claim being
#: lost; and how many rows the batch has that it has planned last.
GIVEN_BACK, RECEIVED = ".given-back", ".received"


def file_beside(done_file: Path, which: str) -> Path:
    return done_file.with_name(f"{done_file.name}{which}")


class DoneFile:
    """Watches a file and hands on what it says, on a thread of its own.

    :param path: a file with a JSON list of the end offsets of a batch that was logged. The program replaces
        the file, and never writes in place.
    :param done: what to do with each of them.
    """

    def __init__(self, path: Path, done: Callable[[Offset], object]) -> None:
        self._path = path
        self._done = done
        self._seen: object = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin to watch, if it has not begun yet. What the file says already is of an earlier run: ignored.

        A batch that was logged then may have been taken back since, and may be running again.
        """
        if self._thread is None:
            self._seen = self._version()
            self._thread = threading.Thread(target=self._watch, name="sqlqueue-done-file", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """Hand on what the file says now, if it has changed since the watch began."""
        version = self._version()
        if self._thread is None or version == self._seen:
            return
        try:
            with os.fdopen(opened(self._path, os.O_RDONLY), encoding="utf-8") as file:
                said = json.load(file)
        except (OSError, ValueError, RecursionError):
            return  # not there yet, not readable, or another user's: the next trigger settles
        self._seen = version
        for end in map(Offset.if_ours, said if isinstance(said, list) else []):
            if end is not None:
                self._done(end)

    def say(self, which: str, text: str = "") -> None:
        """Write a file beside it."""
        try:
            OwnFile(file_beside(self._path, which)).write(text)
        except OSError as error:
            elsewhere = isinstance(error, FileNotFoundError | PermissionError)  # the program (Spark Connect)
            (log.debug if elsewhere else log.warning)("not_written file=%s%s: %s", self._path, which, error)

    def _version(self) -> tuple[int, int] | None:
        try:
            there = self._path.stat()
        except OSError:
            return None
        return there.st_mtime_ns, there.st_ino

    def close(self) -> None:
        """Stop watching, and wait for the thread: it may have read that the present batch is logged."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 -- the next trigger meets it, and ends the stream
                log.warning("not_settled_yet: %s", error)
