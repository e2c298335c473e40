#!/usr/bin/env -S python3 -SE
"""Stands for ``sqlqueue``, ``python`` and ``pyspark`` in the shell of a page (:mod:`tests.support.reading`).

What starts Spark is handed over to the reader's one Python. All else is the program of that name.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Where the reader's Python serves, and where the programs are.
SOCKET, PROGRAMS = "SQLQUEUE_TEST_PYTHON", "SQLQUEUE_TEST_PROGRAMS"
#: What is added to the name of the first for a file that asks for it.
WANTED = ".wanted"
_JOBS = {"drain", "forward", "handle", "archive", "store-and-forward"}
_ENDS = {"--help", "--example-config"}


def ask(path: str, environment: Mapping[str, str], streams: Sequence[int], **request: object) -> int:
    """What the reader's Python makes of a request: an exit code."""
    while not Path(path).exists():  # it is started at this word
        Path(f"{path}{WANTED}").touch()
        time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as python:
        python.connect(path)
        socket.send_fds(python, [b"+"], streams)
        python.sendall(json.dumps({**request, "environment": dict(environment)}).encode())
        python.shutdown(socket.SHUT_WR)
        answer = python.recv(16)
    return int(answer) if answer else 1  # it has died


def main() -> int:
    """The exit code."""
    name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    starts_spark = (
        arguments[:1] and arguments[0] in _JOBS and not _ENDS & {*arguments}
        if name == "sqlqueue"
        else name == "pyspark" or not arguments
    )
    if not starts_spark:
        program = str(Path(os.environ[PROGRAMS], name))
        os.execv(program, [program, *arguments])  # noqa: S606 -- it is what was typed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the reader's Python has it too
    do = "job" if name == "sqlqueue" else "python"
    return ask(os.environ[SOCKET], os.environ, [1, 2], do=do, argv=[name, *arguments])


if __name__ == "__main__":
    sys.exit(main())
