"""Moves failed messages out of an error queue into a file; no message is deleted before it is on the disk.

A batch is written to the file, and the file is synced, in the transaction that deletes its rows. After an
interruption each message is in the file, in the queue, or in both.
"""

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from sqlqueue_spark.administration import Progress, untold
from sqlqueue_spark.administration.error_queue import opened
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.own_file import opened as opened_file
from sqlqueue_spark.tables.queues import InTransit

#: Before the last field of a line.
DISCARDED = ', "discarded": '


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """How many messages of a queue were discarded, or would be; ``held`` are locked or taken by others."""

    queue: str
    discarded: int
    held: int


def plan(
    options: ConnectionOptions, queue: str, selection: Selection, *, looked: Progress = untold
) -> Discarded:
    """Return what :func:`discard` would do now."""
    with opened(options, queue, selection, looked=looked) as error_queue:
        count = sum(row.goes(stopping=selection.stopping) for row in error_queue.rows(selection.message_ids))
        return Discarded(queue=error_queue.admin.name, discarded=count, held=0)


def discard(
    options: ConnectionOptions, queue: str, selection: Selection, file: Path, *, progress: Progress = untold
) -> Discarded:
    """Take the selected failed messages out of the queue and append them to a file, one line of JSON each.

    :param file: a new file is readable by its owner only.
    :raises ConfigurationError: the file cannot be written.
    """
    with opened(options, queue, selection) as error_queue, _appended(file) as out:
        name = error_queue.admin.name

        def keep(locked: list[tuple[InTransit, ErrorRow]]) -> list[InTransit]:
            rows = [each for each, _ in locked]
            lines = "".join(f"{json.dumps(_line(name, row))}\n" for row in rows).encode("ascii")
            with _told(file):
                left = memoryview(lines)
                while left:
                    left = left[out.write(left) :]
                os.fsync(out.fileno())
            return rows

        count, held = error_queue.take_out(keep, progress, stopping=selection.stopping)
        return Discarded(queue=name, discarded=count, held=held)


@contextlib.contextmanager
def _appended(file: Path) -> Iterator[BinaryIO]:
    """Open a file for appending. If an earlier process died in the middle of a line, end that line first."""
    with _told(file):
        out = os.fdopen(opened_file(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+", buffering=0)
    with out:
        with _told(file):
            if size := out.seek(0, os.SEEK_END):
                out.seek(size - 1)
                if out.read(1) != b"\n":
                    out.write(b"\n")
            else:
                _keep_name(file)
        yield out


def _line(queue: str, row: InTransit) -> dict[str, object]:
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
