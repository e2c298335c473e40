"""Runs a program of :mod:`tests.support.drivers`, in a session of its own, to its end or to its death."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from tests.support.drivers.death import kill_session, processes_of
from tests.support.kept_connections import connection_to
from tests.support.quick_java import quick
from tests.support.spark_home import fill, python_path
from tests.support.waiting import eventually

_ROOT = Path(__file__).parents[2]
#: Counts the sessions of a login in its database. A statement that a killed program has sent may
#: still be at work in one.
_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""
PATIENCE = timedelta(seconds=240)  # three pipelines that start one after the other, on a slow machine
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Drain:
    """The program that drains the queues of several pipelines,
    each into the Delta table ``folder/<pipeline>/delta``.
    """

    url: str
    folder: Path
    #: Whether it runs on a cluster of two executors.
    cluster: bool = False

    def run(
        self, orders: Mapping[str, str] = NONE, /, *pipelines: str, limit: int = 100, in_turn: bool = False,
        within: timedelta = PATIENCE,
    ) -> int:  # fmt: skip
        """Run it to its end; its return code, ``-SIGKILL`` if it was killed.
        None of its processes and sessions is left.

        :param limit: most rows of a batch, in slices of at least 40.
        :param in_turn: one pipeline after the other, instead of all at once.
        """
        flags = {"--in-turn": in_turn, "--cluster": self.cluster}
        arguments = ["--limit", str(limit), *(flag for flag, value in flags.items() if value), *pipelines]
        given = {**_password_apart(self.url), **orders}
        with _executors(self.folder) if self.cluster else nullcontext(NONE) as more:
            return _run("drain", self.url, arguments, self.folder, {**given, **more}, within)

    def logged(self, pipeline: str, log: str) -> list[int]:
        """The batches in Spark's ``offsets`` or ``commits`` log of a pipeline."""
        return _logged(self.folder / pipeline / "checkpoint", log)


@dataclass(frozen=True, kw_only=True)
class Forward:
    """The program that runs several pipelines, each from the queue of its name to ``billing``."""

    url: str
    folder: Path
    pipelines: Sequence[str]
    #: Whether it runs on a cluster of two executors.
    cluster: bool = False

    def run(
        self, orders: Mapping[str, str] = NONE, *, in_turn: bool = False, within: timedelta = PATIENCE
    ) -> int:
        """Run it to its end; its return code, ``-SIGKILL`` if it was killed.
        None of its processes and sessions is left.

        :param in_turn: one pipeline after the other, instead of all at once.
        """
        flags = {"--in-turn": in_turn, "--cluster": self.cluster}
        arguments = [*(flag for flag, given in flags.items() if given), *self.pipelines]
        with _executors(self.folder) if self.cluster else nullcontext(NONE) as more:
            given = {**orders, **more, **(_database_apart(self.url) if self.cluster else NONE)}
            return _run("forward", self.url, arguments, self.folder, given, within)

    def logged(self, pipeline: str, log: str) -> list[int]:
        """The batches in Spark's ``offsets`` or ``commits`` log of a pipeline."""
        return _logged(self.folder / pipeline, log)


@contextmanager
def _executors(folder: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a program on a cluster. Executors work in a folder of their own, with Delta's jars.

    Python's processes are children of their executor, and no forks of one server
    (:mod:`tests.support.early_imports`).
    """
    with TemporaryDirectory(dir=folder) as home:
        fill(Path(home))
        yield {"SPARK_HOME": home, "PYTHONPATH": str(_ROOT)}


def _database_apart(url: str) -> dict[str, str]:
    """The environment of a driver in which the database of a url stands beside it.

    The executors have another database there (:func:`tests.support.sparks.start_spark`).
    """
    server, _, database = url.rpartition("/")
    return {"SQLQUEUE_URL": server, "PGDATABASE": database}


def _password_apart(url: str) -> dict[str, str]:
    """The environment in which the password of a url stands beside it."""
    parts = urlsplit(url)
    without = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@"))
    return {"SQLQUEUE_URL": urlunsplit(without), "SQLQUEUE_PASSWORD": unquote(parts.password or "")}


def _run(
    program: str,
    url: str,
    arguments: Sequence[str],
    folder: Path,
    orders: Mapping[str, str],
    within: timedelta,
) -> int:
    child, said = started(program, url, ["--folder", str(folder), *arguments], folder, orders)
    try:
        code = child.wait(within.total_seconds())
        eventually(lambda: not processes_of(child.pid))
    except subprocess.TimeoutExpired:
        pytest.fail(f"It has not ended within {within}; it said: {_tail(said)}")
    finally:
        _end(child)
    assert code in (0, -signal.SIGKILL), _tail(said)
    eventually(lambda: not _sessions(url))
    return code


def started(
    program: str, url: str, arguments: Sequence[str], folder: Path, orders: Mapping[str, str] = NONE
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a program; returns it, and the file into which it writes what it says.

    The url holds a password, and everybody may read a command line, so it is in the environment.
    """
    said = folder / f"said-{len(list(folder.glob('said-*.txt')))}.txt"
    with said.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", f"tests.support.drivers.{program}", *arguments],
            cwd=_ROOT,
            env=os.environ
            | quick(temporary=folder)
            | {"PYTHONPATH": python_path(_ROOT), "SQLQUEUE_URL": url}
            | dict(orders),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return child, said


def _sessions(url: str) -> int:
    with connection_to(url) as connection:
        ((count,),) = connection.execute(_SESSIONS).fetchall()
    return int(count)


def _logged(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(file.name) for file in (checkpoint / log).glob("[0-9]*"))


def _tail(said: Path) -> str:
    return said.read_text(errors="replace")[-5000:]


def _end(child: subprocess.Popen[bytes]) -> None:
    kill_session(child.pid)
    child.wait()
