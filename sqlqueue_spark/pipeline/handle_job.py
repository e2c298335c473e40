r"""Handle each message of a queue table by a Python function, and send what it answers, each once.

::

    export SQLQUEUE_URL=postgresql://…
    sqlqueue handle orders --handler shop.orders:handle --endpoint Shop.Orders --error-queue error --checkpoint data/checkpoints/orders
    SPARK_CONF_DIR=conf spark-submit jobs/handle.py --config conf/handle.toml --handler shop.orders:handle

The function is given a ReceivedMessage and returns nothing, Send, Reply, Publish, or several of them (sqlqueue_spark.handling). With
``--subscribe Shop.OrderPlaced`` its queue gets these events, from the start on and until ``sqlqueue unsubscribe``. A message for which
it raises is tried again after 10, 20 and 30 s (``--set handle.delayedRetries=3``), and waits for that in the table QUEUE.Delayed; then it
goes to the error queue. Every key of the configuration's [source], [sink] and [handle] can be given as ``--set sink.outbox=pessimistic``.
What [sink] leaves open, its database, login, transactionMode and stream, is the source's. SIGTERM, Ctrl-C or a file named by
source.stopFile stop it between batches. Exit codes: 0 done or stopped, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from pyspark.sql import SparkSession

from sqlqueue_spark.administration.completion import queue_names
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.batch_report import Totals
from sqlqueue_spark.pipeline.handle import HandleOptions, check_error_queue, handled, subscribe
from sqlqueue_spark.pipeline.pipeline_options import agreed
from sqlqueue_spark.pipeline.program import (
    SENDING_PLACES,
    common_flags,
    common_places,
    configuration,
    exiting,
    make_ready,
    placed,
    sending_flags,
)
from sqlqueue_spark.pipeline.sending_job import send_until_stopped
from sqlqueue_spark.pipeline.session import check_machine, session
from sqlqueue_spark.plain_text import plain

SECTIONS = ("source", "sink", "handle")
#: The keys of the configuration that each flag stands for.
PLACES = {
    **common_places("handle"),
    **SENDING_PLACES,
    "handler": ("handle.handler",),
    "subscribe_to": ("handle.subscribe",),
}


@click.command(help=(__doc__ or "").split("::")[0])
@common_flags("handle")
@click.option(
    "--error-queue", shell_complete=queue_names, help="Address of the queue where messages go that fail."
)
@sending_flags
@click.option("--handler", metavar="MODULE:FUNCTION", help="Called for each message.")
@click.option(
    "--subscribe",
    "subscribe_to",
    metavar="EVENT",
    multiple=True,
    callback=lambda _, __, events: ";".join(events) or None,
    help="Type of events that the queue is to have; may be repeated.",
)
def main(
    config: Path | None, settings: tuple[str, ...], create: bool, debug: bool, **given: str | bool | None
) -> None:
    with exiting(2, debug):  # until everything that was given is understood
        sections = configuration(SECTIONS, config, settings, placed(PLACES, given))
        source, sink = agreed(sections["source"], sections["sink"])
        options = HandleOptions.parse(sections["handle"])
        check_error_queue(SinkOptions.parse(sink))
    with exiting(1, debug):
        check_machine(delta=False)
        own, there = SourceOptions.parse(source), SinkOptions.parse(sink)
        make_ready(own, there, create=create, retries=options.delayed_retries > 0)
        for line in subscribe(own, there, options.subscribe, create=create):
            click.echo(plain(line))
        spark = session(f"handle {own.title}", delta=False)
        run(spark, source, sink, options)
        spark.stop()


def run(
    spark: SparkSession, source: Mapping[str, str], sink: Mapping[str, str], options: HandleOptions
) -> Totals:
    """Handle until stopped."""
    return send_until_stopped(
        spark,
        source,
        sink,
        lambda messages, queue: handled(messages, options, queue),
        options.checkpoint,
        available_now=options.available_now,
        doing="handling",
        slows_down=True,
    )
