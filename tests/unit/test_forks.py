"""A Python process that Spark starts in a test is a fork of a server, and lives and dies as the process that stands in for it."""

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.drivers.death import kill_session, processes_of
from tests.support.spark_home import python_path
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="forks by descriptors of processes are Linux's"
)


@pytest.fixture
def start_daemon():
    """Starts Spark's daemon in a session of its own; returns it and the port on which it listens."""
    started = []

    def start():
        daemon = subprocess.Popen(
            [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"],
            env=os.environ | {"PYTHONPATH": python_path()}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        started.append(daemon)
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        return daemon, port

    yield start
    for daemon in started:
        kill_session(daemon.pid)
        with daemon:
            daemon.wait()


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_daemon_is_a_fork_of_the_server_and_both_end_when_spark_closes_its_input(start_daemon):
    daemon, port = start_daemon()
    programs = [Path(each.cmdline()[1]).name for each in processes_of(daemon.pid) if each.pid != daemon.pid]
    assert programs == ["forks.py", "forks.py"]
    daemon.stdin.close()
    assert daemon.wait(30) == 1  # as without a server: it ends with 0, and on its way out with 1
    eventually(lambda: not processes_of(daemon.pid))
    assert not listens(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_fork_too(start_daemon, number):
    daemon, port = start_daemon()
    daemon.send_signal(number)
    eventually(lambda: not processes_of(daemon.pid))
    assert not listens(port)


def test_a_daemon_ends_with_its_fork(start_daemon):
    daemon, _ = start_daemon()
    fork = max(processes_of(daemon.pid), key=lambda each: len(each.parents()))
    fork.kill()
    assert daemon.wait(30) == -signal.SIGKILL
    eventually(lambda: not processes_of(daemon.pid))
