"""The commands of ``sqlqueue delayed``, over :mod:`sqlqueue_spark.administration.delayed_tables`."""

import signal

import click

from sqlqueue_spark.administration import delayed_tables
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.progress import interruptible
from sqlqueue_spark.engines.database_retry import paused
from sqlqueue_spark.engines.engine_of_url import DIALECTS
from sqlqueue_spark.options import ConnectionOptions


@click.group()
def delayed() -> None:
    """Administer delayed messages, which wait in a table until they are due.

    A QUEUE is the address of a queue or the name of an endpoint. Its delayed messages wait in QUEUE.Delayed.
    """


@delayed.command()
@parameters.queue
@parameters.connected
def create(options: ConnectionOptions, queue: str) -> None:
    """Create a table of delayed messages that is not there yet."""
    output.created(delayed_tables.create(options, queue))


@delayed.command()
@parameters.queue
@parameters.schema
@parameters.debug
@parameters.engine(DIALECTS)
def script(*, queue: str, engine: str, default_schema: str | None) -> None:
    """Write a SQL script that creates a table of delayed messages. Needs no connection."""
    output.exactly(delayed_tables.script(engine, queue, default_schema=default_schema))


@delayed.command()
@parameters.queue
@parameters.connected_to_queues
@parameters.as_json
def length(options: ConnectionOptions, queue: str, json_: bool) -> None:
    """Show how many messages wait, how many of them are due, and when the first one is."""
    found = delayed_tables.length(options, queue)
    output.show(json_, output.told(found), output.delayed_text(found))


@delayed.command()
@parameters.queue
@parameters.connected_to_queues
@parameters.option(
    "--error-queue QUEUE",
    "The queue for messages that cannot be delivered.",
    default="error",
    show_default=True,
)
@click.option("--once", is_flag=True, help="Deliver the messages that are due now, and end.")
def run(options: ConnectionOptions, queue: str, error_queue: str, once: bool) -> None:
    """Deliver each message when it is due, until Ctrl-C or SIGTERM.

    Several may run at once, also beside the .NET endpoint that delivers them.
    """
    if once:
        with interruptible(None, "message", "delivered") as progress:
            done = delayed_tables.deliver(
                options, queue, error_queue, moved=lambda more: progress(more.sent + more.failed)
            )
    else:
        signals: list[int] = []  # an Event could be in the middle of its own wait
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: signals.append(number))
        done = delayed_tables.deliver(
            options, queue, error_queue, lambda seconds: paused(seconds, lambda: bool(signals))
        )
    output.say(f"delivered {done.sent:,} messages, {done.failed:,} went to {error_queue}")
