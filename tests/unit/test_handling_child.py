"""A handler that ends or hangs its process does so in a child: its message fails,
and the others are handled.
"""

import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling import Send, WorkerDied, child_handler, received_message
from sqlqueue_spark.handling.child_handler import HandlingTask
from sqlqueue_spark.handling.handler_calls import Handler, Limits
from sqlqueue_spark.messages.header_json import parse_headers
from tests.support.handlers_time import passes
from tests.unit.test_handling import batch

SENT = "sent"


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    while child_handler._idle:
        child_handler._idle.popitem()[1].end()
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)


def task(function, *, retries=0, timeout=30.0, unrecoverable=()) -> HandlingTask:
    """A task as it comes to a worker."""
    limits = Limits(immediate_retries=retries, timeout=timeout, unrecoverable=unrecoverable)
    sent = CloudPickleSerializer().dumps(HandlingTask.of(Handler(functions=function, limits=limits)))
    found = pickle.loads(sent)  # noqa: S301 -- made here
    assert isinstance(found, HandlingTask)
    return found


def outcomes(function, *batches, **more):
    """What became of each message, in the order of their RowVersions: SENT, nothing,
    or the type of its failure.
    """
    rows = itertools.chain.from_iterable(each.to_pylist() for each in task(function, **more)(iter(batches)))
    told = sorted((row["RowVersion"], _told(row)) for row in rows)
    assert [number for number, _ in told] == [*range(1, sum(each.num_rows for each in batches) + 1)]
    return [each for _, each in told]


def _told(row):
    if row["Failure"] is None:
        return SENT if row["Outgoing"] else ""
    assert row["Outgoing"] is None
    return row["Failure"]["ExceptionType"].rpartition(".")[2]


def failure(function, **more):
    (row,) = itertools.chain.from_iterable(
        each.to_pylist() for each in task(function, **more)(iter([batch(1)]))
    )
    return row["Failure"]


def noted(folder: Path) -> list[str]:
    """What handlers have noted, in the order of time."""
    return (folder / "notes").read_text().split()


def note(folder: Path, what: object) -> None:
    with (folder / "notes").open("a") as notes:
        notes.write(f"{what}\n")


def at_second(end):
    """A function that sends, but does this at the second message."""

    def handle(message):
        if message.row_version == 2:
            end()
        return Send("Billing")

    return handle


def crash(how):
    faulthandler.disable()  # pytest's would tell of it
    how()


def close_and_stay():
    os.closerange(3, 256)
    time.sleep(60)


ENDS = {
    "exit": lambda: os._exit(3),
    "segmentation fault": lambda: crash(lambda: ctypes.string_at(0)),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": lambda: crash(os.abort),
    "closed channel": lambda: os.closerange(3, 256),
    "closed channel and no end": close_and_stay,
}


@pytest.mark.parametrize("end", ENDS)
def test_the_message_that_ends_its_process_fails_and_the_others_are_handled(end):
    assert outcomes(at_second(ENDS[end]), batch(1, 2, 3), batch(4)) == [SENT, "WorkerDied", SENT, SENT]


@pytest.mark.parametrize(
    "end, said",
    [
        ("exit", "The handler's process ended itself with status 3."),
        ("segmentation fault", "The handler's process was killed by SIGSEGV."),
        ("kill", "The handler's process was killed by SIGKILL, perhaps because the memory was used up."),
        ("closed channel and no end", "The handler's process closed its channel."),
    ],
)
def test_the_failure_says_how_the_process_ended(end, said):
    told = failure(lambda _: ENDS[end]())
    assert (told["ExceptionType"], told["Message"], told["Unrecoverable"]) == (
        "sqlqueue_spark.errors.WorkerDied",
        said,
        False,
    )


def test_the_message_at_which_a_process_ends_is_tried_once_more_alone(tmp_path):
    """However many immediate retries there are.

    Here the first process ends by what an earlier message left.
    """

    def handle(message):
        note(tmp_path, f"{os.getpid()}:{message.row_version}")
        if message.row_version == 3 and not (tmp_path / "ended").exists():
            (tmp_path / "ended").touch()
            os._exit(1)
        time.sleep(0.06)  # so that each outcome is given away at once
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3, 4)) == [SENT] * 4
    pids, numbers = zip(*(each.split(":") for each in noted(tmp_path)), strict=True)
    assert numbers == ("1", "2", "3", "3", "4")
    assert len(set(pids[:3])) == len(set(pids[3:])) == 1
    assert pids[0] != pids[3]


def test_a_message_that_always_ends_its_process_is_called_twice(tmp_path):
    def handle(message):
        note(tmp_path, message.row_version)
        os._exit(1)

    assert outcomes(handle, batch(1), retries=5) == ["WorkerDied"]
    assert noted(tmp_path) == ["1", "1"]


def test_it_is_called_once_where_that_was_called_unrecoverable(tmp_path):
    def handle(message):
        note(tmp_path, message.row_version)
        os._exit(1)

    told = failure(handle, unrecoverable=(WorkerDied,))
    assert (told["Unrecoverable"], noted(tmp_path)) == (True, ["1"])


def test_every_message_may_end_its_process():
    assert outcomes(lambda _: os._exit(0), batch(*range(1, 6))) == ["WorkerDied"] * 5


def hang():
    """Within C, where no alarm is heard; that is where the time passes."""
    any(itertools.chain(map(passes, [60]), itertools.repeat(0)))


@pytest.mark.usefixtures("standing_time")
@pytest.mark.parametrize("retries, calls", [(0, 1), (5, 2)])
def test_the_message_that_hangs_fails_and_the_others_are_handled(tmp_path, retries, calls):
    def handle(message):
        if message.row_version == 2:
            note(tmp_path, message.row_version)
            hang()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3), timeout=0.1, retries=retries) == [SENT, "HandlerTimeout", SENT]
    assert noted(tmp_path) == ["2"] * calls


@pytest.mark.usefixtures("standing_time")
def test_a_handler_that_swallows_every_alarm_is_killed():
    def handle(message):
        while message.row_version == 2:
            with contextlib.suppress(BaseException):
                passes(60)
                time.sleep(600)
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3), timeout=0.1) == [SENT, "HandlerTimeout", SENT]


@pytest.mark.usefixtures("standing_time")
def test_a_process_that_waited_for_its_reader_is_not_taken_for_one_that_hangs(monkeypatch):
    """The reader may wait for a sink whose database restarts. Here the process then goes on so slowly that
    the grace of one that hangs is over.
    """
    handling = task(lambda _: Send("Billing", body=b"x" * 3_000_000))
    given = iter(handling(iter([batch(*range(1, 9))])))
    found = next(given).num_rows
    child = handling._child
    assert child is not None
    assert select.select([child._channel], [], [], 60)[0]  # it gives away more than the channel holds
    passes(600)
    child._grace = 0.0  # a test does not wait so long
    os.kill(child._pid, signal.SIGSTOP)
    looks, look = itertools.count(1), child._reap

    def looked(seconds):
        if next(looks) == 3:
            os.kill(child._pid, signal.SIGCONT)
        return look(seconds)

    monkeypatch.setattr(child, "_reap", looked)
    rest = list(given)
    assert next(looks) > 3
    assert found + sum(each.num_rows for each in rest) == 8
    assert [each["Failure"].null_count for each in rest] == [each.num_rows for each in rest]


@pytest.mark.usefixtures("standing_time")
def test_a_handler_that_hears_the_alarm_keeps_its_process(tmp_path):
    def handle(message):
        note(tmp_path, os.getpid())
        if message.row_version == 2:
            passes(0.15)
            time.sleep(600)
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3), timeout=0.1) == [SENT, "HandlerTimeout", SENT]
    assert len(set(noted(tmp_path))) == 1


def test_what_a_module_keeps_lives_on_from_task_to_task(tmp_path):
    """Two tasks of one worker, each with its copy of the function, as Spark has it."""
    kept: list[int] = []

    def handle(message):
        kept.append(message.row_version)
        return Send("Billing", body=[os.getpid(), *kept])

    found = [
        row["Outgoing"][0]["Body"]
        for numbers in ((1,), (2,))
        for each in task(handle)(iter([batch(*numbers)]))
        for row in each.to_pylist()
    ]
    (pid, *first), (again, *second) = map(json.loads, found)
    assert (first, second, again, kept) == ([1], [1, 2], pid, [])
    assert pid != os.getpid()


def test_a_worker_keeps_few_children():
    for number in range(6):
        assert outcomes(lambda _, number=number: Send(str(number)), batch(1)) == [SENT]
    assert len(child_handler._idle) == 4


def test_an_idle_child_that_was_killed_is_replaced():
    def handle(_):
        return Send("Billing")

    assert outcomes(handle, batch(1)) == [SENT]
    (child,) = child_handler._idle.values()
    os.kill(child._pid, signal.SIGKILL)
    assert outcomes(handle, batch(1, 2)) == [SENT, SENT]


def test_a_task_that_is_given_up_ends_its_child():
    """No task would read what it still has to say."""
    given = task(lambda _: time.sleep(0.06))(iter([batch(1, 2, 3)]))
    next(given)
    given.close()  # type: ignore[attr-defined] # a generator
    assert not child_handler._idle


def test_large_messages_come_and_go(tmp_path):
    def handle(message):
        return Send("Billing", body=message.body)

    bodies = [os.urandom(size) for size in (0, 10_000_000, 5, 10_000_000, 1)]
    rows = [*batch(*range(1, 6)).to_pylist()]
    given = type(batch(1)).from_pylist(
        [{**row, "Body": body} for row, body in zip(rows, bodies, strict=True)]
    )
    found = [row["Outgoing"][0]["Body"] for each in task(handle)(iter([given])) for row in each.to_pylist()]
    assert found == bodies


def test_a_process_that_a_handler_leaves_does_not_hide_its_end():
    """It keeps the child's end of the channel open."""

    def handle(message):
        if message.row_version == 2:
            if not os.fork():
                time.sleep(3)
                os._exit(0)
            os._exit(1)
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3)) == [SENT, "WorkerDied", SENT]


def test_a_handler_that_comes_back_twice_answers_once():
    def handle(message):
        os.fork()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2)) == [SENT, SENT]


def test_a_thread_that_ends_the_process_later_fails_no_message():
    def handle(message):
        if message.row_version == 1:
            threading.Timer(0.1, os._exit, [1]).start()
        time.sleep(0.06)
        return Send("Billing")

    assert outcomes(handle, batch(*range(1, 6))) == [SENT] * 5


# -- loading --------------------------------------------------------------------------------------


class Unloadable:
    """Loading it does what the test wants."""

    def __init__(self, load, *arguments):
        self.loading = (load, arguments)

    def __call__(self, _):
        return None

    def __reduce__(self):
        return self.loading


def test_a_handler_that_cannot_be_loaded_ends_the_task():
    with pytest.raises(ConfigurationError) as caught:
        outcomes(Unloadable(__import__, "no_such_module"), batch(1))
    assert str(caught.value) == (
        "The handler cannot be loaded in Spark's workers: ModuleNotFoundError: No module named "
        "'no_such_module'; install what it needs there, or give it to spark-submit as --py-files."
    )


def test_a_handler_that_ends_its_process_when_it_is_loaded_ends_the_task():
    with pytest.raises(ConfigurationError) as caught:
        outcomes(Unloadable(os._exit, 7), batch(1))
    assert str(caught.value) == (
        "The handler's process ended itself with status 7. That was so 3 times before it had begun with a "
        "message; see what its module does when it is loaded, and how much memory there is."
    )


def test_where_no_process_can_be_made_the_task_ends_and_no_message_is_handled(monkeypatch):
    """Spark starts the task again. In the worker itself a handler could end what is not its own."""
    called: list[object] = []

    def refuse():
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError, match=r"^too many processes$"):
        outcomes(called.append, batch(1))
    assert called == []


# -- apart from its parent ------------------------------------------------------------------------


def test_what_it_prints_goes_to_stderr(capfd):
    def handle(_):
        print("by Python")  # noqa: T201 -- what handlers do
        os.write(1, b"by C\n")

    outcomes(handle, batch(1))
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "by Python\nby C\n")


def test_it_has_none_of_its_parent_s_connections():
    mine, theirs = socket.socketpair()
    number = theirs.fileno()

    def handle(_):
        os.write(number, b"by the child")

    with mine, theirs:
        assert outcomes(handle, batch(1)) == [""]
        mine.setblocking(False)
        with pytest.raises(BlockingIOError):
            mine.recv(100)


def test_it_ends_with_its_parent(tmp_path):
    """Even while its handler hangs."""
    program = f"""
import os, pathlib, sys
from tests.unit.test_handling import batch
from tests.unit.test_handling_child import hang, task

def handle(message):
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    hang()

list(task(handle)(iter([batch(1)])))
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    wait_until((tmp_path / "begun").exists)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(child))


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true):
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.usefixtures("standing_time")
def test_a_message_whose_headers_take_long_to_read_fails_alone(monkeypatch):
    """The time of its call has not begun then, and any sender may write them."""
    long, worker, read = '{"takes":"long"}', os.getpid(), parse_headers

    def slowly(text):
        if text == long and os.getpid() != worker:
            hang()
        return read(text)

    monkeypatch.setattr(received_message, "parse_headers", slowly)
    given = batch(1, 2, 3)
    told = given.set_column(given.schema.get_field_index("Headers"), "Headers", pa.array(["{}", long, "{}"]))
    assert outcomes(lambda _: None, told, timeout=0.1) == ["", "HandlerTimeout", ""]


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("change", [{"NServiceBus.MessageId": 5}, None], ids=["a number", "nothing"])
def test_a_function_that_changes_its_message_fails_that_message_alone(tmp_path, retries, change):
    """With the error that it raised."""

    def handle(message):
        note(tmp_path, message.row_version)
        if message.row_version == 3:
            message.headers = change
            raise ValueError("it cannot be done")

    assert outcomes(handle, batch(*range(1, 7)), retries=retries) == ["", "", "ValueError", "", "", ""]
    assert len(noted(tmp_path)) == 6 + retries
