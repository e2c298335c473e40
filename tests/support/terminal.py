"""The command ``sqlqueue`` on a terminal, as a person has it: what it shows, what is typed, and Ctrl-C."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

COMMAND = str(Path(sys.executable).with_name("sqlqueue"))
CTRL_C = "\x03"
_PATIENCE = 30.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Terminal:
    """A running command and the terminal that it has for its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self._process = process
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a letter
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str | re.Pattern[str]) -> str:
        """Wait until the terminal has shown this; gives all that it has shown."""
        deadline = time.monotonic() + _PATIENCE
        wanted = re.compile(re.escape(text)) if isinstance(text, str) else text
        while not wanted.search(self.shown):
            assert time.monotonic() < deadline, f"{text!r} was not shown, but {self.shown!r}"
            assert self._read(), f"it ended before it showed {text!r}: {self.shown!r}"
        return self.shown

    def end(self) -> int:
        """Wait for its end; its exit code."""
        while self._read():
            pass
        return self._process.wait(_PATIENCE)

    def _read(self) -> bool:
        """Read what is shown next; False when the command has ended."""
        if select.select([self._master], [], [], 1.0)[0]:
            try:
                read = os.read(self._master, 1 << 16)
            except OSError:  # no process has the terminal open any more
                return False
            self.shown += self._decoder.decode(read)
            return bool(read)
        return True


@contextlib.contextmanager
def terminal(
    *arguments: str,
    program: str = COMMAND,
    environment: Mapping[str, str] = _NOTHING,
    columns: int = 200,
    stdout: int | None = None,
) -> Iterator[Terminal]:
    """Within the block the command runs on a terminal.

    :param program: what runs instead of the command.
    :param stdout: where its output goes instead.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", program, *arguments],
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env={**os.environ, "COLUMNS": "", **environment},
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 -- it only sets a signal
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(_PATIENCE)
        os.close(master)
