"""Sends lines of ``peek --json``, row for row and byte for byte, or lines that are bodies of new messages.

Lines are sent in order, in chunks of limited rows and bytes, each in one transaction. If the input can be
read twice, all lines are checked before the first one is sent. Every error says how many lines were sent.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import BinaryIO, NamedTuple

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import Progress, untold
from sqlqueue_spark.administration.error_discard import DISCARDED
from sqlqueue_spark.administration.message_lines import NoMessage, StoredMessage, from_line, to_rows
from sqlqueue_spark.administration.queue_tables import Draft, check, filled, opened
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, Duplicate, SqlQueueError
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.outgoing import uuid_text
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.row_set import portions
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.insert import CHUNK, insert, insert_stored
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: Maximum bytes of the lines of one transaction; a larger line is a transaction of its own.
_CHUNK_BYTES = 8 << 20
#: Lines that are checked between two calls of ``checked``.
_CHECKED_LINES = 1_000
#: Width of the columns CorrelationId and ReplyToAddress, in characters.
_COLUMN_LETTERS = 255
#: Of a message at which .NET endpoints stop until its row is deleted.
_STOPS = "{}, at which .NET endpoints stop; {}, or have it sent all the same with --stopping"


@dataclass(frozen=True, kw_only=True)
class Input:
    """The lines to send; ``skip`` of them at the beginning are left out.

    :ivar name: the name of the input in error messages.
    :ivar again: whether the input can be read a second time from its current position.
    """

    source: BinaryIO
    name: str
    again: bool
    skip: int = 0


@dataclass(kw_only=True)
class Restored:
    """How much is committed: the number of messages, and up to which line of the input."""

    messages: int = 0
    lines: int = 0


class _Line(NamedTuple):
    number: int
    size: int
    message: StoredMessage


def restore(
    options: ConnectionOptions,
    queue: str,
    given: Input,
    *,
    draft: Draft | None = None,
    new_ids: bool = False,
    stopping: bool = False,
    sent: Restored | None = None,
    checked: Progress = untold,
    progress: Progress = untold,
) -> Restored:
    """Send the messages of an input.

    :param draft: what the messages are beside their bodies, if a line is a body; else it is a whole row.
    :param stopping: also send rows at which .NET endpoints stop.
    :param sent: is updated after each commit, so that it is right after an interrupt too.
    :param checked: is called before anything is sent, with the number of lines checked since its last call.
    :raises SqlQueueError: the text says how many lines were sent before.
    """
    sent = Restored() if sent is None else sent
    if draft is not None:
        check(draft, several=True)
    with opened(options, queue, shaped=False) as admin:
        if admin.table.due:
            raise ConfigurationError(
                f"{admin.table.name} is a table of delayed messages, and lines do not say when they are due; "
                "name a queue."
            )
        queue_table.check_shape(admin.table, admin.connection.dialect.queue_columns)

        def inserted(messages: Sequence[StoredMessage]) -> "Iterator[pa.RecordBatch]":
            if draft is None:
                rows = to_rows(messages, new_ids=new_ids)
                insert_stored(admin.connection, admin.table, rows)
                yield rows
                return
            for rows, _ in filled(options, admin, queue, draft, [each.body for each in messages]):
                insert(admin.connection, admin.table, rows)
                yield rows

        read = _body if draft is not None else partial(_row, admin=admin, stopping=stopping)
        if given.again:
            _check(given, read, checked)
        sent.lines, refused = given.skip, list[NoMessage]()
        lines = _messages(given, read, refused)
        for chunk in portions(lines, lambda each: each.size, CHUNK, _CHUNK_BYTES):
            with _told(chunk, given, sent, admin.name) as rows, admin.changing():
                rows += [*inserted([each.message for each in chunk])]  # all, or none
                fail_points.step(fail_points.LINES_INSERTED)
            sent.messages += len(chunk)
            sent.lines = chunk[-1].number
            fail_points.step(fail_points.LINES_COMMITTED)
            progress(len(chunk))
        _check_all_read(refused, sent.lines)
    return sent


def _body(line: bytes) -> StoredMessage:
    return StoredMessage(body=line.removesuffix(b"\n").removesuffix(b"\r"))


def _row(line: bytes, *, admin: QueueAdmin, stopping: bool) -> StoredMessage:
    """Return the row of a line, or raise NoMessage if the table refuses it, before any is sent."""
    message, dialect = from_line(line), admin.connection.dialect
    nullable = {each.name.lower(): each.nullable for each in admin.table.columns}
    if message.headers is None and not nullable.get("headers"):
        raise NoMessage("it has no headers (NULL), and the table takes no such row")
    if message.body is None and not nullable.get("body"):
        raise NoMessage("it has no body (NULL), and the table takes no such row")
    if dialect.null_body_stops and not stopping:
        if message.body is None:
            raise NoMessage(_STOPS.format("it has no body (NULL)", "make it an empty one"))
        if (message.headers or "").strip() == "null":
            raise NoMessage(_STOPS.format("its headers are the JSON null", "make them {}"))
    for name, text in (("correlationId", message.correlation_id), ("replyToAddress", message.reply_to)):
        if name.lower() in nullable and text is not None and len(text) > _COLUMN_LETTERS:
            raise NoMessage(f"{name} has {len(text):,} characters, and its column takes {_COLUMN_LETTERS}")
    if not dialect.keeps_nul and "\0" in (message.headers or ""):
        raise NoMessage(f"its headers hold the character NUL, which {dialect.title} cannot keep")
    return message


@contextmanager
def _told(chunk: list[_Line], given: Input, sent: Restored, queue: str) -> "Iterator[list[pa.RecordBatch]]":
    """The transaction of a chunk stands in the block, which adds the rows that it has inserted.

    :raises SqlQueueError: also says what was sent before.
    """
    rows: list[pa.RecordBatch] = []
    lines, before = f"lines {chunk[0].number} to {chunk[-1].number}", _before(sent.lines)
    try:
        yield rows
    except SqlQueueError as error:
        said = f"{error} {before}"
        if isinstance(error, Duplicate):
            said = (
                f"{error} A row of {lines} of {given.name} is in the queue already; if these lines are "
                f"to go out once more, give their rows new Ids with --new-ids. {before}"
            )
        elif rows and isinstance(error, ConnectionLost):  # when it was committed
            first = uuid_text(rows[0]["id"][0].as_py())
            said += (
                f" Whether {lines} were sent too is not known, because the connection was lost when they "
                "were committed: before you send them again, look for the first of them with: "
                f"sqlqueue peek --id {first} {for_shell(queue)}, and ask its receivers."
            )
        raise type(error)(said) from error


def _before(lines: int) -> str:
    if not lines:
        return "Nothing was sent."
    return f"The first {lines:,} lines are done; send the rest with --skip {lines}."


def _check(given: Input, read: Callable[[bytes], StoredMessage], checked: Progress) -> None:
    begin, refused = given.source.tell(), list[NoMessage]()
    lines = _messages(given, read, refused)
    while some := sum(1 for _ in islice(lines, _CHECKED_LINES)):
        checked(some)
    _check_all_read(refused, sent=0)
    given.source.seek(begin)


def _check_all_read(refused: list[NoMessage], sent: int) -> None:
    for why in refused:
        raise ConfigurationError(f"{why}. {_before(sent)}") from why


def _messages(
    given: Input, read: Callable[[bytes], StoredMessage], refused: list[NoMessage]
) -> Iterator[_Line]:
    """Yield the message of each line, but skipped and empty ones, up to one that is none and is ``refused``.

    An interrupted ``errors discard`` may have written a row twice, which differs in its last field alone.
    """
    number, seen = 0, set[bytes]()
    for number, line in enumerate(given.source, 1):
        if row := line.rpartition(DISCARDED.encode())[0]:
            if (known := hashlib.blake2b(row, digest_size=16).digest()) in seen:
                continue
            seen.add(known)
        if number <= given.skip or not line.strip():
            continue
        try:
            message = read(line)
        except NoMessage as why:
            refused.append(NoMessage(f"Line {number} of {given.name} is no message: {why}"))
            return
        yield _Line(number, len(line), message)
    if number < given.skip:
        raise ConfigurationError(
            f"There are only {number:,} lines in {given.name}, so that --skip {given.skip} leaves "
            "none; correct the number."
        )
