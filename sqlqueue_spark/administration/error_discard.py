"""Moves failed messages out of an error queue into a file; no message is deleted before it is on the disk.

A batch is one transaction. It locks the rows that are free, writes them to the file, syncs the file, deletes
the rows and commits. After an interruption each message is in the file, in the queue, or in both.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.administration.error_queue import BATCH_ROWS, opened
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.own_file import opened as opened_file
from sqlqueue_spark.tables.queues import InTransit


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """How many messages were discarded from a queue.

    :ivar held: how many selected rows were locked or taken by other sessions.
    """

    queue: str
    discarded: int
    held: int


def meant(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    *,
    looked: Callable[[int], object] = lambda _: None,
) -> tuple[str, int]:
    """Return the name of the error queue, and how many messages :func:`discard` would take out now.

    :param looked: is called with the number of rows read since its last call.
    """
    with opened(options, queue, selection, looked=looked) as error_queue:
        return error_queue.admin.name, sum(row.is_failure for row in error_queue.rows())


def discard(
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    file: Path,
    *,
    progress: Callable[[int], object] = lambda _: None,
) -> Discarded:
    """Take the selected failed messages out of the queue and append them to a file, one line of JSON each.

    :param file: a new file is readable by its owner only.
    :param progress: is called after each commit with the number of messages in it.
    :raises ConfigurationError: the file cannot be written.
    """
    with opened(options, queue, selection) as error_queue, _appended(file) as out:
        count = held = 0
        for batch in error_queue.batches(BATCH_ROWS):
            with queue_tables.changing(options, error_queue.admin, deleting=True):
                rows = [each for each, _ in error_queue.lock(batch)]
                fail_points.step(fail_points.DISCARD_LOCKED)
                _write(file, out, error_queue.admin.name, rows)
                fail_points.step(fail_points.DISCARD_WRITTEN)
                error_queue.delete(rows)
                fail_points.step(fail_points.DISCARD_DELETED)
            fail_points.step(fail_points.DISCARD_COMMITTED)
            count += len(rows)
            held += len(batch) - len(rows)
            progress(len(rows))
        return Discarded(queue=error_queue.admin.name, discarded=count, held=held)


@contextlib.contextmanager
def _appended(file: Path) -> Iterator[BinaryIO]:
    """Open a file for appending. If an earlier process died in the middle of a line, end that line first."""
    with _told(file):
        out = os.fdopen(opened_file(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+", buffering=0)
    with out:
        with _told(file):
            size = out.seek(0, os.SEEK_END)
            if size:
                out.seek(size - 1)
                if out.read(1) != b"\n":
                    out.write(b"\n")
            else:
                _keep_name(file)
        yield out


def _write(file: Path, out: BinaryIO, queue: str, rows: Sequence[InTransit]) -> None:
    lines = "".join(f"{json.dumps(_line(queue, row))}\n" for row in rows).encode("ascii")
    with _told(file):
        left = memoryview(lines)
        while left:
            left = left[out.write(left) :]
        os.fsync(out.fileno())


def _line(queue: str, row: InTransit) -> dict[str, object]:
    """Return all columns of a row, and when it was discarded."""
    return {
        "queue": queue,
        "rowVersion": row.row_version,
        "id": row.id,
        "correlationId": row.correlation_id,
        "replyToAddress": row.reply_to,
        "expires": None if row.expires is None else f"{row.expires.isoformat()}Z",
        "headers": row.headers,
        "bodyBase64": None if row.body is None else base64.b64encode(row.body).decode("ascii"),
        "discarded": f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z",
    }


def _keep_name(file: Path) -> None:
    """Sync the folder, so that a new file survives a crash of the machine. Not every system supports this."""
    with contextlib.suppress(OSError):
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"The file {str(file)!r} cannot be written ({error.strerror}); nothing more is discarded. "
            "Name another one with --to-file."
        ) from error
