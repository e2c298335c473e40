"""The commands of ``sqlqueue``, each a few lines over :mod:`sqlqueue_spark.administration.queue_tables`."""

import importlib
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import click

from sqlqueue_spark import __version__
from sqlqueue_spark.administration import database_overview, length_probe, queue_tables
from sqlqueue_spark.cli import exit_codes, output, parameters
from sqlqueue_spark.cli.delayed_commands import delayed
from sqlqueue_spark.cli.errors_commands import errors
from sqlqueue_spark.cli.outbox_commands import outbox
from sqlqueue_spark.cli.peek_commands import peek
from sqlqueue_spark.cli.progress import counting, interruptible
from sqlqueue_spark.cli.send_commands import send
from sqlqueue_spark.cli.server_commands import confirm_stop, server
from sqlqueue_spark.cli.subscription_commands import subscribe, subscriptions, unsubscribe
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.embedded.server_processes import connected_to
from sqlqueue_spark.engines.engine_of_url import DIALECTS
from sqlqueue_spark.inspection.doctor import State, examine
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.tables import scripts
from sqlqueue_spark.tables.rights import INSTALLER, RECEIVER, ROLES, SENDER

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=exit_codes.CommandGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="sqlqueue")
def main() -> None:
    """Look after SQL queue tables.

    A QUEUE is an address: table, table@schema or table@[schema]@[catalog].
    """


for _command in (peek, send, outbox, delayed, errors, subscribe, unsubscribe, subscriptions, server):
    main.add_command(_command)
for _name, _help in (
    ("drain", "Drain a queue into a Delta table, each message once."),
    ("forward", "Forward the messages of a queue to other queues, each once."),
    ("handle", "Call a Python function for each message of a queue; send its answers once."),
    ("archive", "Copy or move an error or audit queue into a Delta table, each row once."),
    ("store-and-forward", "Send messages that were stored for another database to it, each once."),
):
    job = f"sqlqueue_spark.pipeline.declared.jobs:{_name.replace('-', '_')}"
    main.add_command(exit_codes.SparkCommand(_name, job, help=_help))


@main.command()
@parameters.queues
@parameters.connected_to_queues
@parameters.option("--max-rows N", "Exit code 1 when more than N messages wait.", parameters.Number(0))
@parameters.option(
    "--max-age DURATION", "Exit code 1 when the oldest message was sent longer ago, for example 10m."
)
@parameters.as_json
def length(
    *,
    options: ConnectionOptions,
    queues: tuple[str, ...],
    max_rows: int | None,
    max_age: timedelta | None,
    json_: bool,
) -> bool:
    """Show how many messages wait, how many of them are expired, their bytes, and how old the oldest is.

    With --max-rows or --max-age it is a probe: it prints a line for each queue, with exit code 0 when all
    queues are within the limits, and 1 when one is beyond. It is cheap: it stops counting at the first
    message too many, and reads the age from the first message.

    The age of a message comes from its header NServiceBus.TimeSent, which is the clock of its sender. The
    tables have no column for it. The age of a delayed, retried or forwarded message counts from when it was
    first sent. If none of the first messages has the header, the age is not known, and the queue counts as
    beyond.
    """
    beyond = False
    for queue in queues:
        if max_rows is None and max_age is None:
            with counting(queue, json_):
                found = queue_tables.length(options, queue)
            output.show(json_, output.told(found), output.length_text(found))
        else:
            probe = length_probe.probe(options, queue, max_rows=max_rows, max_age=max_age)
            output.show(json_, output.told(probe), [output.probe_text(probe)])
            beyond = beyond or not probe.within
    return beyond


@main.command()
@parameters.queues
@parameters.also_created
@parameters.shape
@parameters.connected
def create(options: ConnectionOptions, queues: tuple[str, ...], **also: Any) -> None:
    """Create queue tables that are not there yet."""
    for made in queue_tables.create(options, queues, **also):
        output.created(made)


@main.command()
@parameters.queues
@parameters.also_created
@parameters.shape
@parameters.naming
@parameters.debug
@parameters.engine(DIALECTS)
@parameters.option("--grants USER", "Instead give this user the rights of a role.", name="user")
@click.option("--role", type=click.Choice(ROLES), help="Which rights: all that the role needs, no others.")
@parameters.option("--endpoint NAME", "A sender's outbox too.", parameters.endpoint_name)
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
    """Write a SQL script that creates queue tables or grants rights. Needs no connection."""
    if (user is None) is not (role is None):
        raise click.UsageError("--grants and --role belong together: who, and which rights.")
    if endpoint is not None and role != SENDER:
        raise click.UsageError("--endpoint belongs to --grants USER --role sender.")
    if naming["stream"] is not None and role not in (RECEIVER, None):
        raise click.UsageError("--stream belongs to --role receiver, or to no role.")
    if naming["subscriptions"] and role == INSTALLER:
        raise click.UsageError("--subscriptions belongs to --role receiver or sender, or to no role.")
    with parameters.words():
        if user is None or role is None:
            text = scripts.create(engine, queues, shape=shape, **naming)
        else:
            text = scripts.grants(engine, user, role, queues, endpoint=endpoint, **naming)
    output.exactly(text)


@main.command()
@parameters.queues
@parameters.connected_to_queues
@parameters.role
@parameters.as_json
def inspect(options: ConnectionOptions, queues: tuple[str, ...], role: str | None, json_: bool) -> bool:
    """Show columns, indexes, settings and rights, and what is wrong; exit code 1 when something is."""
    found = False
    for queue in queues:
        inspection = queue_tables.inspect(options, queue, role=role)
        found = found or bool(inspection.findings)
        output.show(json_, output.told(inspection), output.inspection_text(inspection))
    return found


@main.command("list")
@parameters.connected
@parameters.option("--schema NAME", "Only tables of this schema.")
@click.option("--exact", is_flag=True, help="Count large tables too.")
@parameters.as_json
def list_(options: ConnectionOptions, schema: str | None, exact: bool, json_: bool) -> None:
    """List queues, outboxes, delayed tables and stages of a database: their rows, and the oldest message.

    Tables are recognised by their columns. It locks nothing and is cheap. On SQL Server the number of rows
    comes from the catalogue. On PostgreSQL a table below 64 MB is counted, and a larger one is estimated by
    its statistics (~). --exact counts large tables too, which reads them to the end. The oldest message is
    found by the index: it is the first row of a queue, and the row of a delayed table that is due first.
    """
    with counting("tables", json_):
        found = database_overview.overview(options, schema=schema, exact=exact)
        if json_:
            output.lines(output.as_json(output.told(each)) for each in found)
            return
        tables = list(found)
    output.lines(output.overview_text(tables))


@main.command()
@parameters.queues
@parameters.connected_to_queues
@click.option("--expired", is_flag=True, help="Delete only messages whose time to be received is over.")
@parameters.yes
def purge(options: ConnectionOptions, queues: tuple[str, ...], expired: bool, yes: bool) -> None:
    """Delete the messages that are in a queue now. Blocks no session; messages being received stay."""
    what = "expired messages" if expired else "messages"
    for queue in queues:
        if not yes:
            with counting(queue):
                there = queue_tables.length(options, queue)
            count = there.expired if expired else there.rows
            parameters.confirmed(
                f"{count:,} {what} of the queue {there.queue}{parameters.place(options)} will be deleted; "
                "to go on, type the queue's name",
                queue,
                f"nothing {'' if queue == queues[0] else 'more '}was deleted",
            )
        with interruptible(None, "message", "deleted") as progress:
            deleted = queue_tables.purge(options, queue, expired=expired, progress=progress)
        output.say(f"deleted {deleted:,} {what} from {queue}")


@main.command()
@parameters.argument("queue", "[QUEUE]", required=False)
@parameters.perhaps_connected
@parameters.role
@parameters.option("--config FILE", "A job that sends: check its outbox and other databases too.", _FILE)
@parameters.as_json
def doctor(options: ConnectionOptions | None, config: Path | None, json_: bool, **asked: Any) -> bool:
    """Check Python, Java, Spark and drivers, and, with a url, the way to the database and a queue.

    Each line is a check: what was found, or what to do. Exit code 1 when there is something to do.
    """
    wrong, others = False, ()
    if config is not None:
        job: Any = importlib.import_module("sqlqueue_spark.pipeline.declared.pipeline_options")
        queue, places = job.of_file(config, options)
        options, asked["queue"] = places.home, asked["queue"] or queue
        others = importlib.import_module("sqlqueue_spark.pipeline.running.readiness").of_others(places)
    for check in chain(examine(options, **asked), others):
        output.show_check(json_, check)
        wrong = wrong or check.state is State.WRONG
    return wrong


@main.command()
@click.option("--sink", is_flag=True, help="List those of SqlQueueSink and df.write instead.")
@click.option("--markdown", is_flag=True, help="Print a table of Markdown.")
def options(sink: bool, markdown: bool) -> None:
    """List the options of format("sqlqueue"), to read from or to write to."""
    shown = output.options_markdown if markdown else output.options_text
    output.lines(shown((SinkOptions if sink else SourceOptions).described()))


@main.command()
@click.argument("shell", type=click.Choice(exit_codes.SHELLS))
def completion(shell: str) -> None:
    """Print a script with which a shell completes commands, options and the names of queues.

    \b
    bash, in ~/.bashrc:                       eval "$(sqlqueue completion bash)"
    zsh, in ~/.zshrc, behind compinit:        eval "$(sqlqueue completion zsh)"
    fish:    sqlqueue completion fish > ~/.config/fish/completions/sqlqueue.fish
    """  # noqa: D301 -- click's mark for lines that it must not wrap
    exit_codes.answer(main, f"{shell}_source")


_DEMOS = {"drain": "sqlqueue_spark.demo.drain", "store-and-forward": "sqlqueue_spark.demo.two_databases"}


@main.command()
@parameters.debug
@click.argument("name", metavar="[NAME]", type=click.Choice(list(_DEMOS)), default="drain")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of databases, tables and checkpoints; default .demo or .demo/store-and-forward.",
)
@parameters.option(
    "--messages N", "How many messages to send; default 300,000, and 300 for store-and-forward."
)
@click.option("--stop", is_flag=True, help="Stop the demo's servers; their data stay.")
@parameters.yes
def demo(name: str, folder: Path | None, messages: int | None, stop: bool, yes: bool) -> None:
    """Show what the package does, with a real server and real Spark on this machine.

    drain (the default) sends messages to a queue table and drains them into Delta. store-and-forward sends
    orders to another database and answers back, although that database is down for a while.
    """
    from sqlqueue_spark.demo.folder_and_commands import stop_servers

    show: Any = importlib.import_module(_DEMOS[name])
    where = folder or show.DEFAULT_FOLDER
    if not stop:
        show.main(where, messages or show.DEFAULT_MESSAGES)
        return
    for each in (where / name for name in show.SERVERS):
        if each.exists() and (port := EmbeddedServer(each).running_port()) is not None:
            confirm_stop(each, connected_to(port), yes)
    ran = stop_servers(where, show.SERVERS)
    output.lines(f"The server in {each} is stopped; its data stay." for each in ran)
    if not ran:
        output.say(f"No server of this demo runs in {where}.")
