"""The killer of the fault tests leaves no process alive, wherever it stands in the tree of processes."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.drivers import death
from tests.support.waiting import eventually

# As Spark's: program -> JVM -> daemon, which leads a group of its own -> worker, which kills.
TREE = """
import os, signal
from tests.support.drivers.death import at_step

if os.fork() == 0:
    if os.fork() == 0:
        os.setpgid(0, 0)
        if os.fork() == 0:
            at_step("the worst moment")
signal.pause()
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("_attempt", range(5))
def test_a_worker_takes_the_whole_program_with_it(tmp_path, _attempt):
    """Before children died first, whether the program was left stopped hung on the processes' numbers."""
    orders = death.orders(tmp_path / "steps", "the worst moment", 1)
    program = subprocess.Popen(
        [sys.executable, "-c", TREE], env=os.environ | orders, start_new_session=True, cwd=os.curdir
    )
    try:
        assert program.wait(30) == -signal.SIGKILL
        eventually(lambda: not death.processes_of(program.pid))
    finally:
        death.kill_session(program.pid)
        program.wait()


WAITING = """
import os
from tests.support.drivers.death import at_step

for step in ("a", "b", "b"):
    if os.fork() == 0:
        at_step("another")
        at_step(step)
        raise SystemExit(step)  # no process comes so far
at_step("c")
"""


@pytest.mark.timeout(60)
def test_those_who_wait_for_each_other_die_together(tmp_path):
    orders = death.together(tmp_path / "steps", ("b", 2), ("a", 1), ("c", 1), ("b", 1))
    program = subprocess.Popen(
        [sys.executable, "-c", WAITING], env=os.environ | orders, start_new_session=True, cwd=os.curdir
    )
    try:
        assert program.wait(30) == -signal.SIGKILL
        eventually(lambda: not death.processes_of(program.pid))
    finally:
        death.kill_session(program.pid)
        program.wait()
    assert sorted((tmp_path / "steps").read_text().split()) == ["a", *["another"] * 3, "b", "b", "c"]
