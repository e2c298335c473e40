"""The commands of ``sqlqueue errors``: list, show, retry and discard."""

import functools
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from sqlqueue_spark.administration import error_discard, error_queue, failed_retry
from sqlqueue_spark.cli import failed_output, output, parameters, progress
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST

#: Default number of rows that a list shows to people.
_LISTED = 20


@click.group()
def errors() -> None:
    """Look into an error queue, put failed messages back, or take them out.

    ERRORQUEUE is the address of the error queue; default: error. Options that choose messages narrow one
    another.
    """


_queue = parameters.argument("queue", "[ERRORQUEUE]", required=False, default="error")


def _selecting(command: parameters.Command) -> parameters.Command:
    """Add the options that choose messages. The command gets them as ``selection``."""
    options = parameters.together(
        parameters.option("--failed-queue QUEUE", "Only messages that failed for this queue."),
        parameters.option(
            "--exception-type NAME",
            "Only failures of this exception type: its full name, or the part behind the last dot.",
        ),
        parameters.option(
            "--older-than DURATION",
            "Only messages that failed at least that long ago, for example 1h, by their header.",
        ),
        parameters.option("--newer-than DURATION", "Only messages that failed more recently."),
        parameters.repeated(
            "--message-id ID",
            "Only the message of this id, or the row if its message has no id.",
            callback=lambda _, __, ids: frozenset(ids),
        ),
        click.option("--stopping", is_flag=True, help="Only rows that stop ServiceControl's reading."),
    )

    @functools.wraps(command)
    def selecting(**given: Any) -> Any:
        told = {each.name: given.pop(each.name) for each in fields(Selection)}
        return command(selection=Selection(**told), **given)

    return options(selecting)


@errors.command("list")
@_queue
@parameters.connected_to_queues
@_selecting
@parameters.option(
    "--limit N",
    f"Maximum number of rows to show; default {_LISTED}, with --json all. All rows are counted.",
    parameters.Number(0),
)
@parameters.as_json
def list_(
    options: ConnectionOptions, queue: str, selection: Selection, limit: int | None, json_: bool
) -> None:
    """Show the rows of an error queue, then how many failed for each queue and by each exception.

    Rows that stop ServiceControl's reading are marked. So are rows that are no failures: they acknowledge
    messages that ServiceControl had retried. All headers of the queue are read, but no bodies. Nothing is
    locked. With --json each line is a row, and the last lines are the counts.
    """
    dialect = Target.of(options).dialect
    named = dialect.address(options.naming(dialect).table(queue))
    summary, count, shown = failed_output.Summary(named), 0, list[ErrorRow]()
    most = limit if limit is not None else HIGHEST if json_ else _LISTED
    with progress.bar(None, " rows", lines=json_) as bar:
        found = error_queue.look(options, queue, selection, looked=bar.update)
        for count, row in enumerate(found, 1):
            summary.add(row)
            if count > most:
                continue
            if json_:
                output.say(output.as_json(failed_output.row_json(row)))
            else:
                shown.append(row)
    if json_:
        output.lines(map(output.as_json, summary.json()))
    elif not count:
        all_ = selection == Selection()
        output.say(f"the queue {queue} is empty" if all_ else failed_output.nothing(queue))
    else:
        if shown:
            output.lines(failed_output.rows_text(shown))
            output.lines([f"… and {count - most:,} more", ""] if count > most else [""])
        output.lines(summary.text())


@errors.command()
@_queue
@parameters.connected_to_queues
@parameters.option("--message-id ID", "The message of this id.")
@parameters.option("--row-version N", "The row of this number.", parameters.Number())
@parameters.as_json
def show(
    options: ConnectionOptions, queue: str, message_id: str | None, row_version: int | None, json_: bool
) -> None:
    """Show one message in full: headers, exception, stack trace, and its body as text.

    A long body is cut, unless --json is given. If several rows have the message id, all are shown.
    """
    if (message_id is None) is (row_version is None):
        raise click.UsageError("Say which message: by --message-id, or by --row-version.")
    selection = Selection(message_ids=frozenset() if message_id is None else frozenset({message_id}))
    for shown in error_queue.show(options, queue, selection, row_version=row_version):
        output.show(json_, failed_output.shown_json(*shown), failed_output.shown_text(*shown))


@errors.command()
@_queue
@parameters.connected_to_queues
@_selecting
@parameters.option("--to QUEUE", "The queue for messages that do not say for which queue they have failed.")
@parameters.option("--rate N", "Messages a second; default: as fast as possible.")
@click.option("--dry-run", is_flag=True, help="Only say how many messages would go into which queue.")
@parameters.yes
@parameters.as_json
def retry(
    *,
    options: ConnectionOptions,
    queue: str,
    selection: Selection,
    to: str | None,
    rate: int | None,
    dry_run: bool,
    yes: bool,
    json_: bool,
) -> bool:
    """Put failed messages back into the queues that they failed for (NServiceBus.FailedQ).

    Each message goes once, also if this is interrupted; type the command again to go on. A message gets a new
    row id, loses the headers of its failure, and never expires. Nothing else of it changes. Rows that other
    sessions have locked are left out. If a queue is missing or cannot be reached, its messages stay, the
    others go, and the exit code is 1.
    """
    with progress.bar(None, " rows") as bar:
        plan = failed_retry.plan(options, queue, selection, to=to, looked=bar.update)
    if dry_run:
        output.show(json_, failed_output.retried_json(plan), failed_output.retried_text(plan, planned=True))
        return bool(plan.stayed)
    if plan.count and not yes:
        parameters.confirmed(
            f"{output.counted(plan.count, 'message')} of the queue {plan.queue}{parameters.place(options)} "
            f"will be put back, {failed_output.destinations(plan)}; to go on, type the queue's name",
            queue,
            "nothing was put back",
        )
    with progress.interruptible(plan.count, "message", "put back") as more:
        done = failed_retry.retry(options, queue, selection, to=to, rate=rate, progress=more)
    output.show(json_, failed_output.retried_json(done), failed_output.retried_text(done))
    return bool(done.stayed)


@errors.command()
@_queue
@parameters.connected_to_queues
@_selecting
@click.option(
    "--to-file",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to append them to: a line of JSON for each message, with its body in Base64.",
)
@parameters.yes
@parameters.as_json
def discard(
    *, options: ConnectionOptions, queue: str, selection: Selection, file: Path, yes: bool, json_: bool
) -> None:
    """Take failed messages out of an error queue into a file.

    A message is deleted only after it is in the file and on the disk. After an interruption a message may be
    in the file and still in the queue. Rows that other sessions have locked stay. The file holds headers and
    bodies, so only its owner may read it.
    """
    with progress.bar(None, " rows") as bar:
        found = error_discard.plan(options, queue, selection, looked=bar.update)
    if found.discarded:
        if not yes:
            parameters.confirmed(
                f"{output.counted(found.discarded, 'message')} of the queue {found.queue}"
                f"{parameters.place(options)} will be taken out and kept only in the file {str(file)!r}; to "
                "go on, type the queue's name",
                queue,
                "nothing was discarded",
            )
        with progress.interruptible(found.discarded, "message", "discarded") as more:
            found = error_discard.discard(options, queue, selection, file, progress=more)
    output.show(json_, output.told(found), failed_output.discarded_text(found, str(file)))
