"""Shows how far work in portions has come: a bar while it lasts, and a line that says how much was done where something ends it.

Bars go to stderr, and only to a terminal.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import click
from tqdm import tqdm

from sqlqueue_spark.cli.output import counted
from sqlqueue_spark.plain_text import plain

_SOON = 1.0
_ENDING = "Ends after the portion under way; Ctrl-C again ends at once."


def bar(total: int | None, unit: str, **more: Any) -> tqdm:
    """A progress bar on stderr, if that is a terminal."""
    return tqdm(total=total, unit=unit, unit_scale=True, **{"disable": None, "leave": False, **more})


def looking(lines: bool = False) -> tqdm:
    """A bar for a look at rows of which nobody knows how many there are.

    :param lines: whether lines come meanwhile: on the same terminal a bar would be in their way.
    """
    return bar(None, " rows", disable=(lines and sys.stdout.isatty()) or None)


def counting(what: str, lines: bool = False) -> contextlib.AbstractContextManager[None]:
    """A clock while the block counts rows, which is one statement and may take long.

    :param what: is counted.
    :param lines: as with :func:`looking`.
    """
    return clock(f"counting {plain(what)}", lines)


@contextlib.contextmanager
def clock(doing: str, lines: bool = False) -> Iterator[None]:
    """A clock while the block lasts, from its second second on.

    :param lines: as with :func:`looking`.
    """
    done = threading.Event()

    def tick() -> None:
        if done.wait(_SOON):
            return
        off = (lines and sys.stdout.isatty()) or None
        with bar(None, "", desc=f"{doing}: ", bar_format="{desc}{elapsed}", disable=off) as shown:
            while not done.wait(_SOON):
                shown.refresh()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Portions:
    """Is called after each portion with how many more things are done."""

    def __init__(self, shown: tqdm, interrupted: _Interrupt) -> None:
        self.count = 0
        self._shown = shown
        self._interrupted = interrupted

    def __call__(self, things: int) -> None:
        """:raises KeyboardInterrupt: somebody has pressed Ctrl-C in the meantime."""
        self.count += things
        self._shown.update(things)
        if self._interrupted.asked:
            raise KeyboardInterrupt

    def expect(self, total: int | None) -> None:
        """How many things there are in all is known now."""
        self._shown.reset(total)


@contextlib.contextmanager
def portions(
    total: int | None,
    noun: str,
    done: str,
    *,
    go_on: Callable[[], str] = lambda: "",
    telling: type[BaseException] | tuple[()] = (),
) -> Iterator[Portions]:
    """A bar for work in portions; the block tells it after each portion how many more things are done.

    Ctrl-C waits for the portion under way, so that what is said is what is done; a second one does not.

    :param noun: what is counted, such as ``message``.
    :param done: what was done to them, such as ``deleted``: it stands before their number where the work ends early.
    :param go_on: what else is said then.
    :param telling: errors that tell it themselves.
    """
    with bar(total, f" {noun}s") as shown, _deferred() as interrupted:
        more = Portions(shown, interrupted)
        try:
            yield more
        except telling:
            raise
        except BaseException as error:
            shown.close()
            if not more.count and isinstance(error, Exception):  # the error alone says enough
                raise
            unknown = f"; the portion under way may be {done} too" if interrupted.hurried else ""
            click.echo(f"{done} before: {counted(more.count, noun)}{unknown}{go_on()}", err=True)
            raise


class _Interrupt:
    """What Ctrl-C has done so far: the first one asks for an end, the second one makes it."""

    def __init__(self) -> None:
        self.asked = False
        self.hurried = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            self.hurried = True
            raise KeyboardInterrupt
        self.asked = True
        click.echo(f"\n{_ENDING}", err=True)


@contextlib.contextmanager
def _deferred() -> Iterator[_Interrupt]:
    """In this block the first Ctrl-C only asks for an end. Only the main thread hears it, and not where somebody ignores it."""
    interrupt = _Interrupt()
    handled = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not handled:
        yield interrupt
        return
    signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
