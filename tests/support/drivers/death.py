"""Kills a program at a named step, as the death of a machine does: all its processes at once,
or only some of them.

A child process gets its orders by its environment (see :func:`orders`), because Spark's own Python processes
reach steps too. Each process notes every step that it reaches in a file that they share.

Several pipelines of one program can die at once, each at a step of its own: the one that reaches its step
waits there for the others. A process whose environment names its pipeline notes its steps as those of that
pipeline (see :func:`of`).
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import psutil

Who = Literal["everything", "this process", "driver", "executor"]
#: A step, and the number of a time that it is reached; the first time is 1.
Where = tuple[str, int]

#: The variable that names the pipeline of a process.
PIPELINE = "SQLQUEUE_TEST_PIPELINE"
_STEPS = "SQLQUEUE_TEST_STEPS"
_DEATH = "SQLQUEUE_TEST_DEATH"
_TOGETHER = "everything together"
_ROOT = Path(__file__).parents[3]
_COMMAND = (sys.executable, "-c", "from sqlqueue_spark.cli import main; main()")


def orders(steps: Path, step: str, nth: int, who: Who = "everything") -> dict[str, str]:
    """The environment of a program that dies when it reaches ``step`` for the ``nth`` time."""
    return each(steps, (step, nth, who))


def each(steps: Path, *deaths: tuple[str, int, Who]) -> dict[str, str]:
    """The environment of a program in which processes die at each of these steps."""
    return _orders(steps, deaths)


def worker_deaths(steps: Path, *where: Where) -> dict[str, str]:
    """The environment of a program in which one process dies at each of these steps."""
    return _orders(steps, [(*each, "this process") for each in where])


def executor_deaths(steps: Path, *where: Where) -> dict[str, str]:
    """The environment of a program on a cluster in which one executor dies at each of these steps."""
    return _orders(steps, [(*each, "executor") for each in where])


def together(steps: Path, *where: Where) -> dict[str, str]:
    """The environment of a program that dies when it has reached all of these steps;
    a process that reaches one waits there.
    """
    return _orders(steps, [(*each, _TOGETHER) for each in where])


def started(steps: Path, step: str, nth: int, url: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """The command ``sqlqueue`` in a process of its own, which is killed when it reaches ``step``
    for the ``nth`` time.
    """
    environment = (
        os.environ
        | {"PYTHONPATH": str(_ROOT), "SQLQUEUE_URL": url}
        | orders(steps, step, nth, "this process")
    )
    return subprocess.Popen([*_COMMAND, *arguments], env=environment, cwd=_ROOT, stdout=subprocess.DEVNULL)


def of(pipeline: str, step: str) -> str:
    """The name of a step that one of several pipelines reaches."""
    return f"{pipeline}: {step}"


def _orders(steps: Path, deaths: Sequence[tuple[str, int, str]]) -> dict[str, str]:
    return {
        "SQLQUEUE_AT_STEP": f"{__name__}:at_step",
        _STEPS: str(steps),
        _DEATH: "\n".join(f"{step}|{nth}|{who}" for step, nth, who in deaths),
    }


def at_step(name: str, pipeline: str = "") -> None:
    """Note the step, and die if the orders say so. Without orders do nothing.

    :param pipeline: the pipeline whose step it is, where the process works for several.
    """
    if _DEATH not in os.environ:
        return
    if pipeline := pipeline or os.environ.get(PIPELINE, ""):
        name = of(pipeline, name)
    ordered = [line.split("|") for line in os.environ[_DEATH].splitlines()]
    deaths: dict[str, Callable[[], None]] = {
        "everything": _kill_everything,
        "this process": _kill_this_process,
        "driver": _kill_driver,
        "executor": _kill_executor,
    }
    with Path(os.environ[_STEPS]).open("a+", encoding="utf-8") as noted:
        fcntl.flock(noted, fcntl.LOCK_EX)
        noted.write(f"{name}\n")
        noted.flush()
        noted.seek(0)
        reached = Counter(noted.read().splitlines())
        who = next((who for step, nth, who in ordered if step == name and reached[name] == int(nth)), None)
        if who == _TOGETHER and all(reached[step] >= int(nth) for step, nth, _ in ordered):
            _kill_everything()
        if who in deaths:
            deaths[who]()
    while who == _TOGETHER:
        time.sleep(1)


def processes_of(session: int) -> list[psutil.Process]:
    """The living processes of a session: a program's own, its JVM, Spark's readers and workers."""
    return [process for process in psutil.process_iter() if _session(process) == session]


def kill_session(session: int) -> None:
    """Kill its processes; some may end with others."""
    for process in processes_of(session):
        _send(process.pid, signal.SIGKILL)


def _session(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def _kill_everything() -> NoReturn:
    """Stop all processes first, so that none acts on another's death;
    then kill children before their parents.

    When a process group loses its last parent while one of its processes is stopped, the kernel sends it
    SIGHUP and SIGCONT (POSIX, orphaned process groups). Spark's daemon and its workers are a group like that,
    and the process that kills may be in it. If the JVM died first, this process would die too, and leave
    the program stopped for ever.
    """
    stopped: dict[int, int] = {}
    while others := [p for p in processes_of(os.getsid(0)) if p.pid not in {os.getpid(), *stopped}]:
        for process in others:
            _send(process.pid, signal.SIGSTOP)
            stopped[process.pid] = _depth(process)
    for pid in sorted(stopped, key=stopped.__getitem__, reverse=True):
        _send(pid, signal.SIGKILL)
    _kill_this_process()


def _depth(process: psutil.Process) -> int:
    try:
        return len(process.parents())
    except psutil.NoSuchProcess:
        return 0


def _kill_driver() -> NoReturn:
    """Kill the program and its JVM, and leave Spark's Python processes behind."""
    for process in psutil.Process().children():
        if process.name() == "java":
            process.kill()
    _kill_this_process()


def _kill_executor() -> NoReturn:
    """Kill the Java above this process. Spark's daemon sees that and kills all Python processes below it."""
    next(each for each in psutil.Process().parents() if each.name() == "java").kill()
    while True:
        signal.pause()


def _kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("no process survives SIGKILL")


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
