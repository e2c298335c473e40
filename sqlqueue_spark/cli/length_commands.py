"""The command ``sqlqueue length``: how much a queue holds, or, as a probe, whether that is too much."""

from datetime import timedelta

import click

from sqlqueue_spark.administration import length_probe, queue_tables
from sqlqueue_spark.cli import login_prompt, output, parameters
from sqlqueue_spark.cli.progress import counting
from sqlqueue_spark.options import ConnectionOptions


@click.command()
@parameters.queues
@login_prompt.connected
@parameters.option("--max-rows N", parameters.Number(0), "Exit code 1 when more than N messages wait.")
@parameters.option(
    "--max-age DURATION",
    parameters.time_span,
    "Exit code 1 when the oldest message was sent longer ago, for example 10m.",
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
    if max_rows is None and max_age is None:
        for queue in queues:
            with counting(queue, json_):
                found = queue_tables.length(options, queue)
            output.show(json_, output.told(found), output.length_text(found))
        return False
    beyond = False
    for queue in queues:
        probe = length_probe.probe(options, queue, max_rows=max_rows, max_age=max_age)
        output.show(json_, output.told(probe), [output.probe_text(probe)])
        beyond = beyond or not probe.within
    return beyond
