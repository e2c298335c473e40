"""What the demos share: a folder, in which one demo at a time runs, and commands as a reader could type them.

A command is shown, then run with the Spark of this installation.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import click

from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.embedded.data_folder import make_way
from sqlqueue_spark.embedded.programs import binary, one_at_a_time
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.inspection.doctor.machine_checks import java, spark
from sqlqueue_spark.options.own_file import OwnFile

#: Variables by which the user may have configured another Spark.
_FOREIGN = ("SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS")
#: In a run of seconds the JVM's optimizing compiler gains nothing: 300,000 messages were drained in 23.8 s
#: without it and in 24.9 s with it. A job that runs for long needs it. A JVM without this compiler reserves
#: 48 MB for compiled code and not 240. Spark can use them up, and then the JVM can end
#: (https://bugs.openjdk.org/browse/JDK-8295724).
_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def check_parts() -> None:
    """:raises SqlQueueError: a part that a demo needs is not there; the text says how to install it."""
    binary("postgres")  # first, for the extra that brings it brings Spark too
    spark()
    java()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one demo run in a folder: two jobs on one checkpoint would stop each other."""
    with ExitStack() as stack:
        try:
            make_way(folder.absolute())
            stack.enter_context(one_at_a_time(folder / "lock", wait=False))
        except BlockingIOError as error:
            raise ConfigurationError(
                f"A demo runs in {folder} already; wait for it, or name another folder with --folder."
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"The demo cannot write into {folder} ({error.strerror}); name another folder with --folder."
            ) from error
        yield


def stop_servers(folder: Path, servers: Iterable[str]) -> list[Path]:
    """Stop a demo's servers; their data stay. Returns the folders of the data of those that ran."""
    data = [folder / each for each in servers]
    return [each for each in data if each.exists() and EmbeddedServer(each).stop()]


def url_file(file: Path, variable: str, url: str) -> str:
    """Write a url into a file that only we can read; returns what sets a variable from it in a shell."""
    OwnFile(file).write(url)
    return f'{variable}="$(cat {shlex.quote(short(file))})"'


def short(path: Path) -> str:
    """A path as one would type it here."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def child_environment(**more: str) -> Mapping[str, str]:
    """The environment of all programs of a demo: ours without another Spark's configuration, and ``more``."""
    own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return {
        **own,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONSAFEPATH": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": f"{own.get('JDK_JAVA_OPTIONS', '')} {_QUICK}".strip(),
        **more,
    }


def run(
    environment: Mapping[str, str], *arguments: str, log: Path | None = None, before: str = ""
) -> list[str]:
    """Show a command of ``sqlqueue``, run it, show what it says, and return that.

    :param log: the file for what it says on stderr. Without one the user sees it, as a progress bar needs.
    :param before: what a reader types before the command, as in ``SQLQUEUE_URL=$SHOP``.
    """
    click.secho(f"\n$ {before and f'{before} '}{shlex.join(['sqlqueue', *arguments])}", bold=True)
    command = [sys.executable, "-m", "sqlqueue_spark", *arguments]
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
        raise SqlQueueError(f"sqlqueue ended with exit code {process.returncode}; {where} to see why.")
    return said


def activation() -> str:
    """The line that makes a shell find ``sqlqueue``; empty where it finds this one already."""
    found, activate = shutil.which("sqlqueue"), Path(sys.prefix, "bin", "activate")
    if not activate.exists() or (found is not None and Path(found).parent.samefile(activate.parent)):
        return ""
    return f"  . {shlex.quote(short(activate))}\n"
