"""The two jobs of ``sqlqueue demo store-and-forward``, in one Spark: one beside the shop, one beside billing.

A program of its own, ``python -m sqlqueue_spark.demo.order_pipelines FOLDER`` with the urls in ``SHOP`` and
``BILLING``. It ends when its standard input is closed, however the demo has ended.
"""

import os
import sys
import threading
from pathlib import Path

import click

from sqlqueue_spark.demo.two_databases import ANSWERS, ORDERS, STORE
from sqlqueue_spark.errors import why
from sqlqueue_spark.handling import ReceivedMessage, Send
from sqlqueue_spark.messages.message import STORED_FOR
from sqlqueue_spark.pipeline import StoreAndForwardOptions, store_and_forward
from sqlqueue_spark.pipeline.running.session import session


def accept(message: ReceivedMessage) -> Send:
    """Billing's handler accepts every order. The answer goes by billing's own queue to the shop."""
    return Send(ORDERS, "Shop.Messages.OrderAccepted", message.json(), headers={STORED_FOR: ANSWERS})


def main(folder: Path, shop: str, billing: str) -> None:
    spark = session("demo", delta=False, settings={"spark.master": "local[4]", "spark.ui.enabled": "false"})
    stopping = threading.Event()

    def keep_running(endpoint: str, here: str, queue: str, there: str, more: dict[str, str]) -> None:
        """Run a job, and start it again when it ends, as a supervisor does."""
        stop_file = folder / f"{endpoint}.stop"
        stop_file.unlink(missing_ok=True)
        source = {"url": here, "queue": queue, "stopFile": str(stop_file)}
        # A job tries a database that is down every ten seconds, which is long for a reader.
        sink = {"url": there, "endpoint": endpoint, "errorQueue": "error", "retryInterval": "2s"}
        given = {"checkpoint": str(folder / "checkpoints" / endpoint), **more}
        while not stopping.is_set():
            try:
                store_and_forward(spark, source, sink, StoreAndForwardOptions.parse(given), create=True)
            except Exception as error:  # noqa: BLE001 -- whatever ends a job, it is to run again
                click.echo(f"Error: {why(error)}")
            stopping.wait(1)

    accepting = {"handler": "sqlqueue_spark.demo.order_pipelines:accept"}
    jobs = {"Shop.Forward": (shop, STORE, billing, {}), "Billing": (billing, ORDERS, shop, accepting)}
    threads = [threading.Thread(target=keep_running, args=(name, *jobs[name]), daemon=True) for name in jobs]
    for each in threads:
        each.start()
    sys.stdin.read()
    stopping.set()
    for name in jobs:
        (folder / f"{name}.stop").touch()
    for each in threads:
        each.join(20)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), os.environ["SHOP"], os.environ["BILLING"])
