r"""Forward the messages of a queue table to other queues, each once, or atomically with their receiving.

::

    export SQLQUEUE_URL=postgresql://…
    sqlqueue forward orders --to Billing --endpoint Forward.Orders --checkpoint data/checkpoints/forward-orders
    SPARK_CONF_DIR=conf spark-submit jobs/forward.py --config conf/forward.toml

Every key of the configuration's [source], [sink] and [forward] can be given as ``--set sink.outbox=pessimistic``. What
[sink] leaves open, its database, login, transactionMode and stream, is the source's. SIGTERM, Ctrl-C or a file named by
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
from sqlqueue_spark.pipeline.flow import as_outgoing
from sqlqueue_spark.pipeline.pipeline_options import agreed
from sqlqueue_spark.pipeline.program import (
    SENDING_PLACES,
    common_flags,
    common_places,
    configuration,
    exiting,
    make_ready,
    placed,
    secret_flag,
    sending_flags,
)
from sqlqueue_spark.pipeline.sending_job import send_until_stopped
from sqlqueue_spark.pipeline.session import check_machine, session
from sqlqueue_spark.pipeline.transform import ForwardOptions, transformed

SECTIONS = ("source", "sink", "forward")
#: The keys of the configuration that each flag stands for.
PLACES = {
    **common_places("forward"),
    **SENDING_PLACES,
    "to": ("sink.queue",),
    "sink_url": ("sink.url",),
    "sink_password": ("sink.password",),
    "sql": ("forward.sql",),
    "function": ("forward.function",),
}


@click.command(help=(__doc__ or "").split("::")[0])
@common_flags("forward")
@click.option(
    "--to",
    shell_complete=queue_names,
    help="Address of the queue that messages go to, unless the transform gives a Destination.",
)
@secret_flag(
    "--sink-url",
    "SQLQUEUE_SINK_URL",
    "Its database, if another; with a password in it only as SQLQUEUE_SINK_URL.",
)
@secret_flag("--sink-password", "SQLQUEUE_SINK_PASSWORD", "Its password, given as SQLQUEUE_SINK_PASSWORD.")
@click.option(
    "--error-queue",
    shell_complete=queue_names,
    help="Address of the queue where messages go that cannot be sent on.",
)
@sending_flags
@click.option("--sql", help="What goes on, and where to: SELECT … FROM messages.")
@click.option("--function", metavar="MODULE:FUNCTION", help="From DataFrame to DataFrame, in place of --sql.")
def main(
    config: Path | None, settings: tuple[str, ...], create: bool, debug: bool, **given: str | bool | None
) -> None:
    with exiting(2, debug):  # until everything that was given is understood
        sections = configuration(SECTIONS, config, settings, placed(PLACES, given))
        source, sink = agreed(sections["source"], sections["sink"])
        options = ForwardOptions.parse(sections["forward"])
    with exiting(1, debug):
        check_machine(delta=False)
        own = SourceOptions.parse(source)
        make_ready(own, SinkOptions.parse(sink), create=create)
        spark = session(f"forward {own.title}", delta=False)
        run(spark, source, sink, options)
        spark.stop()


def run(
    spark: SparkSession, source: Mapping[str, str], sink: Mapping[str, str], options: ForwardOptions
) -> Totals:
    """Forward until stopped."""
    return send_until_stopped(
        spark,
        source,
        sink,
        lambda messages, queue: as_outgoing(transformed(messages, options), queue),
        options.checkpoint,
        available_now=options.available_now,
        doing="forwarding",
    )
