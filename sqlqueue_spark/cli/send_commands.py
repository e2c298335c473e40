"""The command ``sqlqueue send``: sends one message, a load, or the lines of a file or of standard input."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from sqlqueue_spark.administration import queue_restore, queue_tables
from sqlqueue_spark.administration.queue_restore import Input, Restored
from sqlqueue_spark.cli import output, parameters, progress
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.outgoing import COMPLETED
from sqlqueue_spark.options import ConnectionOptions


def _header(value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{value!r} is no header; write NAME=VALUE.")
    if name in COMPLETED and not text.strip():
        raise click.BadParameter(
            f"{name} cannot be empty; leave it out to have it filled in, or give a value."
        )
    return name, text


def _body(value: str) -> bytes:
    """Return a text as the body, or the content of ``@file``; ``@-`` is standard input."""
    if not value.startswith("@"):
        return value.encode()
    try:
        return sys.stdin.buffer.read() if value == "@-" else Path(value[1:]).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{value[1:]!r} cannot be read: {error.strerror}.") from None


@click.command()
@parameters.queues
@parameters.connected_to_queues
@parameters.option("--type NAME", "Type of the message, for example Sales.OrderPlaced.", name="message_type")
@parameters.option("--body TEXT|@FILE", "Body: text, @file, or @- for standard input.", _body)
@parameters.repeated("--header NAME=VALUE", "A header of the message.", _header)
@parameters.option("--ttl DURATION", "Time to be received, for example 10m.")
@parameters.option("--count N", "Send a load of sample messages instead.")
@parameters.option("--rate N", "Messages a second; default: as fast as possible.")
@parameters.option("--size N", f"Bytes of each message; default {queue_tables.MESSAGE_BYTES}.")
@parameters.option(
    "--from FILE|-",
    "Send the lines that 'sqlqueue peek --json' printed, byte for byte; with --type each line is a body. "
    "- is standard input.",
    click.Path(dir_okay=False),
    name="file",
)
@parameters.option("--skip N", "Leave out the first N lines.", parameters.Number(0))
@click.option("--new-ids", is_flag=True, help="Give each row a new Id; default: it keeps its Id.")
@click.option(
    "--stopping",
    is_flag=True,
    help="Also send lines at which .NET endpoints stop: headers that are null, or no body on PostgreSQL.",
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

    With --from each row keeps its Id, columns, time of expiry, headers and body. A column that the table
    lacks is left out. The rows get new numbers, in the order of the lines. A line may also be written by
    hand: headers and body are enough. With --from and --type each line is the body of a new message; empty
    lines are left out.

    Lines are sent in several transactions. All lines of a file are checked before the first one is sent.
    Lines from a pipe cannot be checked before: a line that is no message ends the command, after the lines
    before it were sent. If the command ends early, it says how many lines are done; send the rest with --skip
    N.
    """
    draft = queue_tables.Draft(body=body, message_type=message_type, headers=dict(headers), ttl=ttl)
    written = bool(message_type or body is not None or headers)
    contradictions = {
        "--skip, --new-ids and --stopping belong to lines; give --from too.": file is None
        and (skip is not None or new_ids or stopping),
        "Lines (--from) have bodies; leave out --body, --count, --rate and --size.": file is not None
        and (body is not None or count or rate or size),
        "Lines of JSON (--from) are sent as they are; leave out --header and --ttl, or give --type too: then "
        "each line is a body.": file is not None and message_type is None and (headers or ttl),
        "Lines (--from) go to one queue.": file is not None and len(queues) > 1,
        "A load (--count) writes its own messages; leave out --type, --body and --header.": count is not None
        and written,
        "--rate and --size belong to a load; give --count too.": count is None and (rate or size),
        "--new-ids and --stopping belong to lines of JSON; leave out --type.": message_type is not None
        and (new_ids or stopping),
    }
    for sentence, is_so in contradictions.items():
        if is_so:
            raise click.UsageError(sentence)
    if file is None and count is None:
        with parameters.words():
            queue_tables.check(draft, several=False)
    for queue in queues:
        if file is not None:
            how = {"draft": draft if message_type else None, "new_ids": new_ids, "stopping": stopping}
            sent = _send_lines(options, queue, file, skip or 0, **how)
            output.say(f"sent {output.counted(sent.messages, 'message')} to {queue}")
        elif count is None:
            output.say(f"sent {queue_tables.send(options, queue, draft)} to {queue}")
        else:
            its_size = size or queue_tables.MESSAGE_BYTES
            with progress.interruptible(count, "message", "sent") as done:
                took = queue_tables.send_load(
                    options, queue, count=count, size=its_size, rate=rate, ttl=ttl, progress=done
                ).total_seconds()
            pace = f"{count / max(took, 0.001):,.0f}/s"
            output.say(f"sent {count:,} messages to {queue} in {took:.1f} s ({pace})")


def _send_lines(options: ConnectionOptions, queue: str, file: str, skip: int, **how: Any) -> Restored:
    sent = Restored(lines=skip)

    def go_on() -> str:
        return f"; send the rest with --skip {sent.lines}"

    with (
        _opened(file, skip) as given,
        progress.bar(None, " lines", desc="checked") as checked,
        progress.interruptible(None, "message", "sent", go_on=go_on, telling=SqlQueueError) as more,
    ):

        def done(messages: int) -> None:
            if sent.messages == messages:  # the first chunk
                more.shown.reset(checked.n or None)
                checked.close()
            more(messages)

        return queue_restore.restore(
            options, queue, given, sent=sent, checked=checked.update, progress=done, **how
        )


@contextmanager
def _opened(file: str, skip: int) -> Iterator[Input]:
    """Open a file or standard input. A file can be read twice, a pipe or a terminal cannot."""
    name = "standard input" if file == "-" else f"the file {file!r}"
    try:
        opened = nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")  # noqa: SIM115
    except OSError as error:
        raise click.BadParameter(f"{file!r} cannot be read: {error.strerror}.", param_hint="--from") from None
    with opened as source:  # the block has errors of its own
        yield Input(source=source, name=name, again=source.seekable(), skip=skip)
