"""The command ``sqlqueue length``: how much stands in a queue, or, as a probe, whether that is too much."""

from __future__ import annotations

from datetime import timedelta

import click

from sqlqueue_spark.administration import length_probe, queue_tables
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.progress import counting
from sqlqueue_spark.options import ConnectionOptions


@click.command()
@parameters.queues
@parameters.connected
@click.option(
    "--max-rows", type=click.IntRange(0), metavar="N", help="Exit code 1 when more messages wait than that."
)
@click.option(
    "--max-age",
    type=parameters.time_span,
    metavar="DURATION",
    help="Exit code 1 when the oldest message was sent longer ago than that, such as 10m.",
)
@parameters.as_json
@click.pass_context
def length(
    ctx: click.Context,
    *,
    options: ConnectionOptions,
    queues: tuple[str, ...],
    max_rows: int | None,
    max_age: timedelta | None,
    json_: bool,
) -> None:
    """Show how many messages wait, how many of them are expired, their bytes, and how old the oldest is.

    With --max-rows or --max-age it is a probe: a line a queue, exit code 0 when all queues are within, 1 when one is beyond. It is
    cheap: it counts no further than to the first message too many, and looks at the first one for its age.

    How old a message is its header NServiceBus.TimeSent tells, by the clock of its sender: the tables have no time of their own. A
    message that was delayed, retried or forwarded is as old as when it was first sent. Where none of the first messages has the
    header, the age is not known, and that is beyond.
    """
    if max_rows is None and max_age is None:
        for queue in queues:
            with counting(queue, json_):
                found = queue_tables.length(options, queue)
            for line in [output.as_json(output.length_json(found))] if json_ else output.length_text(found):
                click.echo(line)
        return
    within = True
    for queue in queues:
        probe = length_probe.probe(options, queue, max_rows=max_rows, max_age=max_age)
        click.echo(output.as_json(output.probe_json(probe)) if json_ else output.probe_text(probe))
        within = within and probe.within
    ctx.exit(0 if within else 1)
