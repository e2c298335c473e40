r"""Archive an error or audit queue in a Delta table, each row once; a copy, which leaves the rows to their consumer.

::

    export SQLQUEUE_URL=postgresql://…
    sqlqueue archive error --into data/errors --every 1m
    SPARK_CONF_DIR=conf spark-submit jobs/archive.py --config conf/archive.toml --queue error

Without --every it copies once. --take takes the messages out of the queue instead, by a stream that has a --checkpoint and runs on
unless --available-now. Every key of the configuration's [source] and [archive] can be given as ``--set archive.every=10m``. SIGTERM,
Ctrl-C or a file named by source.stopFile stop it between two merges. Exit codes: 0 done or stopped, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.archive import ArchiveOptions, Copied, copy_to_delta, take_to_delta
from sqlqueue_spark.pipeline.batch_report import Totals
from sqlqueue_spark.pipeline.program import (
    common_flags,
    common_places,
    configuration,
    exiting,
    make_ready,
    placed,
)
from sqlqueue_spark.pipeline.running import run_until_stopped, stoppable
from sqlqueue_spark.pipeline.session import check_machine, session
from sqlqueue_spark.plain_text import plain

SECTIONS = ("source", "archive")
#: The keys of the configuration that each flag stands for.
PLACES = {
    **common_places("archive"),
    "path": ("archive.path",),
    "take": ("archive.take",),
    "every": ("archive.every",),
}


@click.command(help=(__doc__ or "").split("::")[0])
@common_flags("archive")
@click.option("--path", "--into", "path", help="Folder of the Delta table.")
@click.option(
    "--every", metavar="DURATION", help="Copy again and again, with this pause between, such as 1m."
)
@click.option("--take", is_flag=True, help="Take the messages out of the queue, instead of copying them.")
def main(
    config: Path | None, settings: tuple[str, ...], create: bool, debug: bool, **given: str | bool | None
) -> None:
    with exiting(2, debug):  # until everything that was given is understood
        sections = configuration(SECTIONS, config, settings, placed(PLACES, given))
        source, options = sections["source"], ArchiveOptions.parse(sections["archive"])
        queue = SourceOptions.parse(source)
        if queue.several and not options.take:
            raise ConfigurationError(
                f"A copy looks at one queue, and several are named ({queue.title}); archive each by itself, or take their messages "
                "with --take."
            )
    with exiting(1, debug):
        check_machine()
        make_ready(queue, create=create, only_look=not options.take)
        spark = session(f"archive {queue.title}")
        run(spark, source, options)
        spark.stop()


def run(spark: SparkSession, source: Mapping[str, str], options: ArchiveOptions) -> Totals | Copied:
    """Archive a queue, until it is done or stopped."""
    doing, queue = "taking" if options.take else "copying", SourceOptions.parse(source).title
    click.echo(plain(f"{doing} queue={queue} into={options.path}"))
    if options.take:
        with stoppable(source) as (stopping, stop_file, done_file):
            query = take_to_delta(spark, stopping, options)
            totals = run_until_stopped(spark, query, stop_file, click.echo, done_file=done_file)
        click.echo(f"taken={totals.messages} {totals}")
        return totals
    stop = said(source, "stopFile")
    copied = copy_to_delta(spark, source, options, click.echo, stop_file=None if stop is None else Path(stop))
    click.echo(f"copied={copied.rows} {copied}")
    return copied
