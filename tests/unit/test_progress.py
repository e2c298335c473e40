"""How far work came that something ended: the line that says so, and what Ctrl-C waits for."""

import io
import os
import signal
import threading

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import progress
from sqlqueue_spark.cli.exit_codes import CommandGroup
from sqlqueue_spark.cli.progress import counting, interruptible
from sqlqueue_spark.errors import ConnectionLost
from tests.support.waiting import eventually


@pytest.fixture
def ctrl_c():
    """A shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def command(work, **more):
    """What a command prints on stderr, and its exit code, that does this work."""

    @click.group(cls=CommandGroup)
    def main():
        pass

    @main.command()
    def go():
        with interruptible(None, "message", "sent", **more) as done:
            work(done)
        click.echo("all done")

    result = CliRunner().invoke(main, ["go"])
    return result.exit_code, result.stdout, result.stderr


def press():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(0)  # so that Python sees the signal


def test_ctrl_c_waits_for_the_portion_under_way(ctrl_c):
    after = []

    def work(done):
        done(2_000)
        press()
        after.append("still at work")
        done(500)
        after.append("not reached")

    ending = "\nEnds after the portion under way; Ctrl-C again ends at once.\n"
    assert command(work, go_on=lambda: "; go on") == (
        130,
        "",
        f"{ending}sent before: 2,500 messages; go on\n\n",
    )
    assert after == ["still at work"]


def test_a_second_ctrl_c_ends_at_once(ctrl_c):
    def work(done):
        done(1)
        press()
        press()
        done(1)

    code, _, said = command(work)
    assert (code, said.splitlines()[-2:]) == (
        130,
        ["sent before: 1 message; the portion under way may be sent too", ""],
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_during_the_last_portion_is_too_late(ctrl_c):
    def work(done):
        done(1)
        press()

    code, said, _ = command(work)
    assert (code, said) == (0, "all done\n")


@pytest.mark.parametrize(
    "count,more,said",
    [
        (3, {}, "sent before: 3 messages\nError: gone\n"),
        (0, {}, "Error: gone\n"),
        (3, {"telling": ConnectionLost}, "Error: gone\n"),
    ],
)
def test_an_error_says_how_much_was_done(count, more, said):
    def work(done):
        done(count)
        raise ConnectionLost("gone")

    assert command(work, **more) == (1, "", said)


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal,shown", [(True, True), (False, False)])
def test_a_count_that_takes_long_shows_a_clock(monkeypatch, terminal, shown):
    """On a terminal alone. What it counts is shown as it is called, whatever stands in its name."""
    monkeypatch.setattr(progress, "_SOON", 0.01)
    errors = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", errors)
    with counting("{0}%s\x1b[2J"):
        eventually(lambda: errors.getvalue().count("counting ") >= 2 or not shown)
    assert ("counting {0}%s\\x1b[2J: 00:00" in errors.getvalue()) is shown
    assert errors.getvalue().rstrip(" ").endswith("\r" if shown else "")


def test_a_short_count_shows_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", errors := _Terminal())
    with counting("orders"):
        pass
    assert errors.getvalue() == ""


def test_a_clock_is_not_amid_the_lines_of_json(monkeypatch):
    monkeypatch.setattr(progress, "_SOON", 0.001)
    monkeypatch.setattr("sys.stderr", errors := _Terminal())
    monkeypatch.setattr("sys.stdout", _Terminal())
    with counting("orders", lines=True):
        threading.Event().wait(0.05)
    assert errors.getvalue() == ""


def test_a_thread_beside_the_main_one_leaves_ctrl_c_alone(ctrl_c):
    seen = []

    def work():
        with interruptible(None, "message", "sent"):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
