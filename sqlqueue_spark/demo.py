"""``sqlqueue demo``: a real queue table, 300,000 messages, and Spark draining them into Delta, on this machine.

Every step is a command that the reader could type, shown before it runs. The server, the Delta table and the
checkpoint stay in one folder, so that a second run goes on where the first one ended.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.embedded.login import PasswordFile
from sqlqueue_spark.embedded.programs import opened_lock
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.inspection.doctor.machine_checks import java
from sqlqueue_spark.options import ConnectionOptions

QUEUE = "orders"
DEFAULT_FOLDER = Path(".demo")
#: In a run of seconds the JVM's optimizing compiler gains nothing: 300,000 messages were drained in 23.8 s without it and in 24.9 s
#: with it. A job that runs for long needs it.
_SHORT_RUN = ("--driver-java-options", "-XX:TieredStopAtLevel=1")
#: `python benchmarks/drain.py --only delta`; a test holds it against benchmarks/README.md.
_BESIDE = (
    "on two cores, once Spark is warm, this job has 57,454 messages/s, Spark's JDBC source, which only copies the rows, 184,484, and "
    "one-row receivers 9,432 (benchmarks/README.md)"
)


def main(folder: Path, messages: int) -> None:
    """Run the demo.

    :param folder: where the database, the Delta table and the checkpoint are kept.
    :param messages: how many messages to send.
    :raises SqlQueueError: a part that the demo needs is not there, or has failed.
    """
    job, conf = _repository_files()
    java()
    with _alone(folder):
        server = EmbeddedServer(folder / "database", keep_running=True)
        server.start()
        url = server.url()
        environment = {
            **os.environ,
            "SQLQUEUE_URL": url,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        click.secho(f"A PostgreSQL server runs in {folder / 'database'}", bold=True)
        ours = _url_file(folder, url)
        click.echo(f"export {ours}")
        places = ("--path", _short(folder / "delta" / QUEUE), "--checkpoint", _short(folder / "checkpoints" / QUEUE))  # fmt: skip
        log = folder / "spark-submit.log"

        _run(environment, "sqlqueue", "create", QUEUE)
        _run(environment, "sqlqueue", "send", QUEUE, "--count", str(messages), "--size", "700")
        _run(environment, "sqlqueue", "length", QUEUE)
        click.echo(f"\nexport SPARK_CONF_DIR={_short(conf)}")
        said = _run(
            environment, "spark-submit", *_SHORT_RUN, _short(job), "--queue", QUEUE, *places, "--available-now", "--show", "5",
            log=log,
        )  # fmt: skip
        left = queue_tables.length(ConnectionOptions(url=url), QUEUE).rows
    _conclude("\n".join(said), left)
    where = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
    click.echo(_NEXT.format(url=ours, queue=QUEUE, places=shlex.join(places), where=where))


def stop(folder: Path) -> None:
    """Stop the demo's server; its data stay."""
    if (folder / "database").exists():
        EmbeddedServer(folder / "database").stop()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one demo run in a folder: two jobs on one checkpoint would stop each other."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = opened_lock(folder / "lock")
    except OSError as error:
        raise ConfigurationError(
            f"The demo cannot write into {folder} ({error.strerror}); name another folder with --folder."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                f"A demo runs in {folder} already; wait for it, or name another folder with --folder."
            ) from error
        yield


def _repository_files() -> tuple[Path, Path]:
    repository = Path(__file__).resolve().parent.parent
    job, conf = repository / "jobs" / "drain_to_delta.py", repository / "conf"
    if not job.exists():
        raise ConfigurationError(
            f"The demo runs {job}, which is not there; run it from a clone, by: make demo."
        )
    return job, conf


def _run(environment: dict[str, str], program: str, *arguments: str, log: Path | None = None) -> list[str]:
    """Show a command, run it, show what it says, and return that.

    :param log: the file for what the command says on stderr; without one the user sees it, as a progress bar needs.
    :raises SqlQueueError: it failed.
    """
    click.secho(f"\n$ {shlex.join([program, *arguments])}", bold=True)
    installed = Path(sys.executable).parent / program  # the first one on the PATH may be another one
    if not installed.exists():
        raise ConfigurationError(
            f"{program} is not installed beside {sys.executable}; run: pip install 'sqlqueue_spark[demo]'."
        )
    command = [str(installed), *arguments]
    with (
        log.open("wb") if log else nullcontext() as stderr,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout is not None, "it was asked for"
        said = []
        for line in process.stdout:
            click.echo(line, nl=False)
            said.append(line.rstrip("\n"))
    if process.returncode:
        where = f"look above and into {log}" if log else "look above"
        raise SqlQueueError(f"{program} ended with exit code {process.returncode}; {where} to see why.")
    return said


def _url_file(folder: Path, url: str) -> str:
    """Write the url, which holds the password, into a file that only we read; what sets the variable from there, for a shell."""
    file = folder / "url"
    PasswordFile(file).write(url)
    return f'SQLQUEUE_URL="$(cat {shlex.quote(_short(file))})"'


def _short(path: Path) -> str:
    """A path as one would type it here."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


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
  . .venv/bin/activate
  export {url} SPARK_CONF_DIR=conf
  sqlqueue send {queue} --type Sales.OrderPlaced --body '{{"order": 1}}'
  sqlqueue peek {queue}
  spark-submit jobs/drain_to_delta.py --queue {queue} {places}

In a second terminal, while that runs (Ctrl-C stops it cleanly; kill -9 it and start it again: nothing is lost or doubled):
  . .venv/bin/activate
  export {url}
  sqlqueue send {queue} --count 300000 --rate 3000

At the end:
  sqlqueue demo --stop{where}"""
