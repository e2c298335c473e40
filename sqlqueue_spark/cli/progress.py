"""Shows the progress of work: a bar while it lasts, and how much was done in a line if it ends early."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tqdm import tqdm

from sqlqueue_spark.cli.output import counted, say
from sqlqueue_spark.plain_text import is_terminal, plain

_SOON = 1.0
_ENDING = "Ends after the portion under way; Ctrl-C again ends at once."


def bar(total: int | None, unit: str, *, lines: bool = False, **more: Any) -> tqdm:
    """Return a progress bar on stderr. It is hidden if stderr is no terminal.

    :param lines: whether lines are printed meanwhile. A bar would break them on the same terminal, so it is
        hidden if stdout is one.
    """
    off = (lines and is_terminal(sys.stdout)) or None
    return tqdm(total=total, unit=unit, unit_scale=True, disable=off, leave=False, **more)


@contextlib.contextmanager
def counting(what: str, lines: bool = False) -> Iterator[None]:
    """Show a clock while the block counts rows, after its first second: one statement that may take long."""
    done = threading.Event()

    def tick() -> None:
        if done.wait(_SOON):
            return
        desc = f"counting {plain(what)}: "
        with bar(None, "", lines=lines, desc=desc, bar_format="{desc}{elapsed}") as shown:
            while not done.wait(_SOON):
                shown.refresh()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Progress:
    """Counts things that are done. Called after each step of the work with the number of things in it."""

    def __init__(self, shown: tqdm) -> None:
        self.count = 0
        #: Whether Ctrl-C was pressed again, which ends the work within a step.
        self.hurried = False
        self._asked = False
        self.shown = shown

    def __call__(self, things: int) -> None:
        """:raises KeyboardInterrupt: Ctrl-C was pressed in the meantime."""
        self.count += things
        self.shown.update(things)
        if self._asked:
            raise KeyboardInterrupt

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            self.hurried = True
            raise KeyboardInterrupt
        self._asked = True
        say(err=True)  # behind the ^C of the terminal
        say(_ENDING, err=True)


@contextlib.contextmanager
def interruptible(
    total: int | None,
    noun: str,
    done: str,
    *,
    go_on: Callable[[], str] = lambda: "",
    telling: type[BaseException] | tuple[()] = (),
) -> Iterator[Progress]:
    """Show a bar while the block works in steps; the block calls the :class:`Progress` after each step.

    Ctrl-C ends the work after the present step, so that the number that is printed is exact. A second Ctrl-C
    ends it at once. If the work ends early, a line says how much was done.

    :param noun: what is counted, for example ``message``.
    :param done: what was done, for example ``deleted``; this line begins with it.
    :param go_on: returns the end of this line.
    :param telling: errors that say themselves how much was done; they are raised without this line.
    """
    # No other thread gets signals, and a handler of the caller's own stays.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    with bar(total, f" {noun}s") as shown:
        more = Progress(shown)
        if ours:
            signal.signal(signal.SIGINT, more.interrupt)
        try:
            yield more
        except BaseException as error:
            shown.close()
            if isinstance(error, telling) or (not more.count and isinstance(error, Exception)):
                raise  # it says enough, or nothing was done
            unknown = f"; the portion under way may be {done} too" if more.hurried else ""
            say(f"{done} before: {counted(more.count, noun)}{unknown}{go_on()}", err=True)
            raise
        finally:
            if ours:
                signal.signal(signal.SIGINT, signal.default_int_handler)
