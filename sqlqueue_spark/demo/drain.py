"""``sqlqueue demo drain``: a real queue table, 300,000 messages, and Spark that drains them into Delta.

Every step is a command that the reader could type, shown before it runs. The server, the Delta table and the
checkpoint stay in one folder, so that a second run goes on where the first one ended.
"""

import re
import shlex
from pathlib import Path

import click

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.demo import folder_and_commands as demo
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.options import ConnectionOptions

QUEUE = "orders"
DEFAULT_FOLDER = Path(".demo")
DEFAULT_MESSAGES = 300_000
#: The folders of the servers' data within that of the demo.
SERVERS = ("database",)


def main(folder: Path, messages: int) -> None:
    """:raises SqlQueueError: a part that the demo needs is not there, or has failed."""
    demo.check_parts()
    with demo.alone(folder):
        data = folder / SERVERS[0]
        server = EmbeddedServer(data, keep_running=True)
        server.start()
        url = server.url()
        environment = demo.child_environment(SQLQUEUE_URL=url)
        ours = demo.url_file(folder / "url", "SQLQUEUE_URL", url)
        click.secho(f"A PostgreSQL server runs in {data}", bold=True)
        click.echo(f"export {ours}")
        into, checkpoint = (demo.short(folder / each / QUEUE) for each in ("delta", "checkpoints"))
        drain = ("drain", QUEUE, "--into", into, "--checkpoint", checkpoint)

        demo.run(environment, "create", QUEUE)
        demo.run(environment, "send", QUEUE, "--count", str(messages), "--size", "700")
        demo.run(environment, "length", QUEUE)
        said = demo.run(environment, *drain, "--available-now", "--show", "5", log=folder / "drain.log")
        left = queue_tables.length(ConnectionOptions(url=url), QUEUE).rows
    _conclude("\n".join(said), left)
    where = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
    command = shlex.join(["sqlqueue", *drain])
    click.echo(_NEXT.format(activate=demo.activation(), url=ours, queue=QUEUE, drain=command, where=where))


def _conclude(said: str, left: int) -> None:
    drained, seconds, rate, steady = re.findall(
        r"^drained=(\d+) batches=\d+ seconds=([\d.]+) rate=(\d+)/s(?: steady=(\d+)/s)?", said, re.MULTILINE
    )[-1]
    rows = re.findall(r"^rows in Delta: (\d+)", said, re.MULTILINE)[-1]
    earlier = ", those of earlier runs included" if int(rows) > int(drained) else ""
    if left:
        text, colour = "Not everything is drained: another program sends, or holds rows.", "yellow"
    else:
        text, colour = "Done: every message has left the queue and is in the Delta table once.", "green"
    click.secho(f"\n{text}", bold=True, fg=colour)
    took, steadily = f"{float(seconds):.1f} s", " after the first batch" if steady else ""
    click.echo(f"  drained        {int(drained):,} messages in {took}, with the start of Spark's workers")
    click.echo(f"  rate           {int(steady or rate):,} messages/s{steadily}")
    click.echo(f"  rows in Delta  {int(rows):,}{earlier}")
    click.echo(f"  rows left      {left:,}")


_NEXT = """
What to type next:
{activate}  export {url}
  sqlqueue send {queue} --type Sales.OrderPlaced --body '{{"order": 1}}'
  sqlqueue peek {queue}
  {drain}

In a second terminal, while that runs (Ctrl-C stops it; even after kill -9 nothing is lost or doubled):
{activate}  export {url}
  sqlqueue send {queue} --count 300000 --rate 3000

At the end:
  sqlqueue demo --stop{where}"""
