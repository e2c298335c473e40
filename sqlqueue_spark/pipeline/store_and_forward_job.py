r"""Send on what senders have stored for another database, each message once, whichever database is down meanwhile.

::

    export SQLQUEUE_URL=postgresql://… SQLQUEUE_SINK_URL=postgresql://…
    sqlqueue store-and-forward outgoing --endpoint Shop.Forward --error-queue error --checkpoint data/checkpoints/outgoing
    SPARK_CONF_DIR=conf spark-submit jobs/store_and_forward.py --config conf/store_and_forward.toml

A message of the queue goes to the other database, to the address in its header $.store-and-forward.destination, or to the subscribers of
the type in $.store-and-forward.eventtype. One with neither header goes to the handler or to the local queue. While the other database is down,
messages for it wait in the table QUEUE.Delayed. Every key of the configuration's [source], [sink] and [store-and-forward] can be given
as ``--set sink.retryInterval=30s``. SIGTERM, Ctrl-C or a file named by source.stopFile stop it between batches. Exit codes: 0 done or
stopped, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from pyspark.sql import SparkSession

from sqlqueue_spark.administration.completion import endpoint_names, queue_names
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.batch_report import Totals
from sqlqueue_spark.pipeline.program import (
    common_flags,
    common_places,
    configuration,
    exiting,
    make_ready,
    placed,
    secret_flag,
)
from sqlqueue_spark.pipeline.sending_job import send_until_stopped
from sqlqueue_spark.pipeline.session import check_machine, session
from sqlqueue_spark.pipeline.store_and_forward import Databases, StoreAndForwardOptions, stored
from sqlqueue_spark.pipeline.transform import found
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.send import RemoteDatabases
from sqlqueue_spark.spark.stored_sink import StoreAndForwardSink

SECTIONS = ("source", "sink", "store-and-forward")
#: The keys of the configuration that each flag stands for.
PLACES = {
    **common_places("store-and-forward"),
    "sink_url": ("sink.url",),
    "sink_password": ("sink.password",),
    "endpoint": ("sink.endpoint",),
    "error_queue": ("sink.errorQueue",),
    "local_queue": ("store-and-forward.localQueue",),
    "handler": ("store-and-forward.handler",),
}


@click.command(help=(__doc__ or "").split("::")[0])
@common_flags("store_and_forward")
@secret_flag(
    "--sink-url", "SQLQUEUE_SINK_URL", "The other database; with a password in it only as SQLQUEUE_SINK_URL."
)
@secret_flag("--sink-password", "SQLQUEUE_SINK_PASSWORD", "Its password, given as SQLQUEUE_SINK_PASSWORD.")
@click.option(
    "--endpoint",
    shell_complete=endpoint_names,
    help="Name of the outboxes, one in each database, of this pipeline alone.",
)
@click.option(
    "--error-queue",
    shell_complete=queue_names,
    help="Address of the queue where messages go that cannot be delivered.",
)
@click.option("--local-queue", help="Address of the queue for messages that do not go to another database.")
@click.option(
    "--handler", metavar="MODULE:FUNCTION", help="Called for such messages, in place of --local-queue."
)
def main(
    config: Path | None, settings: tuple[str, ...], create: bool, debug: bool, **given: str | bool | None
) -> None:
    with exiting(2, debug):  # until everything that was given is understood
        sections = configuration(SECTIONS, config, settings, placed(PLACES, given))
        source = sections["source"]
        options = StoreAndForwardOptions.parse(sections["store-and-forward"])
        own = SourceOptions.parse(source)
        databases = Databases.of(source, sections["sink"], options)
        remote = databases.remote(own)
        if options.handler is not None:
            found(options.handler)
    with exiting(1, debug):
        check_machine(delta=False)
        make_both_ready(own, databases, remote, create=create)
        spark = session(f"store-and-forward {own.title}", delta=False)
        run(spark, source, databases, options, remote)
        spark.stop()


def make_both_ready(
    source: SourceOptions, databases: Databases, remote: RemoteDatabases, *, create: bool
) -> None:
    """Look, before Spark starts, for what the job needs; a database that is down now is no matter. Errors as :func:`make_ready`.

    Messages that wait for a database that answers are put back.

    :param create: create what is missing first, in the other databases the outbox, and say so.
    """
    make_ready(source, SinkOptions.parse(databases.home), create=create, retries=True)
    if create:
        for line in databases.create_outboxes():
            click.echo(plain(line))
    remote.look()


def store_and_forward(
    spark: SparkSession,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    options: StoreAndForwardOptions,
    *,
    create: bool = False,
) -> Totals:
    """Do as the job does, for a notebook or a program with a session of its own: until stopped, or with ``availableNow`` until nothing is left.

    :param source: the options of its source, and ``sink`` those of its sink, as in conf/store_and_forward.toml.
    :param create: create the tables that are missing.
    :raises ConfigurationError: the options cannot be those of such a job. Further errors as :func:`make_both_ready`.
    """
    databases = Databases.of(source, sink, options)
    own = SourceOptions.parse(source)
    remote = databases.remote(own)
    make_both_ready(own, databases, remote, create=create)
    return run(spark, source, databases, options, remote)


def run(
    spark: SparkSession,
    source: Mapping[str, str],
    databases: Databases,
    options: StoreAndForwardOptions,
    remote: RemoteDatabases,
) -> Totals:
    """Send on until stopped."""
    sink = StoreAndForwardSink(SinkOptions.parse(databases.home), SinkOptions.parse(databases.other), remote)
    return send_until_stopped(
        spark,
        source,
        databases.home,
        lambda messages, queue: stored(messages, options, queue),
        options.checkpoint,
        available_now=options.available_now,
        doing="storing and forwarding",
        queues=sink,
    )
