"""A Python process that Spark starts in a test is a fork of a server,
and lives and dies as the process that stands in for it.
"""

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
def daemon():
    """Spark's daemon, in a session of its own."""
    command = [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]
    environment = os.environ | {"PYTHONPATH": python_path()}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as started:
        yield started
        kill_session(started.pid)


@pytest.fixture
def port(daemon):
    """Where it listens, as it says when it has begun."""
    (number,) = struct.unpack("!i", daemon.stdout.read(4))
    return number


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_daemon_is_a_fork_of_the_server_and_both_end_when_spark_closes_its_input(daemon, port):
    programs = [Path(each.cmdline()[1]).name for each in processes_of(daemon.pid) if each.pid != daemon.pid]
    assert programs == ["forks.py", "forks.py"]
    daemon.stdin.close()
    assert daemon.wait(30) == 1  # as without a server: it ends with 0, and on its way out with 1
    eventually(lambda: not processes_of(daemon.pid))
    assert not listens(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_fork_too(daemon, port, number):
    daemon.send_signal(number)
    eventually(lambda: not processes_of(daemon.pid))
    assert not listens(port)


@pytest.mark.usefixtures("port")
def test_a_daemon_ends_with_its_fork(daemon):
    fork = max(processes_of(daemon.pid), key=lambda each: len(each.parents()))
    fork.kill()
    assert daemon.wait(30) == -signal.SIGKILL
    eventually(lambda: not processes_of(daemon.pid))
