"""The command ``sqlqueue send``: one message, a load of them, or those of a file or of standard input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import click

from sqlqueue_spark.administration import queue_restore, queue_tables
from sqlqueue_spark.administration.queue_restore import Input, Sent
from sqlqueue_spark.cli import output, parameters, progress
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.options import ConnectionOptions


@click.command()
@parameters.queues
@parameters.connected
@click.option(
    "--type",
    "message_type",
    type=parameters.some_text,
    metavar="NAME",
    help="Type of the message, such as Sales.OrderPlaced.",
)
@click.option(
    "--body", type=parameters.body, metavar="TEXT|@FILE", help="Body: text, @file, or @- for standard input."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    type=parameters.header,
    metavar="NAME=VALUE",
    help="A header of its own.",
)
@click.option(
    "--ttl", type=parameters.time_span, metavar="DURATION", help="Time to be received, such as 10m."
)
@click.option("--count", type=click.IntRange(1), help="Send a load of so many realistic messages instead.")
@click.option("--rate", type=click.IntRange(1), help="Messages a second of a load; else as fast as it goes.")
@click.option(
    "--size", type=click.IntRange(1), help=f"Bytes of a load's message, else {queue_tables.MESSAGE_BYTES}."
)
@click.option(
    "--from",
    "file",
    type=click.Path(dir_okay=False),
    metavar="FILE|-",
    help="Send what 'sqlqueue peek --json' printed, byte for byte: a message a line; - is standard input.",
)
@click.option("--skip", type=click.IntRange(0), metavar="N", help="Leave out so many lines at the beginning.")
@click.option("--new-ids", is_flag=True, help="Give each row of the file a new Id; else it keeps its own.")
@click.option(
    "--stopping",
    is_flag=True,
    help="Also send lines at which .NET endpoints stop: without a body (NULL) on PostgreSQL, or with the headers null.",
)
def send(
    *,
    options: ConnectionOptions,
    queues: tuple[str, ...],
    message_type: str | None,
    body: bytes | None,
    headers: tuple[tuple[str, str], ...],
    ttl: timedelta | None,
    count: int | None,
    rate: int | None,
    size: int | None,
    file: str | None,
    skip: int | None,
    new_ids: bool,
    stopping: bool,
) -> None:
    """Send one message (its standard headers are filled in), a load, or the lines of a file.

    With --from the rows are as they were: Id, columns, time of expiry, headers and body; a column that the table does not have is
    left out. They get new numbers, in the order of the lines. A line may also be written by hand: headers and body suffice.

    Lines go out in portions, each in one transaction. All lines of a file are checked before the first one is sent. What comes
    through a pipe cannot be checked before: at a line that is no message it ends when the lines before it are sent. Whatever it
    ends at, it says how many lines are done; send the rest with --skip N.
    """
    written = bool(message_type or body is not None or headers)
    if file is None and (skip is not None or new_ids or stopping):
        raise click.UsageError("--skip, --new-ids and --stopping belong to lines; give --from too.")
    if file is not None and (written or ttl or count or rate or size):
        raise click.UsageError(
            "Lines (--from) are sent as they are; leave out --type, --body, --header, --ttl, --count, --rate and --size."
        )
    if file is not None and len(queues) > 1:
        raise click.UsageError("Lines (--from) go to one queue.")
    if count is not None and written:
        raise click.UsageError(
            "A load (--count) writes its own messages; leave out --type, --body and --header."
        )
    if count is None and (rate or size):
        raise click.UsageError("--rate and --size belong to a load; give --count too.")
    for queue in queues:
        if file is not None:
            _send_lines(options, queue, file, skip or 0, new_ids=new_ids, stopping=stopping)
        elif count is None:
            draft = queue_tables.Draft(body=body, message_type=message_type, headers=dict(headers), ttl=ttl)
            output.say(f"sent {queue_tables.send(options, queue, draft)} to {queue}")
        else:
            _send_load(options, queue, count, size=size or queue_tables.MESSAGE_BYTES, rate=rate, ttl=ttl)


def _send_load(
    options: ConnectionOptions,
    queue: str,
    count: int,
    *,
    size: int,
    rate: int | None,
    ttl: timedelta | None,
) -> None:
    with progress.portions(count, "message", "sent") as sent:
        took = queue_tables.send_load(
            options, queue, count=count, size=size, rate=rate, ttl=ttl, progress=sent
        ).total_seconds()
    output.say(f"sent {count:,} messages to {queue} in {took:.1f} s ({count / max(took, 0.001):,.0f}/s)")


def _send_lines(
    options: ConnectionOptions, queue: str, file: str, skip: int, *, new_ids: bool, stopping: bool
) -> None:
    sent = Sent(lines=skip)
    portions = progress.portions(
        None,
        "message",
        "sent",
        go_on=lambda: f"; send the rest with --skip {sent.lines}",
        telling=SqlQueueError,
    )
    with (
        _opened(file, skip) as given,
        progress.bar(None, " lines", desc="checked") as checked,
        portions as more,
    ):

        def done(messages: int) -> None:
            if not sent.messages - messages:  # the first portion
                more.expect(checked.n or None)
                checked.close()
            more(messages)

        queue_restore.restore(
            options,
            queue,
            given,
            new_ids=new_ids,
            stopping=stopping,
            sent=sent,
            checked=checked.update,
            progress=done,
        )
    output.say(f"sent {output.counted(sent.messages, 'message')} to {queue}")


@contextmanager
def _opened(file: str, skip: int) -> Iterator[Input]:
    """The lines of a file or of standard input. A regular file can be read twice, a pipe cannot."""
    if file == "-":
        source = sys.stdin.buffer
        yield Input(source=source, name="standard input", again=_is_regular(source), skip=skip)
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 -- closed below; what the block raises is no error of opening
    except OSError as error:
        raise click.BadParameter(f"{file!r} cannot be read: {error.strerror}.", param_hint="--from") from None
    with opened as source:
        yield Input(source=source, name=f"the file {file!r}", again=_is_regular(source), skip=skip)


def _is_regular(source: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except (OSError, ValueError):  # what stands for standard input has no number
        return False
