"""The commands of ``sqlqueue``, each a few lines over :mod:`sqlqueue_spark.administration.queue_tables`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from sqlqueue_spark import __version__
from sqlqueue_spark.administration import database_overview, queue_tables
from sqlqueue_spark.cli import asking, door, shells, showing
from sqlqueue_spark.cli.delayed_commands import delayed
from sqlqueue_spark.cli.errors_commands import errors
from sqlqueue_spark.cli.length_commands import length
from sqlqueue_spark.cli.outbox_commands import outbox
from sqlqueue_spark.cli.peek_commands import peek
from sqlqueue_spark.cli.progress import counting, portions
from sqlqueue_spark.cli.send_commands import send
from sqlqueue_spark.cli.server_commands import server
from sqlqueue_spark.cli.subscription_commands import subscribe, subscriptions, unsubscribe
from sqlqueue_spark.engines.registry import DIALECTS
from sqlqueue_spark.inspection.doctor import State, examine
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.tables import scripts
from sqlqueue_spark.tables.rights import INSTALLER, RECEIVER, ROLES, SENDER

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=door.Door, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="sqlqueue")
def main() -> None:
    """Look after SQL queue tables.

    A QUEUE is an address: table, table@schema or table@[schema]@[catalog].
    """


main.add_command(length)
main.add_command(peek)
main.add_command(send)
main.add_command(outbox)
main.add_command(delayed)
main.add_command(errors)
main.add_command(subscribe)
main.add_command(unsubscribe)
main.add_command(subscriptions)
main.add_command(server)
for _name, _module, _help in (
    ("drain", "drain_job", "Drain a queue into a Delta table, each message once."),
    ("forward", "forward_job", "Forward the messages of a queue to other queues, each once."),
    ("handle", "handle_job", "Handle each message of a queue by a Python function, and send what it answers, once."),
    ("archive", "archive_job", "Copy an error or audit queue into a Delta table, each row once, or take it there."),
    ("store-and-forward", "store_and_forward_job", "Send on what senders have stored for another database, each message once."),
):  # fmt: skip
    main.add_command(door.Job(_name, f"sqlqueue_spark.pipeline.{_module}:main", help=_help))


@main.command()
@asking.queues
@asking.also_created
@asking.shape
@asking.connected
def create(options: ConnectionOptions, queues: tuple[str, ...], **also: Any) -> None:
    """Create queue tables that are not there yet."""
    for made in queue_tables.create(options, queues, **also):
        showing.say(f"created {made.queue}" if made.new else f"{made.queue} was there already")


@main.command()
@asking.queues
@asking.also_created
@asking.shape
@asking.naming
@asking.debug
@click.option(
    "--engine", required=True, type=click.Choice(sorted(DIALECTS)), help="The engine to write the script for."
)
@click.option(
    "--grants",
    "user",
    type=asking.some_text,
    metavar="USER",
    help="Instead give this user the rights of a role.",
)
@click.option("--role", type=click.Choice(ROLES), help="Which rights: all that the role needs, no others.")
@click.option("--endpoint", type=asking.endpoint_name, metavar="NAME", help="A sender's outbox too.")
def script(
    *,
    queues: tuple[str, ...],
    engine: str,
    user: str | None,
    role: str | None,
    endpoint: str | None,
    shape: str,
    **naming: Any,
) -> None:
    """Write a script for a database administrator: it creates queue tables, or gives rights. Needs no connection."""
    if (user is None) is not (role is None):
        raise click.UsageError("--grants and --role belong together: who, and which rights.")
    if endpoint is not None and role != SENDER:
        raise click.UsageError("--endpoint belongs to --grants USER --role sender.")
    if naming["stream"] is not None and role not in (RECEIVER, None):
        raise click.UsageError("--stream belongs to --role receiver, or to no role.")
    if naming["subscriptions"] and role == INSTALLER:
        raise click.UsageError("--subscriptions belongs to --role receiver or sender, or to no role.")
    if user is None or role is None:
        text = scripts.create(engine, queues, shape=shape, **naming)
    else:
        text = scripts.grants(engine, user, role, queues, endpoint=endpoint, **naming)
    click.echo(text, nl=False)


@main.command()
@asking.queues
@asking.connected
@asking.role
@asking.as_json
@click.pass_context
def inspect(
    ctx: click.Context, options: ConnectionOptions, queues: tuple[str, ...], role: str | None, json_: bool
) -> None:
    """Show columns, indexes, settings and rights, and what is wrong; exit code 1 when something is."""
    found = False
    for queue in queues:
        inspection = queue_tables.inspect(options, queue, role=role)
        found = found or bool(inspection.findings)
        _show(json_, inspection, showing.inspection_json, showing.inspection_text)
    ctx.exit(1 if found else 0)


@main.command("list")
@asking.connected
@click.option("--schema", type=asking.some_text, metavar="NAME", help="Only tables of this schema.")
@click.option("--exact", is_flag=True, help="Count large tables too.")
@asking.as_json
def list_(options: ConnectionOptions, schema: str | None, exact: bool, json_: bool) -> None:
    """List the queues, outboxes, delayed tables and stages of a database: how many rows, and how old the oldest message is.

    Tables are recognised by their columns. It locks nothing and is cheap: on SQL Server the catalogue counts the rows; on PostgreSQL a
    table below 64 MB is counted, which reads it, and of a larger one the statistics tell about how many there are (~). The oldest
    message is found by the index: in a queue the first row, in a delayed table the one that is due first. --exact counts the large
    ones too, which reads them to the end.
    """
    with counting("tables", json_):
        found = database_overview.overview(options, schema=schema, exact=exact)
        if json_:
            _lines(showing.as_json(showing.overview_json(each)) for each in found)
            return
        tables = list(found)
    _lines(showing.overview_text(tables))


@main.command()
@asking.queues
@asking.connected
@click.option("--expired", is_flag=True, help="Only messages whose time to be received is over.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(options: ConnectionOptions, queues: tuple[str, ...], expired: bool, yes: bool) -> None:
    """Delete what stands in a queue now. Nobody is blocked; messages being received stay."""
    what = "expired messages" if expired else "messages"
    for queue in queues:
        if not yes:
            with counting(queue):
                there = queue_tables.length(options, queue)
            count = there.expired if expired else there.rows
            asking.confirmed(
                f"{count:,} {what} of the queue {there.queue}{asking.place(options)} will be deleted; to go on, type the queue's name",
                queue,
                "nothing more was deleted",
            )
        with portions(None, "message", "deleted") as progress:
            deleted = queue_tables.purge(options, queue, expired=expired, progress=progress)
        showing.say(f"deleted {deleted:,} {what} from {queue}")


@main.command()
@click.argument("queue", metavar="[QUEUE]", required=False, type=asking.queue_address)
@asking.perhaps_connected
@asking.role
@asking.as_json
@click.pass_context
def doctor(
    ctx: click.Context, options: ConnectionOptions | None, queue: str | None, role: str | None, json_: bool
) -> None:
    """Check that all is there: Python, Java, Spark, drivers, and with a url the way to the database and a queue.

    A line a check: what was found, or what to do. Exit code 1 when there is something to do.
    """
    well = True
    for check in examine(options, queue, role=role):
        click.echo(showing.as_json(showing.check_json(check)) if json_ else showing.check_text(check))
        well = well and check.state is not State.WRONG
    ctx.exit(0 if well else 1)


@main.command()
@click.option("--sink", is_flag=True, help="Those of SqlQueueSink and df.write instead.")
@click.option("--markdown", is_flag=True, help="As a table of Markdown.")
def options(sink: bool, markdown: bool) -> None:
    """List the options of format("sqlqueue"), to read from or to write to."""
    shown = showing.options_markdown if markdown else showing.options_text
    _lines(shown((SinkOptions if sink else SourceOptions).described()))


@main.command()
@click.argument("shell", type=click.Choice([*shells.SHELLS]))
def completion(shell: str) -> None:
    """Print the script by which a shell completes commands, options and the names of queues.

    \b
    bash, in ~/.bashrc:                       eval "$(sqlqueue completion bash)"
    zsh, in ~/.zshrc, behind compinit:        eval "$(sqlqueue completion zsh)"
    fish:    sqlqueue completion fish > ~/.config/fish/completions/sqlqueue.fish
    """  # noqa: D301 -- the character, by which click leaves the lines as they are
    click.echo(shells.script(main, shell))


#: The demos, by their names, and the modules that run them.
_DEMOS = {
    "drain": "sqlqueue_spark.demo.drain",
    "store-and-forward": "sqlqueue_spark.demo.two_databases",
}


@main.command()
@asking.debug
@click.argument("name", metavar="[NAME]", type=click.Choice(list(_DEMOS)), default="drain")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where databases, tables and checkpoints are kept, else .demo or .demo/store-and-forward.",
)
@click.option(
    "--messages", type=click.IntRange(1), help="How many to send, else 300,000; 300 by store-and-forward."
)
@click.option("--stop", is_flag=True, help="Stop the demo's servers; their data stay.")
def demo(name: str, folder: Path | None, messages: int | None, stop: bool) -> None:
    """Show with a real server and real Spark, on this machine, what the package does.

    drain (the default) sends messages to a queue table and drains them into Delta. store-and-forward sends orders to another database
    and answers back, though that one is down for a while.
    """
    with door.needing_spark("demo"):
        show: Any = importlib.import_module(_DEMOS[name])
    if stop:
        show.stop(folder or show.DEFAULT_FOLDER)
        return
    try:
        show.main(folder or show.DEFAULT_FOLDER, messages or show.DEFAULT_MESSAGES)
    except KeyboardInterrupt:
        raise click.Abort from None


def _show(
    as_json: bool,
    value: Any,
    to_json: Callable[[Any], dict[str, Any]],
    to_text: Callable[[Any], Iterable[str]],
) -> None:
    _lines([showing.as_json(to_json(value))] if as_json else to_text(value))


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
