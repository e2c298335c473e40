r"""Drain a queue table into a Delta table, exactly once; for spark-submit.

::

    SPARK_CONF_DIR=conf spark-submit jobs/drain_to_delta.py \
        --config conf/drain_to_delta.toml --url postgresql://… --queue orders

Every key of the configuration's [source] and [delta] can be given as ``--set source.maxConcurrency=2``. SIGTERM, Ctrl-C
or a file named by source.stopFile stop it between batches. Exit codes: 0 done or stopped, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline import (
    DeltaOptions,
    read_queue,
    run_until_stopped,
    sentence_of,
    with_message_columns,
    write_delta,
)

SECTIONS = ("source", "delta")


@click.command(help=(__doc__ or "").split("::")[0])
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file.")
@click.option("--url", envvar="SQLQUEUE_URL", help="Database of the queue (or SQLQUEUE_URL).")
@click.option("--password", envvar="SQLQUEUE_PASSWORD", help="Its password (or SQLQUEUE_PASSWORD).")
@click.option("--queue", help="Address of the queue table.")
@click.option("--path", help="Folder of the Delta table.")
@click.option("--checkpoint", help="Folder of the checkpoint.")
@click.option("--available-now", is_flag=True, help="Take what is there now and end.")
@click.option(
    "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Any key of the configuration."
)
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
@click.option(
    "--show", type=int, default=0, metavar="N", help="Show the newest N rows of the Delta table at the end."
)
def main(
    config: Path | None, settings: tuple[str, ...], show: int, debug: bool, **given: str | bool | None
) -> None:
    code = 2  # until everything that was given is understood
    try:
        source, delta = configuration(config, settings, given)
        options, sink = SourceOptions.parse(source), DeltaOptions.parse(delta)
        code = 1
        run(source, options, sink, show)
    except (SqlQueueError, PySparkException, Py4JError) as error:
        if debug:
            raise
        click.echo(f"error: {sentence_of(error)}", err=True)
        sys.exit(code)


def configuration(
    config: Path | None, settings: tuple[str, ...], given: Mapping[str, str | bool | None]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of source and sink; the command line wins over the file.

    :raises ConfigurationError: the file or a ``--set`` is malformed. What the options say is not looked at here.
    """
    sections: dict[str, dict[str, str]] = {name: {} for name in SECTIONS}
    if config is not None:
        try:
            loaded = tomllib.loads(config.read_text(encoding="utf-8"))
        except ValueError as error:  # TOML's own, or no UTF-8
            raise ConfigurationError(
                f"The configuration {config} is not valid TOML ({error}); correct it."
            ) from error
        for name, values in loaded.items():
            if name not in sections or not isinstance(values, dict):
                raise ConfigurationError(
                    f"The configuration {config} has no section [{name}]; there are [source], [delta]."
                )
            sections[name].update({key: _text(value) for key, value in values.items()})
    for setting in settings:
        name, equals, value = setting.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot) or section not in sections:
            said = f"--set {name}=…" if equals else "A --set without ="  # what stands there may be a secret
            raise ConfigurationError(f"{said} cannot be read; write source.KEY=VALUE or delta.KEY=VALUE.")
        sections[section][key] = value
    for section, keys in (
        ("source", ("url", "password", "queue")),
        ("delta", ("path", "checkpoint", "available_now")),
    ):
        for key in keys:
            if given.get(key):
                sections[section]["availableNow" if key == "available_now" else key] = _text(given[key])
    return sections["source"], sections["delta"]


def run(source: Mapping[str, str], options: SourceOptions, delta: DeltaOptions, show: int) -> None:
    """Drain until stopped; ``options`` is what ``source`` says."""
    spark = SparkSession.builder.appName(f"drain {options.queue} to Delta").getOrCreate()
    with tempfile.TemporaryDirectory(prefix="sqlqueue-") as folder:
        stop_file = Path(options.stop_file or Path(folder) / "stop")
        messages = with_message_columns(read_queue(spark, {**source, "stopFile": str(stop_file)}))
        query = write_delta(messages, delta)
        click.echo(f"draining queue={options.queue} into={delta.path}")
        totals = run_until_stopped(spark, query, stop_file, click.echo)
    rate = round(totals.messages / totals.seconds) if totals.seconds else 0
    steady = f" steady={round(totals.steady)}/s" if totals.steady is not None else ""
    took = f"seconds={totals.seconds:.1f} rate={rate}/s{steady}"
    click.echo(f"drained={totals.messages} batches={totals.batches} {took}")
    if show:
        table = spark.read.format("delta").load(delta.path)
        click.echo(f"rows in Delta: {table.count()}")
        table.orderBy(F.desc("RowVersion")).select("RowVersion", "MessageType", "MessageId", "SentAt").show(
            show, truncate=60
        )
    spark.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
