"""A reader who does what a page says, from its top to its end, in an empty folder."""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg

from tests.support.drivers.death import kill_session
from tests.support.pages import ROOT, TYPED, Block, Page
from tests.support.quick_java import quick
from tests.support.spark_home import python_path
from tests.support.typed_command import PROGRAMS, SOCKET, WANTED, ask
from tests.support.waiting import eventually

_COMMAND = Path(__file__).with_name("typed_command.py")
_START = timedelta(seconds=120)
#: After each block the shell says how it ended, and its variables as a program sees them. A command that
#: fails ends the shell.
_AFTER = "\nprintf '%s\\0' $? >&{0}; env -0 >&{0}; printf '\\0' >&{0}; set -eo pipefail\n"


class PageFailed(AssertionError):
    """A block does not work as printed."""


class Desk:
    """Where the reader works: a folder, a terminal, and one Python for all pages, begun when needed."""

    def __init__(self) -> None:
        # Not below pytest's own folder, which pytest closes to the server's user when we are root.
        self.private = Path(tempfile.mkdtemp(prefix="sqlqueue-pages-"))
        self.private.chmod(0o711)  # as root a page's second server stands in it
        self.folder = self.private / "reader"
        self.programs = self.private / "programs"
        self.socket, self.log, self._shown = (self.private / each for each in ("python", "log", "terminal"))
        for each in (self.folder, self.programs):
            each.mkdir()
        for name in ("sqlqueue", "python", "pyspark"):
            (self.programs / name).symlink_to(_COMMAND)
        self.terminal = os.open(self._shown, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._python: subprocess.Popen[bytes] | None = None

    def size(self) -> int:
        return self._shown.stat().st_size

    def shown(self, start: int) -> str:
        return self._shown.read_bytes()[start:].decode(errors="replace")

    def python_is_wanted(self) -> bool:
        """Whether a command of the shell waits for it."""
        return self._python is None and Path(f"{self.socket}{WANTED}").exists()

    def start_python(self) -> None:
        if self._python is None:
            ours = {"PYTHONPATH": python_path(ROOT), "XDG_CACHE_HOME": str(Path(sys.prefix) / "cache")}
            with self.log.open("wb") as log:
                self._python = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.drivers.readers_python", str(self.socket)],
                    cwd=self.folder, env=os.environ | quick(temporary=self.private) | ours,
                    stdin=subprocess.DEVNULL, stdout=self.terminal, stderr=log, start_new_session=True,
                )  # fmt: skip
        python = self._python
        eventually(lambda: self.socket.exists() or python.poll() is not None, within=_START)
        assert python.poll() is None, self.log.read_text()

    def ask(self, do: str, environment: Mapping[str, str] = os.environ, **more: str) -> int:
        self.start_python()
        return ask(str(self.socket), environment, [self.terminal] * 2, do=do, **more)

    def interrupt(self) -> None:
        """It has no effect while the Python does nothing."""
        if self._python is not None:
            self._python.send_signal(signal.SIGINT)

    def clear(self) -> None:
        """For the next page."""
        if self._python is not None:
            self.ask("new_page")
        for each in self.folder.iterdir():
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()

    def end_python(self) -> None:
        """Leave it, as with Ctrl-D. The next block of Python begins another."""
        if self._python is not None:
            kill_session(self._python.pid)
            self._python.wait()
            self._python = None
            self.socket.unlink(missing_ok=True)
            Path(f"{self.socket}{WANTED}").unlink(missing_ok=True)

    def close(self) -> None:
        self.end_python()
        os.close(self.terminal)
        shutil.rmtree(self.private)


class Reader:
    """Reads one page.

    :param variables: what the shell has beside what this process has.
    """

    def __init__(self, desk: Desk, variables: Mapping[str, str]) -> None:
        self._desk = desk
        programs = Path(sys.executable).parent
        own = {
            "PATH": f"{desk.programs}:{programs}:{os.environ['PATH']}",
            SOCKET: str(desk.socket), PROGRAMS: str(programs),
            "COLUMNS": "110",
        }  # fmt: skip
        others = {name: each for name, each in os.environ.items() if not name.startswith("SQLQUEUE_")}
        self.environment = {**others, **own, **variables}
        script, self._script = os.pipe()
        self._answers, answer = os.pipe()
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", f"/dev/fd/{script}"],
            cwd=desk.folder, env=self.environment, pass_fds=[script, answer],
            stdin=subprocess.DEVNULL, stdout=desk.terminal, stderr=desk.terminal, start_new_session=True,
        )  # fmt: skip
        os.close(script)
        os.close(answer)
        self._after = _AFTER.format(answer)
        self._type(":")

    def close(self) -> None:
        kill_session(self._shell.pid)
        self._shell.wait()
        os.close(self._script)
        os.close(self._answers)

    def read(self, page: Page) -> None:
        """Do what the page says.

        :raises PageFailed: a block does not work as printed. The error has the text of the terminal.
        """
        printed = ""
        ways = {"shell": self._in_shell, "python": self._in_python, "sql": self._in_database}
        for block in page.steps():
            if "Ctrl-D" in block.before:
                self._desk.end_python()
            if block.mark == "skip":
                continue
            if block.mark == "file":
                path = self._desk.folder / block.text
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.code)
                continue
            if block.language in TYPED:
                start = self._desk.size()
                went_well = ways[block.language](block)
                printed = self._desk.shown(start)
                as_said = went_well is not (block.mark == "fails")
                wrong = "" if as_said else "It did not fail." if went_well else "It failed."
            else:
                wrong = "" if shows(block, printed) else "It is not what was printed."
            if wrong:
                raise PageFailed(
                    f"{page.path}:{block.line}: {wrong}\n{block.code}\n--- the terminal:\n{printed}"
                )

    def _in_shell(self, block: Block) -> bool:
        if block.mark == "Ctrl-C":
            with self._pressing(block.text):
                return self._type(f"set +e; trap : INT\n{block.code}") in (0, 130)
        code = f"set +e\n{block.code}" if block.mark == "fails" else block.code
        if block.mark == "answers":  # a terminal hands each question one line
            answers = shlex.quote("\n".join([block.text] * 9))
            code = f"script -qec {shlex.quote(f'bash -ec {shlex.quote(code)}')} /dev/null <<< {answers}"
        return self._type(code) == 0

    def _in_python(self, block: Block) -> bool:
        if block.mark == "Ctrl-C":
            with self._pressing(block.text):
                self._desk.ask("typed", self.environment, code=block.code)
            return True
        return self._desk.ask("typed", self.environment, code=block.code) == 0

    def _in_database(self, block: Block) -> bool:
        with psycopg.connect(self.environment["SQLQUEUE_URL"], autocommit=True) as connection:
            cursor = connection.execute(block.code)
            rows = cursor.fetchall() if cursor.description else []
        os.write(self._desk.terminal, "".join(" | ".join(map(str, row)) + "\n" for row in rows).encode())
        return True

    def _type(self, code: str) -> int:
        """Type a block into the shell; how it ends. The shell's variables are then those of the reader."""
        os.write(self._script, (code + self._after).encode())
        said = b""
        while not said.endswith(b"\0\0"):
            if self._desk.python_is_wanted():
                self._desk.start_python()
            ready, _, _ = select.select([self._answers], [], [], 0.1)
            part = os.read(self._answers, 1 << 16) if ready else b""
            if not part and (ready or self._shell.poll() is not None):
                return self._shell.wait() or 1  # a command has failed
            said += part
        status, *variables = said.decode().rstrip("\0").split("\0")
        self.environment = dict(each.split("=", 1) for each in variables)
        return int(status)

    @contextmanager
    def _pressing(self, text: str) -> Iterator[None]:
        """Within the block Ctrl-C is pressed each time this text is shown."""
        ended, start = threading.Event(), self._desk.size()

        def watch() -> None:
            times = 0
            while not ended.wait(0.05):
                if self._desk.shown(start).count(text) > times:
                    times += 1
                    os.killpg(self._shell.pid, signal.SIGINT)
                    self._desk.interrupt()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


def shows(block: Block, printed: str) -> bool:
    """Whether a block shows what was printed. ``…`` is anything in a line, and alone in a line any lines."""
    lines = []
    for line in block.code.splitlines():
        shown = r".*?".join(re.escape(each) for each in line.rstrip().split("…"))
        if block.mark == "numbers":
            shown = re.sub(r"(?:\\ |\d)*\d(?:\\ |\d)*", r"[ \\d]+", shown)
        lines.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"{shown} *\n")
    return re.fullmatch("".join(lines), f"{printed.rstrip()}\n".lstrip("\n")) is not None
