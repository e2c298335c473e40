r"""Drain a queue table into a Delta table, exactly once.

::

    export SQLQUEUE_URL=postgresql://…
    sqlqueue drain orders --into data/orders
    SPARK_CONF_DIR=conf spark-submit jobs/drain_to_delta.py --config conf/drain_to_delta.toml --queue orders

Without --checkpoint the checkpoint lies in the table's folder, in _checkpoints. Every key of the configuration's [source] and [delta]
can be given as ``--set source.maxConcurrency=2``. SIGTERM, Ctrl-C or a file named by source.stopFile stop it between batches. Exit
codes: 0 done or stopped, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.batch_report import Totals
from sqlqueue_spark.pipeline.flow import DeltaOptions, drain_to_delta
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

SECTIONS = ("source", "delta")
#: The keys of the configuration that each flag stands for.
PLACES = {
    **common_places("delta"),
    "path": ("delta.path",),
}

#: Where the checkpoint lies unless one is named. Delta leaves folders alone whose names begin with an underscore: it never takes
#: their files for the table's, and VACUUM keeps them. https://docs.delta.io/latest/delta-streaming.html
CHECKPOINT = "_checkpoints"

#: The characters of a message that could steer a terminal.
UNSEEN = r"[\p{C}\p{Zl}\p{Zp}]"


@click.command(help=(__doc__ or "").split("::")[0])
@common_flags(
    "drain_to_delta", checkpoint=f"Folder of the checkpoint, else {CHECKPOINT} in the table's folder."
)
@click.option("--path", "--into", "path", help="Folder of the Delta table.")
@click.option(
    "--show", type=int, default=0, metavar="N", help="Show the newest N rows of the Delta table at the end."
)
def main(
    config: Path | None,
    settings: tuple[str, ...],
    create: bool,
    show: int,
    debug: bool,
    **given: str | bool | None,
) -> None:
    with exiting(2, debug):  # until everything that was given is understood
        sections = configuration(SECTIONS, config, settings, placed(PLACES, given))
        source, options = sections["source"], SourceOptions.parse(sections["source"])
        delta = DeltaOptions.parse(completed(sections["delta"]))
    with exiting(1, debug):
        check_machine()
        make_ready(options, create=create)
        spark = session(f"drain {options.title} to Delta")
        run(spark, source, delta, show)
        spark.stop()


def completed(delta: Mapping[str, str]) -> dict[str, str]:
    """The options of [delta], with a checkpoint in the table's folder if they name none."""
    path = said(delta, "path")
    if path is None or said(delta, "checkpoint") is not None:
        return dict(delta)
    return {**delta, "checkpoint": f"{path.rstrip('/')}/{CHECKPOINT}"}


def run(spark: SparkSession, source: Mapping[str, str], delta: DeltaOptions, show: int = 0) -> Totals:
    """Drain until stopped.

    :param show: how many of the newest rows of the table to show then.
    """
    title = SourceOptions.parse(source).title
    with stoppable(source) as (stopping, stop_file, done_file):
        query = drain_to_delta(spark, stopping, delta)
        click.echo(plain(f"draining queue={title} into={delta.path}"))
        totals = run_until_stopped(spark, query, stop_file, click.echo, done_file=done_file)
    click.echo(f"drained={totals.messages} {totals}")
    if show:
        table = spark.read.format("delta").load(delta.path)
        click.echo(f"rows in Delta: {table.count()}")
        texts = (
            F.regexp_replace(name, UNSEEN, "\ufffd").alias(name) for name in ("MessageType", "MessageId")
        )
        table.orderBy(F.desc("RowVersion")).select("RowVersion", *texts, "SentAt").show(show, truncate=60)
    return totals
