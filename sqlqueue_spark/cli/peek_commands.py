"""The command ``sqlqueue peek``: shows the messages that are in a queue, or those that arrive."""

import sys
from collections.abc import Iterable
from itertools import islice

import click

from sqlqueue_spark.administration import queue_follow, queue_peek
from sqlqueue_spark.administration.message_lines import to_json, to_line
from sqlqueue_spark.administration.queue_peek import Looked
from sqlqueue_spark.cli import output, parameters, progress
from sqlqueue_spark.cli.message_output import Bodies, MessageTable, body_line
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import is_terminal
from sqlqueue_spark.row_set import HIGHEST, LOWEST, portions
from sqlqueue_spark.tables.queue_admin import Message

_TABLE, _JSON, _BODIES = "table", "json", "bodies"
#: Default number of messages to show, and of rows to read for them.
_SHOWN, _SCANNED = 10, 100_000
#: Most messages, and bytes of them, for which the widths of a table are chosen together.
_LAID_OUT, _LAID_OUT_BYTES = 100, 16 << 20


@click.command()
@parameters.queues
@parameters.connected_to_queues
@parameters.option("--count N", f"Maximum number of messages; default {_SHOWN}, with --follow no limit.")
@click.option("--all", "all_", is_flag=True, help="Show all messages that are in the queue now.")
@parameters.option("--after N", "Only messages with a higher number.", parameters.Number(), default=LOWEST)
@parameters.repeated(
    "--type NAME", "Only messages of this type: its full name, or the part behind the last dot."
)
@parameters.repeated("--id ID", "Only the message, or the row, of this id.")
@parameters.option(
    "--header NAME[=VALUE]",
    "Only messages with this header, and this value. May be repeated; then all must fit.",
    parameters.wanted_header,
    name="headers",
    multiple=True,
)
@parameters.option(
    "--scan N",
    f"Maximum number of rows to read for messages that fit; default {_SCANNED:,}, with --all no limit.",
)
@click.option("--bodies", is_flag=True, help="Show the beginning of each body too.")
@click.option("--whole", is_flag=True, help="Show whole bodies.")
@click.option("--follow", is_flag=True, help="Show the messages that arrive in one queue, until Ctrl-C.")
@click.option(
    "--format",
    "format_",
    type=click.Choice((_TABLE, _JSON, _BODIES)),
    default=_TABLE,
    show_default=True,
    help="How to show messages; bodies: each body alone, byte for byte, and a line feed.",
)
@click.option("--json", "format_", flag_value=_JSON, help="One JSON object a line, as --format json.")
def peek(
    *,
    options: ConnectionOptions,
    queues: tuple[str, ...],
    count: int | None,
    all_: bool,
    after: int,
    types: tuple[str, ...],
    ids: tuple[str, ...],
    headers: tuple[tuple[str, str | None], ...],
    scan: int | None,
    bodies: bool,
    whole: bool,
    follow: bool,
    format_: str,
) -> None:
    """Show the first messages without locking or deleting any.

    With --json each line is a message with all columns of its row. 'sqlqueue send QUEUE --from' sends these
    lines.

    Options that choose messages narrow one another. No index helps them: the rows are read in the order of
    their numbers, without the bodies. How many rows were read is said at the end (on stderr).

    --follow shows each row once, in the order of the numbers. A row that is committed after one with a higher
    number is shown when it appears, within a minute. A row that was received before it was seen is not shown.
    If the database is down, it is tried again until it is back.
    """
    if follow and (len(queues) > 1 or all_ or after != LOWEST or scan is not None):
        raise click.UsageError("--follow takes one queue, and neither --all nor --after nor --scan.")
    if all_ and (count is not None or scan is not None):
        raise click.UsageError("--all shows all, so it takes neither --count nor --scan.")
    if format_ != _TABLE and (bodies or whole):
        flag = "--json" if format_ == _JSON else "--format bodies"
        raise click.UsageError(f"{flag} has whole bodies; leave out --bodies and --whole.")
    selection = MessageSelection(types=frozenset(types), ids=frozenset(ids), headers=headers)
    shown = Bodies.WHOLE if whole else Bodies.BEGINNING if bodies else Bodies.NONE
    for queue in queues:
        view = _View(queue, selection, format_, shown)
        if follow:
            view.follow(options, count)
        else:
            limits = (HIGHEST, HIGHEST) if all_ else (count or _SHOWN, scan or _SCANNED)
            view.show(options, after, *limits)


class _View:
    def __init__(self, queue: str, selection: MessageSelection, format_: str, bodies: Bodies) -> None:
        self._queue = queue
        self._selection = selection
        self._format = format_
        self._table = MessageTable(bodies)
        self._looked = Looked()

    def show(self, options: ConnectionOptions, after: int, count: int, scan: int) -> None:
        with progress.bar(None, " rows", lines=True) as bar:

            def looked(found: Looked) -> None:
                bar.update(found.rows - bar.n)
                self._looked = found

            most = scan if self._selection else HIGHEST
            messages = queue_peek.look(
                options, self._queue, self._selection, after=after, count=count, most=most, looked=looked
            )
            self._print(messages, _LAID_OUT)
        if not self._looked.meant and self._format == _TABLE:
            nothing = "has no such message" if self._selection or after != LOWEST else "is empty"
            output.say(f"{self._queue} {nothing}")
        self._tell_looked(scanned=self._looked.rows >= scan)

    def follow(self, options: ConnectionOptions, count: int | None) -> None:

        def looked(found: Looked) -> None:
            if found is not self._looked and is_terminal(sys.stderr):  # it begins
                _note(f"watching {self._queue}; Ctrl-C ends it")
            self._looked = found

        messages = queue_follow.follow(options, self._queue, self._selection, note=_note, looked=looked)
        try:
            self._print(islice(messages, count), 1)
        except KeyboardInterrupt:
            output.say(err=True)
        self._tell_looked()

    def _print(self, messages: Iterable[Message], at_once: int) -> None:
        if self._format != _TABLE:
            # Bytes are UTF-8 in every locale, and click.echo would search long lines for colours.
            out = sys.stdout.buffer
            for message in messages:
                is_json = self._format == _JSON
                out.write(f"{to_line(to_json(message))}\n".encode() if is_json else body_line(message.body))
                if at_once == 1:
                    out.flush()
            out.flush()
            return
        for some in portions(messages, _size, at_once, _LAID_OUT_BYTES):
            output.lines(self._table.lines(some))

    def _tell_looked(self, *, scanned: bool = False) -> None:
        if not self._selection:
            return
        looked = self._looked
        fit = f"{looked.meant:,} fit{'s' if looked.meant == 1 else ''}"
        said = f"looked at {output.counted(looked.rows, 'row')} of {self._queue}, of which {fit}"
        if scanned and looked.more:
            said += f"; to go on behind them: --after {looked.last}"
        _note(said)


def _size(message: Message) -> int:
    return len(message.headers or "") + len(message.body or b"")


def _note(said: str) -> None:
    output.say(said, err=True)
