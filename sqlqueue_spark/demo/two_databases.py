"""``sqlqueue demo store-and-forward``: orders go from one database to another and their answers come back, though that one is down for a while.

Two PostgreSQL servers stand for two machines. A shop commits orders to its own database; jobs carry them to billing's and its answers
back. Then billing's server is killed, orders go on being submitted, and it is started again. In the end the servers run on, so that the
reader can look; when the demo is interrupted or fails, nothing of it does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import click

from sqlqueue_spark.administration import delayed_tables, queue_tables
from sqlqueue_spark.demo.child_environment import child_environment
from sqlqueue_spark.demo.folder import alone, check_parts, short, url_file
from sqlqueue_spark.demo.shown_command import activation, run
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.handling.answers import RELATED_TO
from sqlqueue_spark.messages.message import STORED_FOR, parse_headers
from sqlqueue_spark.messages.outgoing import REPLY_TO_ADDRESS
from sqlqueue_spark.options import ConnectionOptions

DEFAULT_FOLDER = Path(".demo/store-and-forward")
DEFAULT_MESSAGES = 300
#: The servers, each with its data in a folder of this name.
_NAMES = ("shop", "billing")
STORE, ORDERS, ANSWERS = "outgoing", "billing", "sales"
SUBMITTED = "Shop.Messages.OrderSubmitted"
#: Orders a second.
_RATE = 40.0
#: How long the orders may take to come to a place.
_PATIENCE = 120.0
_LOOK, _LINE = 0.25, 3.0  # seconds between looks, and between lines
#: What the jobs say that the reader is to see: a database that is down or back, and an end.
_OF_INTEREST = re.compile(r"(database_down|database_back|put_back|error:) ?(.*)")

_PICTURE = """
  shop's server                                  billing's server
  a sender ──▶ outgoing ─── store-and-forward ──▶ billing ──▶ a handler
      sales ◀────────────── store-and-forward ─── outgoing ◀──────┘
"""


def main(folder: Path, messages: int) -> None:
    """Run the demo.

    :param folder: where the databases and the checkpoints are kept.
    :param messages: how many orders to submit.
    :raises SqlQueueError: a part that the demo needs is not there, or has failed.
    """
    check_parts()
    with alone(folder):
        shop, billing = (EmbeddedServer(folder / name, keep_url=True) for name in _NAMES)
        with ExitStack() as interrupted:
            for server in (shop, billing):
                interrupted.callback(server.stop)
                server.start()
            story = _Story(folder, shop, billing, messages)
            story.tell()
            interrupted.pop_all()
        for server in (shop, billing):
            server.leave_running()
    story.conclude()


def stop(folder: Path) -> None:
    """Stop the demo's servers; their data stay."""
    for name in _NAMES:
        if (folder / name).exists():
            EmbeddedServer(folder / name).stop()


@dataclass
class _Story:
    folder: Path
    shop: EmbeddedServer
    billing: EmbeddedServer
    messages: int
    _began: float = field(default_factory=time.monotonic)
    _accepted_before: int = 0
    _first: float = 0.0
    _waited: int = 0
    _seconds: float = 0.0
    _accepted: Counter[str] = field(default_factory=Counter)
    _submitted: list[str] = field(default_factory=list)
    _shown: tuple[float, str] = (0.0, "")

    def tell(self) -> None:
        environment = child_environment(SHOP=self.shop.url(), BILLING=self.billing.url())
        click.secho(f"Two PostgreSQL servers run in {self.folder}", bold=True)
        click.echo(f"export {self._urls}")
        click.echo(_PICTURE.rstrip())
        with _Jobs(self.folder, environment) as jobs:
            at_shop = {**environment, "SQLQUEUE_URL": self.shop.url()}
            run(at_shop, "sqlqueue", "create", STORE, ANSWERS, before="SQLQUEUE_URL=$SHOP")
            self._accepted_before = queue_tables.length(self._at_shop, ANSWERS).rows
            click.echo(
                "\nThree jobs start, all in one Spark, which takes some seconds. Meanwhile the first orders are submitted, each by"
            )
            click.secho("$ SQLQUEUE_URL=$SHOP " + shlex.join(_submit(1)), bold=True)  # fmt: skip
            with _Sender(self._at_shop, self._submitted) as sender:
                part = -(-self.messages // 3)
                sender.submit(part)
                self._wait(jobs, "accepted", lambda: self._answers() > 0)
                self._first = time.monotonic() - self._began
                self._wait(jobs, "accepted", lambda: self._answers() >= part // 2)

                click.secho(
                    "\nBilling's server is killed. Orders go on being submitted, and wait:", bold=True
                )
                self.billing.stop(immediate=True)
                sender.submit(min(part, self.messages - part))
                self._wait(jobs, "stored", lambda: sender.idle and not self._stored())
                self._waited = self._waiting()
                run(at_shop, "sqlqueue", "delayed", "length", STORE, before="SQLQUEUE_URL=$SHOP")

                click.secho("\nBilling's server is started again:", bold=True)
                self.billing.start()
                sender.submit(max(0, self.messages - 2 * part))
                self._wait(jobs, "accepted", lambda: sender.idle and self._answers() >= self.messages)
        self._seconds = time.monotonic() - self._began
        self._accepted = self._told()
        self._line(always=True)

    def conclude(self) -> None:
        """Sum up, and say what to type next."""
        once = sum(1 for each in self._submitted if self._accepted[each] == 1)
        shown = {
            "submitted": f"{len(self._submitted):,} orders, each committed to the shop's own database alone",
            "accepted": f"{sum(1 for each in self._submitted if self._accepted[each]):,}",
            "twice": f"{sum(1 for each in self._submitted if self._accepted[each] > 1):,}",
            "lost": f"{sum(1 for each in self._submitted if not self._accepted[each]):,}",
            "waited": f"{self._waited:,} in the table {STORE}.Delayed, while billing's server was down",
            "seconds": f"{self._seconds:.0f}, of which {self._first:.0f} until Spark ran and the first order was accepted",
        }
        if once == len(self._submitted):
            click.secho("\nDone: every order was accepted once.", bold=True, fg="green")
        else:
            click.secho("\nNot every order was accepted once.", bold=True, fg="red")
        for name, text in shown.items():
            click.echo(f"  {name:14} {text}")
        where = "" if self.folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(self.folder))}"
        click.echo(
            _NEXT.format(
                activate=activation(),
                urls=self._urls,
                submit=shlex.join(_submit(1)),
                checkpoint=shlex.quote(short(self.folder / "checkpoints" / "typed")),
                where=where,
            )
        )

    @property
    def _urls(self) -> str:
        files = {"SHOP": self.shop, "BILLING": self.billing}
        return " ".join(
            url_file(self.folder / f"{name.lower()}.url", name, server.url())
            for name, server in files.items()
        )

    @property
    def _at_shop(self) -> ConnectionOptions:
        return ConnectionOptions(url=self.shop.url())

    def _answers(self) -> int:
        return queue_tables.length(self._at_shop, ANSWERS).rows - self._accepted_before

    def _stored(self) -> int:
        return queue_tables.length(self._at_shop, STORE).rows

    def _waiting(self) -> int:
        with suppress(SqlQueueError):  # the job has not made the table yet
            return delayed_tables.length(self._at_shop, STORE).rows
        return 0

    def _told(self) -> Counter[str]:
        """How often each order was accepted, by the id of its message."""
        answers = queue_tables.peek(self._at_shop, ANSWERS, queue_tables.length(self._at_shop, ANSWERS).rows)
        return Counter((parse_headers(each.headers) or {}).get(RELATED_TO, "") for each in answers)

    def _wait(self, jobs: _Jobs, what: str, there: Callable[[], bool]) -> None:
        """Wait until something is there, with a line now and then."""
        deadline = time.monotonic() + _PATIENCE
        while not there():
            for line in jobs.of_interest():
                click.echo(f"  the job says: {line}")
            self._line()
            if not jobs.run():
                raise SqlQueueError(f"The jobs have ended; look into {jobs.log} to see why.")
            if time.monotonic() > deadline:
                raise SqlQueueError(
                    f"The orders were not {what} within {_PATIENCE:.0f} s; look into {jobs.log} to see why."
                )
            time.sleep(_LOOK)
        self._line(always=True)

    def _line(self, *, always: bool = False) -> None:
        """Say how far the orders are, if that has changed; ``always`` although it was said a moment ago."""
        seconds = time.monotonic() - self._began
        counts = f"{len(self._submitted):6,} submitted  {self._waiting():6,} waiting  {self._answers():6,} accepted"
        said, before = self._shown
        if counts != before and (always or seconds - said >= _LINE):
            self._shown = seconds, counts
            click.echo(f"  {seconds:4.0f} s  {counts}")


class _Sender:
    """Submits orders one by one, each in a transaction of its own, at a steady pace, as long as the block lasts."""

    def __init__(self, options: ConnectionOptions, ids: list[str]) -> None:
        """:param ids: gets the ids of the messages that were submitted."""
        self._options = options
        self._ids = ids
        self._wanted = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: SqlQueueError | None = None

    def submit(self, more: int) -> None:
        self._wanted += more

    @property
    def idle(self) -> bool:
        """Whether all that was wanted is submitted."""
        if self._error is not None:
            raise self._error
        return len(self._ids) >= self._wanted

    def _run(self) -> None:
        while not self._stopping.wait(1 / _RATE):
            if len(self._ids) >= self._wanted:
                continue
            try:
                self._ids.append(queue_tables.send(self._options, STORE, _order(len(self._ids) + 1)))
            except SqlQueueError as error:
                self._error = error
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


class _Jobs:
    """The program with the three jobs, which runs as long as the block lasts."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "jobs.log"
        self._environment = environment
        self._folder = folder
        self._read = 0

    def run(self) -> bool:
        return self._process.poll() is None

    def of_interest(self) -> list[str]:
        """What the jobs have said since this was last asked, as far as a reader is to see it."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        new = [each for each in lines[self._read :] if each.endswith("\n")]
        self._read += len(new)
        return [each.strip() for each in new if _OF_INTEREST.match(each)]

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sqlqueue_spark.demo.order_pipelines", str(self._folder)],
                env=self._environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C is ours, and we end the jobs
            )  # fmt: skip
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.close()
        try:
            self._process.wait(0.0 if failed else _PATIENCE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _order(number: int) -> queue_tables.Draft:
    return queue_tables.Draft(
        body=json.dumps({"order": number}).encode(),
        message_type=SUBMITTED,
        headers={STORED_FOR: ORDERS, REPLY_TO_ADDRESS: ANSWERS},
    )


def _submit(number: int) -> list[str]:
    """The command that submits an order."""
    headers = [f"{STORED_FOR}={ORDERS}", f"{REPLY_TO_ADDRESS}={ANSWERS}"]
    return [
        *("sqlqueue", "send", STORE, "--type", SUBMITTED),
        *(word for each in headers for word in ("--header", each)),
        *("--body", json.dumps({"order": number})),
    ]


_NEXT = """
What to type next:
{activate}  export {urls}
  SQLQUEUE_URL=$SHOP sqlqueue peek sales
  SQLQUEUE_URL=$BILLING sqlqueue list

Carry an order by the job itself (Ctrl-C stops it cleanly; kill -9 it and start it again: nothing is lost or doubled):
  SQLQUEUE_URL=$SHOP {submit}
  SQLQUEUE_URL=$SHOP SQLQUEUE_SINK_URL=$BILLING sqlqueue store-and-forward outgoing --endpoint Shop.Forward --error-queue error --checkpoint {checkpoint} --available-now
  SQLQUEUE_URL=$BILLING sqlqueue peek billing

At the end:
  sqlqueue demo store-and-forward --stop{where}"""
