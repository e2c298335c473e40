"""``sqlqueue demo store-and-forward``: orders reach another database and are answered, though it was down.

Two PostgreSQL servers stand for two machines. A shop commits orders to its own database; jobs carry them to
billing's and the answers back. Meanwhile billing's server is killed and started again. At the end both
servers run on, for the reader to look; a demo that fails or is interrupted leaves none.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from sqlqueue_spark.administration import delayed_tables, queue_peek, queue_tables
from sqlqueue_spark.demo import folder_and_commands
from sqlqueue_spark.demo.folder_and_commands import child_environment, run, short, stop_servers, url_file
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.handling.answers import RELATED_TO
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import STORED_FOR
from sqlqueue_spark.options import ConnectionOptions

DEFAULT_FOLDER = Path(".demo/store-and-forward")
DEFAULT_MESSAGES = 300
SERVERS = ("shop", "billing")
STORE, ORDERS, ANSWERS, _TYPE = "outgoing", "billing", "sales", "Shop.Messages.OrderSubmitted"
#: How many orders are submitted between two looks, and the seconds between looks and between lines.
_PORTION, _LOOK, _LINE = 10, 0.1, 3.0


def main(folder: Path, messages: int) -> None:
    """:raises SqlQueueError: a part that the demo needs is not there, or has failed."""
    folder_and_commands.check_parts()
    with folder_and_commands.alone(folder), ExitStack() as at_failure:
        at_failure.callback(stop_servers, folder, SERVERS)
        shop, billing = servers = [EmbeddedServer(folder / name, keep_url=True) for name in SERVERS]
        for server in servers:
            server.start()
        environment = child_environment(SHOP=shop.url(), BILLING=billing.url(), SQLQUEUE_URL=shop.url())
        urls = " ".join(url_file(folder / f"{n}.url", n.upper(), environment[n.upper()]) for n in SERVERS)
        click.secho(f"Two PostgreSQL servers run in {folder}", bold=True)
        click.echo(f"export {urls}\n{_PICTURE}")
        log = folder / "jobs.log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "sqlqueue_spark.demo.order_pipelines", str(folder)]
            jobs = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out,
                start_new_session=True,  # a terminal's Ctrl-C does not reach them: we end them
            )  # fmt: skip
        at_failure.callback(_kill, jobs)
        run(environment, "create", STORE, ANSWERS, before="SQLQUEUE_URL=$SHOP")
        click.echo("\nThe jobs start, which takes some seconds. Meanwhile the first orders are submitted:")
        orders = _Orders(log, jobs, ConnectionOptions(url=shop.url()))
        part = -(-messages // 3)
        orders.submit(part, lambda _, accepted: 2 * accepted >= part)

        click.secho("\nBilling's server is killed. Orders go on being submitted, and wait:", bold=True)
        billing.stop(immediate=True)
        more = min(part, messages - part)
        waited = orders.submit(more, lambda waiting, _: waiting >= more)
        run(environment, "delayed", "length", STORE, before="SQLQUEUE_URL=$SHOP")

        click.secho("\nBilling's server is started again:", bold=True)
        billing.start()
        orders.submit(messages - part - more, lambda _, accepted: accepted >= messages)
        jobs.communicate()  # closes their input and waits for their end
        at_failure.pop_all()
    for server in servers:
        server.leave_running()
    times = orders.accepted_times()
    every, colour = ("Done: every", "green") if times[1] == messages else ("Not every", "red")
    click.secho(f"\n{every} order was accepted once.", bold=True, fg=colour)
    click.echo(f"  {messages:,} submitted, {times[1]:,} accepted once, {times[2]:,} twice, {times[0]:,} lost")
    click.echo(f"  {waited:,} waited in the table outgoing.Delayed while billing's server was down")
    where = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
    checkpoint = shlex.quote(short(folder / "checkpoints" / "typed"))
    click.echo(
        _NEXT.format(activate=folder_and_commands.activation(), urls=urls, checkpoint=checkpoint, where=where)
    )


def _kill(jobs: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(jobs.pid, signal.SIGKILL)
    jobs.wait()


class _Orders:
    """The shop's orders: submits them, and says how far they are."""

    def __init__(self, log: Path, jobs: subprocess.Popen[bytes], at_shop: ConnectionOptions) -> None:
        self._log, self._jobs, self._at_shop = log, jobs, at_shop
        self._ids: list[str] = []
        self._began, self._lines = time.monotonic(), 0
        self._earlier = queue_tables.length(at_shop, ANSWERS).rows  # of other runs
        delayed_tables.create(at_shop, STORE)  # as the job does at its start

    def submit(self, more: int, there: Callable[[int, int], bool]) -> int:
        """Submit orders, each in its own transaction, and look until they are there; returns how many wait.

        :param there: is given how many orders wait at the shop, and how many are accepted.
        """
        wanted, line = len(self._ids) + more, 0.0
        while True:
            for number in range(len(self._ids), min(wanted, len(self._ids) + _PORTION)):
                body = b'{"order": %d}' % (number + 1)
                order = queue_tables.Draft(body=body, message_type=_TYPE, headers={STORED_FOR: ORDERS})
                self._ids.append(queue_tables.send(self._at_shop, STORE, order))
            waiting = delayed_tables.length(self._at_shop, STORE).rows
            accepted = queue_tables.length(self._at_shop, ANSWERS).rows - self._earlier
            done, now = len(self._ids) == wanted and there(waiting, accepted), time.monotonic()
            said = self._log.read_text(errors="replace").rpartition("\n")[0].splitlines()
            for each in said[self._lines :]:
                if each.startswith(("database_down", "database_back", "put_back", "Error:")):
                    click.echo(f"  the job says: {each}")
            self._lines = len(said)
            if done or now >= line:
                line = now + _LINE
                counts = f"{len(self._ids):6,} submitted  {waiting:6,} waiting  {accepted:6,} accepted"
                click.echo(f"  {now - self._began:4.0f} s  {counts}")
            if done:
                return waiting
            if self._jobs.poll() is not None:
                raise SqlQueueError(f"The jobs have ended; look into {self._log} to see why.")
            time.sleep(_LOOK)

    def accepted_times(self) -> Counter[int]:
        """How many orders were accepted never (0), once (1) and more than once (2)."""
        answers = [*queue_peek.look(self._at_shop, ANSWERS, count=self._earlier + 2 * len(self._ids))]
        told = Counter((parse_headers(each.headers) or {}).get(RELATED_TO, "") for each in answers)
        return Counter(min(told[each], 2) for each in self._ids)


_PICTURE = """
  shop's server                                billing's server
  orders ──▶ outgoing ─── store-and-forward ───▶ billing ◀──▶ a handler
      sales ◀──────────── store-and-forward ──── billing"""

_NEXT = """
What to type next:
{activate}  export {urls}
  SQLQUEUE_URL=$SHOP sqlqueue peek sales
  SQLQUEUE_URL=$SHOP sqlqueue send outgoing --type Shop.Messages.OrderSubmitted \\
    --header '$.store-and-forward.destination=billing' --body '{{"order": 1}}'
  SQLQUEUE_URL=$SHOP SQLQUEUE_SINK_URL=$BILLING sqlqueue store-and-forward outgoing \\
    --endpoint Shop.Forward --error-queue error --checkpoint {checkpoint} --available-now
  SQLQUEUE_URL=$BILLING sqlqueue peek billing
  sqlqueue demo store-and-forward --stop{where}"""
