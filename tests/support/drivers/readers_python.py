"""The Python of a reader: one Spark, in which the programs of a page and the jobs of its commands run.

It is started in the folder in which the reader works, and serves one request after the other. A block of
Python is typed line by line, as into Python itself. A job runs here too, so that a page does not wait for a
Spark of its own.
"""

import code
import itertools
import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from sqlqueue_spark.cli import main as sqlqueue
from sqlqueue_spark.pipeline.running.session import session

Request = dict[str, Any]
#: What makes a session that knows Delta; the session here always does.
_KNOWS_DELTA = re.compile(r"delta-spark|SPARK_CONF_DIR|configure_spark_with_delta_pip")
_QUICK = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


class _Console(code.InteractiveConsole):
    """What is typed into Python."""

    failed = False

    def showtraceback(self) -> None:
        self.failed = True
        super().showtraceback()

    def showsyntaxerror(self, filename: str | None = None, **more: Any) -> None:
        self.failed = True
        super().showsyntaxerror(filename, **more)

    def types(self, text: str) -> bool:
        """Type these lines, up to one that fails, and an empty one at the end; whether all went well."""
        self.failed = False
        for line in [*text.splitlines(), ""]:
            self.push(line)
            if self.failed:
                break
        return not self.failed


class _Reader:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._folder = Path.cwd()
        self._path = [*sys.path]
        self.new_page({})

    def new_page(self, request: Request) -> int:  # noqa: ARG002 -- it is asked as all others are
        """End what the last page has begun."""
        self._console: _Console | None = None
        for query in self._spark.streams.active:
            query.stop()
        for table in self._spark.catalog.listTables():
            self._spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} IF EXISTS `{table.name}`")
        for name, module in [*sys.modules.items()]:
            if Path(getattr(module, "__file__", None) or "/").is_relative_to(self._folder):
                del sys.modules[name]
        sys.path[:] = self._path
        return 0

    def python(self, request: Request) -> int:
        """Begin a session of Python, or of ``pyspark``, in which ``spark`` is there."""
        _, *arguments = request["argv"]
        names = {"spark": self._spark} if request["argv"][0] == "pyspark" else {}
        self._console = _Console({"__name__": "__main__", **names})
        self._said = (
            f"{shlex.join(request['argv'])} {'SPARK_CONF_DIR' if 'SPARK_CONF_DIR' in os.environ else ''}"
        )
        for flag, each in itertools.pairwise(arguments):
            name, _, value = each.partition("=")
            if flag == "--conf" and self._spark.conf.get(name, None) != value:
                sys.stderr.write(f"The session of the tests has not {each}.\n")
                return 1
        return 0

    def typed(self, request: Request) -> int:
        """Type a block into the session that is open, else into a new one."""
        if self._console is None:
            self.python({"argv": ["python"]})
        assert self._console is not None
        self._said += request["code"]
        if re.search(r"\bdelta\b|write_delta", request["code"]) and not _KNOWS_DELTA.search(self._said):
            sys.stderr.write("A session that was started so knows no Delta.\n")
            return 1
        return 0 if self._console.types(request["code"]) else 1

    def job(self, request: Request) -> int:
        """Run a command of ``sqlqueue``; its exit code."""
        try:
            sqlqueue(request["argv"][1:], prog_name="sqlqueue")
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0


def _serve(listening: socket.socket, reader: _Reader) -> None:
    while True:
        connection, _ = listening.accept()
        with connection:
            _, (out, err), _, _ = socket.recv_fds(connection, 1, 2)
            text = b"".join(iter(lambda: connection.recv(1 << 16), b""))  # noqa: B023 -- it is read at once
            request = json.loads(text)
            os.environ.clear()
            os.environ.update(request["environment"])
            do: Callable[[Request], int] = getattr(reader, request["do"])
            with os.fdopen(out, "w", 1) as stdout, os.fdopen(err, "w", 1) as stderr:
                answer = _interruptible(partial(do, request), stdout, stderr)
            connection.sendall(str(answer).encode())


def _interruptible(do: Callable[[], int], stdout: TextIO, stderr: TextIO) -> int:
    with redirect_stdout(stdout), redirect_stderr(stderr):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return do()
        except KeyboardInterrupt:
            return 130
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(path: str) -> None:
    """Serve at a path, once Spark is there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spark = session("pages", settings=_QUICK)
    # A job ends its own Spark, and this is the only one.
    setattr(SparkSession, "stop", lambda _: None)  # noqa: B010 -- mypy would have its type
    with socket.socket(socket.AF_UNIX) as listening:
        begun = f"{path}.begun"
        listening.bind(begun)
        listening.listen()
        Path(begun).rename(path)
        _serve(listening, _Reader(spark))


if __name__ == "__main__":
    main(*sys.argv[1:])
