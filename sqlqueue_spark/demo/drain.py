"""``sqlqueue demo drain``: a real queue table, 300,000 messages, and Spark draining them into Delta, on this machine.

Every step is a command that the reader could type, shown before it runs. The server, the Delta table and the
checkpoint stay in one folder, so that a second run goes on where the first one ended.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.demo.child_environment import child_environment
from sqlqueue_spark.demo.folder import alone, check_parts, short, url_file
from sqlqueue_spark.demo.shown_command import activation, run
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.options import ConnectionOptions

QUEUE = "orders"
DEFAULT_FOLDER = Path(".demo")
DEFAULT_MESSAGES = 300_000
#: `python benchmarks/drain.py --only delta`; a test holds it against benchmarks/README.md.
_BESIDE = (
    "on two cores, once Spark is warm, this job has 91,634 messages/s, Spark's JDBC source, which only copies the rows, 220,647, and "
    "one-row receivers 12,543 (benchmarks/README.md)"
)


def main(folder: Path, messages: int) -> None:
    """Run the demo.

    :param folder: where the database, the Delta table and the checkpoint are kept.
    :param messages: how many messages to send.
    :raises SqlQueueError: a part that the demo needs is not there, or has failed.
    """
    check_parts()
    with alone(folder):
        server = EmbeddedServer(folder / "database", keep_running=True)
        server.start()
        url = server.url()
        environment = child_environment(SQLQUEUE_URL=url)
        click.secho(f"A PostgreSQL server runs in {folder / 'database'}", bold=True)
        ours = url_file(folder / "url", "SQLQUEUE_URL", url)
        click.echo(f"export {ours}")
        drain = ("drain", QUEUE, "--into", short(folder / "delta" / QUEUE))
        places = ("--checkpoint", short(folder / "checkpoints" / QUEUE))

        run(environment, "sqlqueue", "create", QUEUE)
        run(environment, "sqlqueue", "send", QUEUE, "--count", str(messages), "--size", "700")
        run(environment, "sqlqueue", "length", QUEUE)
        said = run(
            environment, "sqlqueue", *drain, *places, "--available-now", "--show", "5",
            log=folder / "drain.log",
        )  # fmt: skip
        left = queue_tables.length(ConnectionOptions(url=url), QUEUE).rows
    _conclude("\n".join(said), left)
    where = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
    command = shlex.join(["sqlqueue", *drain, *places])
    click.echo(_NEXT.format(activate=activation(), url=ours, queue=QUEUE, drain=command, where=where))


def stop(folder: Path) -> None:
    """Stop the demo's server; its data stay."""
    if (folder / "database").exists():
        EmbeddedServer(folder / "database").stop()


def _conclude(said: str, left: int) -> None:
    """Sum up what the job has said of itself."""
    drained, seconds, rate, steady = re.findall(
        r"^drained=(\d+) batches=\d+ seconds=([\d.]+) rate=(\d+)/s(?: steady=(\d+)/s)?", said, re.MULTILINE
    )[-1]
    rows = re.findall(r"^rows in Delta: (\d+)", said, re.MULTILINE)[-1]
    shown = {
        "drained": f"{int(drained):,} messages in {float(seconds):.1f} s, with the first start of Spark's workers",
        "rate": f"{int(steady or rate):,} messages/s" + (" after the first batch" if steady else ""),
        "rows in Delta": f"{int(rows):,}" + (", those of earlier runs included" if int(rows) > int(drained) else ""),
        "rows left": f"{left:,}",
        "beside it": _BESIDE,
    }  # fmt: skip
    if left:
        click.secho("\nNot everything is drained: somebody sends, or holds rows.", bold=True, fg="yellow")
    else:
        click.secho("\nDone: every message has left the queue and is in the Delta table once.", bold=True, fg="green")  # fmt: skip
    for name, text in shown.items():
        click.echo(f"  {name:14} {text}")


_NEXT = """
What to type next:
{activate}  export {url}
  sqlqueue send {queue} --type Sales.OrderPlaced --body '{{"order": 1}}'
  sqlqueue peek {queue}
  {drain}

In a second terminal, while that runs (Ctrl-C stops it cleanly; kill -9 it and start it again: nothing is lost or doubled):
{activate}  export {url}
  sqlqueue send {queue} --count 300000 --rate 3000

At the end:
  sqlqueue demo --stop{where}"""
