"""The commands of ``sqlqueue outbox``, over :mod:`sqlqueue_spark.administration.outbox_tables`."""

from datetime import timedelta

import click

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.progress import interruptible
from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.options import ConnectionOptions, SinkOptions

#: How long senders remember message ids by default.
_USUAL = SinkOptions.keep_deduplication_data_for


@click.group()
def outbox() -> None:
    """Administer outbox tables, which remember which messages were sent or processed.

    An ENDPOINT is the name of a .NET endpoint or of a pipeline. The table of Shop.Sales is
    Shop_Sales_OutboxData.
    """


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
def create(options: ConnectionOptions, endpoint: str) -> None:
    """Create an outbox table that is not there yet."""
    output.created(outbox_tables.create(options, endpoint))


@outbox.command()
@parameters.endpoint
@parameters.schema
@parameters.debug
@parameters.engine(OUTBOX_DATABASES)
def script(*, endpoint: str, engine: str, default_schema: str | None) -> None:
    """Write a SQL script that creates an outbox table. Needs no connection."""
    output.exactly(outbox_tables.script(engine, endpoint, default_schema=default_schema))


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
@parameters.option(
    "--keep DURATION",
    "How long a message id is remembered. Repeats that come later are not recognised.",
    default="7d",
    show_default=True,
)
@parameters.yes
def cleanup(options: ConnectionOptions, endpoint: str, keep: timedelta, yes: bool) -> None:
    """Forget old message ids. Blocks no session; rows that are not dispatched stay.

    It asks before it forgets ids that are younger than 7 days, which is how long senders remember them. If
    Spark then runs a batch again, the messages of forgotten ids go out twice.
    """
    if keep < _USUAL and not yes:
        there = outbox_tables.report(options, endpoint)
        span = f"{keep.days} days" if keep >= timedelta(days=2) else f"{keep.total_seconds():g} seconds"
        parameters.confirmed(
            f"Of the {there.found.rows:,} message ids in {there.outbox} of the database {there.database}"
            f"{parameters.place(options)} those older than {span} will be forgotten, and their "
            "messages can go out twice; to go on, type the endpoint's name",
            endpoint,
            "nothing was forgotten",
        )
    with interruptible(None, "id", "forgot") as progress:
        deleted = outbox_tables.cleanup(options, endpoint, keep, progress=progress)
    output.say(f"forgot {deleted:,} message ids of {endpoint}")


@outbox.command()
@parameters.endpoint
@parameters.connected_to_outbox
@parameters.as_json
def report(options: ConnectionOptions, endpoint: str, json_: bool) -> bool:
    """Show how many message ids are remembered, and how many rows are not dispatched; 1 if any is."""
    found = outbox_tables.report(options, endpoint)
    output.show(json_, {"outbox": found.outbox, **output.told(found.found)}, output.report_text(found))
    return found.found.undispatched > 0
