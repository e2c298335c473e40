"""The commands of ``sqlqueue delayed``, each a few lines over :mod:`sqlqueue_spark.administration.delayed_tables`."""

from __future__ import annotations

import signal
import threading

import click

from sqlqueue_spark.administration import delayed_tables
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.progress import portions
from sqlqueue_spark.engines.registry import DIALECTS
from sqlqueue_spark.options import ConnectionOptions


@click.group()
def delayed() -> None:
    """Look after delayed messages, which wait in a table until they are due.

    A QUEUE is the address of a queue, or the name of an endpoint; its delayed messages wait in QUEUE.Delayed.
    """


@delayed.command()
@parameters.queue
@parameters.connected
def create(options: ConnectionOptions, queue: str) -> None:
    """Create a table of delayed messages that is not there yet."""
    made = delayed_tables.create(options, queue)
    output.say(f"created {made.table}" if made.new else f"{made.table} was there already")


@delayed.command()
@parameters.queue
@parameters.schema
@parameters.debug
@click.option(
    "--engine", required=True, type=click.Choice(sorted(DIALECTS)), help="The engine to write the script for."
)
def script(*, queue: str, engine: str, default_schema: str | None) -> None:
    """Write the script that creates a table of delayed messages, for a database administrator. Needs no connection."""
    click.echo(delayed_tables.script(engine, queue, default_schema=default_schema), nl=False)


@delayed.command()
@parameters.queue
@parameters.connected
@parameters.as_json
def length(options: ConnectionOptions, queue: str, json_: bool) -> None:
    """Show how many messages wait, how many of them are due, and when the first one is."""
    found = delayed_tables.length(options, queue)
    for line in [output.as_json(output.delayed_json(found))] if json_ else output.delayed_text(found):
        click.echo(line)


@delayed.command()
@parameters.queue
@parameters.connected
@click.option(
    "--error-queue",
    type=parameters.some_text,
    default="error",
    show_default=True,
    metavar="QUEUE",
    help="Where a message goes that cannot be delivered.",
)
@click.option("--once", is_flag=True, help="Deliver what is due now, and end.")
def run(options: ConnectionOptions, queue: str, error_queue: str, once: bool) -> None:
    """Deliver each message when it is due, until Ctrl-C or SIGTERM. Several may run at once, beside the endpoint's own."""
    from sqlqueue_spark.send.delayed_mover import Moved

    done = Moved()

    def moved(more: Moved) -> None:
        nonlocal done
        done += more

    if once:
        with portions(None, "message", "delivered") as progress:

            def told(more: Moved) -> None:
                moved(more)
                progress(more.sent + more.failed)

            delayed_tables.deliver(options, queue, error_queue, moved=told)
    else:
        stopping = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        delayed_tables.deliver(options, queue, error_queue, stopping.wait, moved=moved)
    output.say(f"delivered {done.sent:,} messages, {done.failed:,} went to {error_queue}")
