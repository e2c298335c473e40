"""Sends the lines that ``peek --json`` prints, so that a queue can be copied, saved and restored: row for row, byte for byte.

Lines go out in their order, in portions bounded in rows and bytes, each in one transaction. Where the input can be read twice, all
lines are checked before the first one is sent. Whatever ends the sending, it is known how many lines are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import BinaryIO

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration.message_acceptance import Acceptance
from sqlqueue_spark.administration.message_lines import NoMessage, StoredMessage, from_line, to_rows
from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, Duplicate, SqlQueueError
from sqlqueue_spark.messages.outgoing import uuid_text
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables.delayed import is_delayed
from sqlqueue_spark.tables.insert import CHUNK
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: Bytes of the lines of one transaction, unless a single line has more.
_PORTION_BYTES = 8 << 20
#: So many lines are checked before somebody is told.
_TOLD = 1_000


@dataclass(frozen=True, kw_only=True)
class Input:
    """Lines from somewhere.

    :ivar name: what an error calls it.
    :ivar again: whether it can be read from where it stands a second time.
    :ivar skip: so many lines at its beginning are left out.
    """

    source: BinaryIO
    name: str
    again: bool
    skip: int = 0


@dataclass(kw_only=True)
class Sent:
    """How much is committed: messages, and up to which line of the input."""

    messages: int = 0
    lines: int = 0


@dataclass(kw_only=True)
class _Portion:
    """What goes out in one transaction; ``first`` and ``last`` are the numbers of lines."""

    first: int
    last: int
    messages: list[StoredMessage]


class _Refused(Exception):
    """A line is no message of this table."""

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
    """Send the messages of some lines.

    :param new_ids: each row gets a new Id.
    :param stopping: also rows at which .NET endpoints stop.
    :param sent: is kept up to date, for whoever is told of an interrupt.
    :param checked: is told how many more lines are checked, before anything is sent.
    :param progress: is told how many more messages are sent and committed.
    :raises SqlQueueError: the text says how many lines were sent before.
    """
    sent = Sent() if sent is None else sent
    with opened(options, queue) as admin:
        with admin.connection.transaction():
            acceptance = Acceptance.of(admin, stopping=stopping)
        if is_delayed([each.name for each in admin.columns]):
            raise ConfigurationError(
                f"{admin.table.name} is a table of delayed messages, and lines do not say when they are due; name a queue."
            )
        if given.again:
            _check(given, acceptance, checked)
        sending = _Sending(admin, queue, new_ids)
        sent.lines = given.skip
        try:
            for portion in _portions(_messages(given, acceptance)):
                sending.send(portion, given, sent)
                sent.messages += len(portion.messages)
                sent.lines = portion.last
                fail_points.step(fail_points.LINES_COMMITTED)
                progress(len(portion.messages))
        except _Refused as refused:
            raise ConfigurationError(
                f"Line {refused.line} of {given.name} is no message: {refused}. {_before(sent.lines)}"
            ) from refused
    return sent


class _Sending:
    """Sends portions over one connection."""

    def __init__(self, admin: QueueAdmin, queue: str, new_ids: bool) -> None:
        self._connection = admin.connection
        self._inserter = admin.inserter()
        self._queue = queue
        self._new_ids = new_ids

    def send(self, portion: _Portion, given: Input, sent: Sent) -> None:
        """Send a portion in a transaction of its own."""
        rows = to_rows(portion.messages, new_ids=self._new_ids)
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
                    f"{error} A row of lines {portion.first} to {portion.last} of {given.name} is in the queue already; if these lines are "
                    f"to go out once more, give their rows new Ids with --new-ids. {_before(sent.lines)}"
                )
            elif committing and isinstance(error, ConnectionLost):
                first = uuid_text(rows["id"][0].as_py())
                said = (
                    f"{error} {_before(sent.lines)} Whether lines {portion.first} to {portion.last} were sent too is not known, because "
                    f"the connection was lost when they were committed: before you send them again, look for the first of them with: "
                    f"sqlqueue peek --id {first} {for_shell(self._queue)}, and ask its receivers."
                )
            raise type(error)(said) from error


def _before(lines: int) -> str:
    """What is said of the lines before those that failed."""
    if not lines:
        return "Nothing was sent."
    return f"The first {lines:,} lines are done; send the rest with --skip {lines}."


def _check(given: Input, acceptance: Acceptance, checked: Callable[[int], object]) -> None:
    """Read all lines, and go back to where they begin."""
    begin = given.source.tell()
    try:
        lines = iter(_messages(given, acceptance))
        while some := sum(1 for _ in islice(lines, _TOLD)):
            checked(some)
    except _Refused as refused:
        raise ConfigurationError(
            f"Line {refused.line} of {given.name} is no message: {refused}. Nothing was sent."
        ) from refused
    given.source.seek(begin)


def _messages(given: Input, acceptance: Acceptance) -> Iterator[tuple[int, int, StoredMessage]]:
    """The messages with the numbers and the bytes of their lines, behind those that are skipped; an empty line is none.

    :raises _Refused: a line is no message.
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
            f"There are only {number:,} lines in {given.name}, so that --skip {given.skip} leaves none; correct the number."
        )


def _portions(messages: Iterator[tuple[int, int, StoredMessage]]) -> Iterator[_Portion]:
    """Messages as they go out together. Those before a line that is refused go out before the refusal is told."""
    portion: _Portion | None = None
    size = 0
    refused = None
    try:
        for number, bytes_, message in messages:
            if portion and (len(portion.messages) == CHUNK or size + bytes_ > _PORTION_BYTES):
                yield portion
                portion, size = None, 0
            portion = portion or _Portion(first=number, last=number, messages=[])
            portion.messages.append(message)
            portion.last = number
            size += bytes_
    except _Refused as error:
        refused = error
    if portion:
        yield portion
    if refused:
        raise refused
