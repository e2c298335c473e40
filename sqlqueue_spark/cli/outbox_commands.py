"""The commands of ``sqlqueue outbox``, each a few lines over :mod:`sqlqueue_spark.administration.outbox_tables`."""

from __future__ import annotations

from datetime import timedelta

import click

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.progress import portions
from sqlqueue_spark.engines.registry import OUTBOX_DATABASES
from sqlqueue_spark.options import NO_OUTBOX, ConnectionOptions, SinkOptions

#: How long senders remember message ids, if nobody says otherwise.
_USUAL = SinkOptions(url="", outbox=NO_OUTBOX).keep_deduplication_data_for


def _shown(keep: timedelta) -> str:
    return f"{keep.days} days" if keep >= timedelta(days=2) else f"{keep.total_seconds():g} seconds"


@click.group()
def outbox() -> None:
    """Look after outbox tables, which remember what was sent or processed.

    An ENDPOINT is the name of a .NET endpoint or of a pipeline; the table of Shop.Sales is Shop_Sales_OutboxData.
    """


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
def create(options: ConnectionOptions, endpoint: str) -> None:
    """Create an outbox table that is not there yet."""
    made = outbox_tables.create(options, endpoint)
    output.say(f"created {made.outbox}" if made.new else f"{made.outbox} was there already")


@outbox.command()
@parameters.endpoint
@parameters.schema
@parameters.debug
@click.option(
    "--engine",
    required=True,
    type=click.Choice(sorted(OUTBOX_DATABASES)),
    help="The engine to write the script for.",
)
def script(*, endpoint: str, engine: str, default_schema: str | None) -> None:
    """Write the script that creates an outbox table, for a database administrator. Needs no connection."""
    click.echo(outbox_tables.script(engine, endpoint, default_schema=default_schema), nl=False)


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
@click.option(
    "--keep",
    type=parameters.time_span,
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="How long a message id is remembered. Repeats that come later are not recognised.",
)
@click.option("--yes", is_flag=True, help="Do not ask, whatever is to be kept.")
def cleanup(options: ConnectionOptions, endpoint: str, keep: timedelta, yes: bool) -> None:
    """Forget old message ids. Nobody is blocked; what is not dispatched stays.

    It asks before it forgets ids that are younger than 7 days, as senders remember them: a repeat of such a message, as Spark makes
    them when a batch is tried again, would go out twice.
    """
    if keep < _USUAL and not yes:
        there = outbox_tables.report(options, endpoint)
        parameters.confirmed(
            f"Of the {there.found.rows:,} message ids in {there.outbox} of the database {there.database}{parameters.place(options)} those "
            f"older than {_shown(keep)} will be forgotten, and their messages can go out twice; to go on, type the endpoint's name",
            endpoint,
            "nothing was forgotten",
        )
    with portions(None, "id", "forgot") as progress:
        deleted = outbox_tables.cleanup(options, endpoint, keep, progress=progress)
    output.say(f"forgot {deleted:,} message ids of {endpoint}")


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
@parameters.as_json
@click.pass_context
def report(ctx: click.Context, options: ConnectionOptions, endpoint: str, json_: bool) -> None:
    """Show how many message ids are remembered, and what is not dispatched; exit code 1 when something is."""
    found = outbox_tables.report(options, endpoint)
    for line in [output.as_json(output.report_json(found))] if json_ else output.report_text(found):
        click.echo(line)
    ctx.exit(1 if found.found.undispatched else 0)
