"""Shows how far work in portions has come: a bar while it lasts, and a line that says how much was done where something ends it.

Bars go to stderr, and only to a terminal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import click
from tqdm import tqdm

from sqlqueue_spark.cli.showing import counted

_ENDING = "Ends after the portion under way; Ctrl-C again ends at once."


def bar(total: int | None, unit: str, **more: Any) -> tqdm:
    """A progress bar on stderr, if that is a terminal."""
    return tqdm(total=total, unit=unit, unit_scale=True, **{"disable": None, "leave": False, **more})


class Portions:
    """Is called after each portion with how many more things are done."""

    def __init__(self, shown: tqdm, interrupted: threading.Event) -> None:
        self.count = 0
        self._shown = shown
        self._interrupted = interrupted

    def __call__(self, things: int) -> None:
        """:raises KeyboardInterrupt: somebody has pressed Ctrl-C in the meantime."""
        self.count += things
        self._shown.update(things)
        if self._interrupted.is_set():
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
            click.echo(f"{done} before: {counted(more.count, noun)}{go_on()}", err=True)
            raise


@contextlib.contextmanager
def _deferred() -> Iterator[threading.Event]:
    """In this block the first Ctrl-C only sets the event; the second one interrupts."""
    interrupted = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        click.echo(f"\n{_ENDING}", err=True)

    handled = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not handled:
        yield interrupted
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
