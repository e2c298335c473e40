"""Sends the lines that ``peek --json`` prints: copies, saves and restores a queue row for row, byte for byte.

Lines are sent in order, in chunks of limited rows and bytes, each in one transaction. If the input can be
read twice, all lines are checked before the first one is sent. Every error says how many lines were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import BinaryIO

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration.message_lines import NoMessage, StoredMessage, from_line, to_rows
from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, Duplicate, SqlQueueError
from sqlqueue_spark.messages.outgoing import uuid_text
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables.delayed import is_delayed
from sqlqueue_spark.tables.insert import CHUNK
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: Maximum bytes of the lines of one transaction; a larger line is a transaction of its own.
_CHUNK_BYTES = 8 << 20
#: Lines that are checked between two calls of ``checked``.
_CHECKED_LINES = 1_000
#: Width of the columns CorrelationId and ReplyToAddress, in characters.
_COLUMN_LETTERS = 255


@dataclass(frozen=True, kw_only=True)
class Input:
    """The lines to send.

    :ivar name: the name of the input in error messages.
    :ivar again: whether the input can be read a second time from its current position.
    :ivar skip: how many lines at the beginning are left out.
    """

    source: BinaryIO
    name: str
    again: bool
    skip: int = 0


@dataclass(kw_only=True)
class Sent:
    """How much is committed: the number of messages, and up to which line of the input."""

    messages: int = 0
    lines: int = 0


@dataclass(kw_only=True)
class _Chunk:
    """The messages of one transaction, from line ``first`` to line ``last``."""

    first: int
    last: int
    messages: list[StoredMessage]


class _Refused(Exception):
    """A line is no message that the table accepts."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def restore(
    options: ConnectionOptions,
    queue: str,
    given: Input,
    *,
    new_ids: bool = False,
    stopping: bool = False,
    sent: Sent | None = None,
    checked: Callable[[int], object] = lambda _: None,
    progress: Callable[[int], object] = lambda _: None,
) -> Sent:
    """Send the messages of an input.

    :param new_ids: give each row a new Id.
    :param stopping: also send rows at which .NET endpoints stop.
    :param sent: is updated after each commit, so that it is right after an interrupt too.
    :param checked: is called before anything is sent, with the number of lines checked since its last call.
    :param progress: is called after each commit with the number of messages in it.
    :raises SqlQueueError: the text says how many lines were sent before.
    """
    sent = Sent() if sent is None else sent
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            acceptance = _Acceptance(admin, stopping=stopping)
        if is_delayed([each.name for each in admin.columns]):
            raise ConfigurationError(
                f"{admin.table.name} is a table of delayed messages, and lines do not say when they are due; "
                "name a queue."
            )
        if given.again:
            _check(given, acceptance, checked)
        sending = _Sending(admin, queue, new_ids)
        sent.lines = given.skip
        try:
            for chunk in _chunks(_messages(given, acceptance)):
                sending.send(chunk, given, sent)
                sent.messages += len(chunk.messages)
                sent.lines = chunk.last
                fail_points.step(fail_points.LINES_COMMITTED)
                progress(len(chunk.messages))
        except _Refused as refused:
            raise ConfigurationError(
                f"Line {refused.line} of {given.name} is no message: {refused}. {_before(sent.lines)}"
            ) from refused
    return sent


class _Acceptance:
    """Which messages a table accepts, so that a message it would refuse is found before any is sent.

    :param stopping: whether rows at which .NET endpoints stop are accepted.
    """

    def __init__(self, admin: QueueAdmin, *, stopping: bool) -> None:
        self._dialect = admin.connection.dialect
        self._nullable = {each.name.lower(): each.nullable for each in admin.columns}
        self._stopping = stopping

    def check(self, message: StoredMessage) -> None:
        """Check that the table accepts a message.

        :raises NoMessage: it does not.
        """
        if message.headers is None and not self._nullable.get("headers"):
            raise NoMessage("it has no headers (NULL), and the table takes no such row")
        if message.body is None and not self._nullable.get("body"):
            raise NoMessage("it has no body (NULL), and the table takes no such row")
        if self._dialect.null_body_stops and not self._stopping:
            _check_goes_on(message)
        for name, text in (("correlationId", message.correlation_id), ("replyToAddress", message.reply_to)):
            if name.lower() in self._nullable and text is not None and len(text) > _COLUMN_LETTERS:
                raise NoMessage(
                    f"{name} has {len(text):,} characters, and its column takes {_COLUMN_LETTERS}"
                )
        if not self._dialect.keeps_nul and "\0" in (message.headers or ""):
            raise NoMessage(f"its headers hold the character NUL, which {self._dialect.title} cannot keep")


def _check_goes_on(message: StoredMessage) -> None:
    """Refuse a message at which .NET endpoints stop until its row is deleted."""
    if message.body is None:
        found, remedy = "it has no body (NULL)", "make it an empty one"
    elif (message.headers or "").strip() == "null":
        found, remedy = "its headers are the JSON null", "make them {}"
    else:
        return
    raise NoMessage(
        f"{found}, at which .NET endpoints stop; {remedy}, or have it sent all the same with --stopping"
    )


class _Sending:
    """Sends chunks over one connection."""

    def __init__(self, admin: QueueAdmin, queue: str, new_ids: bool) -> None:
        self._connection = admin.connection
        self._inserter = admin.inserter()
        self._queue = queue
        self._new_ids = new_ids

    def send(self, chunk: _Chunk, given: Input, sent: Sent) -> None:
        """Send a chunk in its own transaction."""
        rows = to_rows(chunk.messages, new_ids=self._new_ids)
        lines = f"lines {chunk.first} to {chunk.last}"
        committing = False
        try:
            with self._connection.transaction():
                self._inserter.restore(rows)
                fail_points.step(fail_points.LINES_INSERTED)
                committing = True
        except SqlQueueError as error:
            said = f"{error} {_before(sent.lines)}"
            if isinstance(error, Duplicate):
                said = (
                    f"{error} A row of {lines} of {given.name} is in the queue already; if these lines are "
                    f"to go out once more, give their rows new Ids with --new-ids. {_before(sent.lines)}"
                )
            elif committing and isinstance(error, ConnectionLost):
                first = uuid_text(rows["id"][0].as_py())
                said = (
                    f"{error} {_before(sent.lines)} Whether {lines} were sent too is not known, because the "
                    "connection was lost when they were committed: before you send them again, look for the "
                    f"first of them with: sqlqueue peek --id {first} {for_shell(self._queue)}, and ask its "
                    "receivers."
                )
            raise type(error)(said) from error


def _before(lines: int) -> str:
    """Say how many lines were sent before an error."""
    if not lines:
        return "Nothing was sent."
    return f"The first {lines:,} lines are done; send the rest with --skip {lines}."


def _check(given: Input, acceptance: _Acceptance, checked: Callable[[int], object]) -> None:
    """Read and check all lines, then return to the beginning."""
    begin = given.source.tell()
    try:
        lines = iter(_messages(given, acceptance))
        while some := sum(1 for _ in islice(lines, _CHECKED_LINES)):
            checked(some)
    except _Refused as refused:
        raise ConfigurationError(
            f"Line {refused.line} of {given.name} is no message: {refused}. Nothing was sent."
        ) from refused
    given.source.seek(begin)


def _messages(given: Input, acceptance: _Acceptance) -> Iterator[tuple[int, int, StoredMessage]]:
    """Yield the number and the bytes of each line, and its message; leave out skipped and empty lines.

    :raises _Refused: a line is no message that the table accepts.
    """
    number = 0
    for number, line in zip(count(1), given.source, strict=False):
        if number <= given.skip or not line.strip():
            continue
        try:
            message = from_line(line)
            acceptance.check(message)
        except NoMessage as why:
            raise _Refused(number, str(why)) from why
        yield number, len(line), message
    if number < given.skip:
        raise ConfigurationError(
            f"There are only {number:,} lines in {given.name}, so that --skip {given.skip} leaves "
            "none; correct the number."
        )


def _chunks(messages: Iterator[tuple[int, int, StoredMessage]]) -> Iterator[_Chunk]:
    """Yield the messages of each transaction; those before a refused line first, then raise the refusal."""
    chunk: _Chunk | None = None
    size = 0
    refused = None
    try:
        for number, bytes_, message in messages:
            if chunk and (len(chunk.messages) == CHUNK or size + bytes_ > _CHUNK_BYTES):
                yield chunk
                chunk, size = None, 0
            chunk = chunk or _Chunk(first=number, last=number, messages=[])
            chunk.messages.append(message)
            chunk.last = number
            size += bytes_
    except _Refused as error:
        refused = error
    if chunk:
        yield chunk
    if refused:
        raise refused
