"""What a process has loaded is left out of its collections of garbage, once; what it makes is not."""

import gc
import subprocess
import sys
import types

from pyspark import TaskContext

from sqlqueue_spark.spark import processes

PROGRAM = """
import gc, sys, types
from sqlqueue_spark.spark.processes import leave_out_modules

leave_out_modules()
loaded = gc.get_freeze_count()
made = [[] for _ in range(1000)]
leave_out_modules()  # nothing was loaded
same = gc.get_freeze_count()
sys.modules["another"] = types.ModuleType("another")
leave_out_modules()
print(loaded > 1000, same == loaded, gc.get_freeze_count() > loaded)
"""


def test_modules_are_left_out_when_some_were_loaded():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True)
    assert said.stdout.split() == ["True", "True", "True"]


def test_a_task_leaves_them_out_in_sparks_worker_alone(monkeypatch):
    """The processes of the program on the driver and of a test are not ours to change."""
    calls, frozen = [], gc.get_freeze_count()
    monkeypatch.setattr(processes, "leave_out_modules", lambda: calls.append("left out"))
    processes.begin_call()
    assert calls == []
    monkeypatch.setattr(TaskContext, "get", types.MethodType(lambda _: object(), TaskContext))
    processes.begin_call()
    assert calls == ["left out"]
    assert gc.get_freeze_count() <= frozen  # what others have frozen here may be gone since
