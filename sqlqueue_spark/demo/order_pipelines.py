"""The three jobs of ``sqlqueue demo store-and-forward``, in one Spark: from the shop to billing, billing's handler, and the way back.

A program of its own, which the demo starts: ``python -m sqlqueue_spark.demo.order_pipelines FOLDER``, with the urls in ``SHOP`` and
``BILLING``. It ends when its standard input is closed, however the demo has ended. As people run them, these are three jobs on
three machines; in one Spark they take one start.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import click
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import sentence_of
from sqlqueue_spark.handling import ReceivedMessage, Reply
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline import (
    HandleOptions,
    StoreAndForwardOptions,
    handled,
    send_until_stopped,
    store_and_forward,
)
from sqlqueue_spark.pipeline.running.readiness import make_ready
from sqlqueue_spark.pipeline.running.session import session
from sqlqueue_spark.pipeline.running.stop import asked_to_stop

STORE, ORDERS, ANSWERS, ERROR = "outgoing", "billing", "sales", "error"
SUBMITTED, ACCEPTED = "Shop.Messages.OrderSubmitted", "Shop.Messages.OrderAccepted"
#: Names of outboxes, each of one job alone.
FROM_SHOP, FROM_BILLING, HANDLER = "Shop.Forward", "Billing.Forward", "Billing"
#: How often a database that is down is tried; the usual ten seconds would be a long time for somebody who looks on.
RETRY_INTERVAL = "2s"
_SPARK = {"spark.master": "local[4]", "spark.ui.enabled": "false"}
_AGAIN_SECONDS = 1.0
_SECONDS_TO_END = 30.0


def accept(message: ReceivedMessage) -> Reply:
    """Billing's handler: accept every order."""
    return Reply(ACCEPTED, message.json())


def main(folder: Path, shop: str, billing: str) -> None:
    """Run until the standard input is closed."""
    spark = session("sqlqueue demo", delta=False, settings=_SPARK)
    stopping = threading.Event()
    jobs: list[Callable[[Mapping[str, str], str], object]] = [
        lambda stop, checkpoint: _forward(spark, {"url": shop, **stop}, billing, FROM_SHOP, checkpoint),
        lambda stop, checkpoint: _handle(spark, {"url": billing, **stop}, shop, checkpoint),
        lambda stop, checkpoint: _forward(spark, {"url": billing, **stop}, shop, FROM_BILLING, checkpoint),
    ]
    with asked_to_stop(spark):  # this thread is asked; the jobs run on others
        names = (FROM_SHOP, HANDLER, FROM_BILLING)
        stop_files = [folder / f"{name}.stop" for name in names]
        threads = [
            threading.Thread(
                target=_kept_running,
                args=(job, file, str(folder / "checkpoints" / name), stopping),
                daemon=True,
            )
            for job, file, name in zip(jobs, stop_files, names, strict=True)
        ]
        for each in threads:
            each.start()
        sys.stdin.read()
        stopping.set()
        for file in stop_files:
            file.touch()
        for each in threads:
            each.join(_SECONDS_TO_END)
    spark.stop()


def _kept_running(
    job: Callable[[Mapping[str, str], str], object],
    stop_file: Path,
    checkpoint: str,
    stopping: threading.Event,
) -> None:
    """Run a job, and start it again when it ends, as whatever looks after jobs does."""
    stop_file.unlink(missing_ok=True)
    while not stopping.is_set():
        try:
            job({"stopFile": str(stop_file)}, checkpoint)
        except Exception as error:  # noqa: BLE001 -- whatever ends a job, it is to run again
            click.echo(f"error: {sentence_of(error)}")
        stopping.wait(_AGAIN_SECONDS)


def _forward(
    spark: SparkSession, here: Mapping[str, str], there: str, endpoint: str, checkpoint: str
) -> None:
    source = {**here, "queue": STORE}
    sink = {"url": there, "endpoint": endpoint, "errorQueue": ERROR, "retryInterval": RETRY_INTERVAL}
    options = StoreAndForwardOptions.parse({"checkpoint": checkpoint})
    store_and_forward(spark, source, sink, options, create=True)


def _handle(spark: SparkSession, here: Mapping[str, str], shop: str, checkpoint: str) -> None:
    source = {**here, "queue": ORDERS}
    sink = {
        "url": here["url"], "endpoint": HANDLER, "errorQueue": ERROR,
        "storeAndForward": STORE, f"endpoint.{ANSWERS}.url": shop,
    }  # fmt: skip
    options = HandleOptions.parse({"checkpoint": checkpoint, "handler": f"{__name__}:accept"})
    make_ready(SourceOptions.parse(source), SinkOptions.parse(sink), create=True, retries=True)
    send_until_stopped(
        spark,
        source,
        sink,
        lambda messages, queue: handled(messages, options, queue),
        checkpoint,
        available_now=False,
        doing="handling",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ["SHOP"], os.environ["BILLING"])
