"""A server that is kept: its data in a folder, under one url whenever it runs, until it is removed.

In the folder lie the data (``database``), what :class:`EmbeddedServer` notes beside them, the file ``url``,
which its owner alone reads, and a file that says whose folder this is. Nothing is started in a folder of
other things, and nothing else is removed.
"""

import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from sqlqueue_spark.embedded.data_folder import OF_ROOT, check_way, default_folder, make_way, whole_path
from sqlqueue_spark.embedded.programs import binary, one_at_a_time
from sqlqueue_spark.embedded.server import EmbeddedServer
from sqlqueue_spark.embedded.server_processes import Client, connected_to, started_at
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import OwnFile
from sqlqueue_spark.plain_text import shell_word

_DATABASE = "database"
_URL, _LOCK, _STARTED, _MARK = "url", "lock", "started", "sqlqueue-server.txt"
_BESIDE = tuple(f"{_DATABASE}.{each}" for each in ("password", "port", "lock", "new"))
#: All that may be ours in the folder; the mark goes last, so that a removal that was cut off can go on.
_OURS = (_DATABASE, *_BESIDE, _URL, _LOCK, _STARTED, _MARK)
_WORDS = """This folder belongs to the PostgreSQL server of `sqlqueue server`: {start}
The file url holds its password. The data stay until: {remove}
"""


class ServerState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    #: There is no server in the folder.
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Status:
    """What there is in the folder; the rest is told of a server that runs.

    :param started_by: a user and the working folder; None if an earlier version started it.
    """

    state: ServerState
    port: int | None = None
    started_by: str | None = None
    started_at: datetime | None = None
    connected: tuple[Client, ...] = ()


class KeptServer:
    """The server of a folder, by default :func:`default_folder`; it need not be there yet.

    :raises ConfigurationError: in each method, what cannot be done.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else whole_path(folder)
        self.url_file = self.folder / _URL
        self._is_default = folder is None
        self._server = EmbeddedServer(self.folder / _DATABASE, keep_running=True, keep_url=True)

    def start(self) -> bool:
        """Let it run, and write its url into :attr:`url_file`; returns whether it had to be started."""
        binary("postgres")  # what is not installed is said before anything is made
        self._take_folder()
        with self._alone():
            began = self._server.start()
            OwnFile(self.url_file).write(self._server.url())
            if began:
                OwnFile(self.folder / _STARTED).write(_here())
        return began

    def stop(self) -> bool:
        """Stop it; its data stay. Returns whether it ran."""
        with self._alone():
            return self._server.stop()

    def status(self) -> Status:
        if not self._is_there():
            return Status(state=ServerState.NONE)
        if (port := self._server.running_port()) is None:
            return Status(state=ServerState.STOPPED)
        return Status(
            state=ServerState.RUNNING,
            port=port,
            started_by=OwnFile(self.folder / _STARTED).read(),
            started_at=started_at(self._server.data_directory),
            connected=connected_to(port),
        )

    def url(self) -> str:
        """Its url, with the password. The server must run, so that a program finds it there."""
        with self._alone():
            if self._server.running_port() is None:
                raise ConfigurationError(
                    f"The server in {self.folder} does not run; start it with: {self.command('start')}"
                )
            self._server.start()
        return self._server.url()

    def size(self) -> int:
        self._check_there()
        walk = os.fwalk(self.folder / _DATABASE)
        return sum(
            os.stat(each, dir_fd=at, follow_symlinks=False).st_size
            for _, _, files, at in walk
            for each in files
        )

    def remove(self) -> list[str]:
        """Stop it and delete its data; returns the names of what else is in the folder, which stays."""
        with self._alone(), _said(f"The server in {self.folder} cannot be removed"):
            self._server.stop()
            for each in _OURS:
                path = self.folder / each
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            if not (left := sorted(each.name for each in self.folder.iterdir())):
                self.folder.rmdir()
                if self.folder.parent.parent == OF_ROOT:
                    with suppress(OSError):  # it holds other things
                        self.folder.parent.rmdir()
        return left

    def command(self, name: str) -> str:
        where = "" if self._is_default else f" --folder {shell_word(str(self.folder))}"
        return f"sqlqueue server {name}{where}"

    def _is_there(self) -> bool:
        return (self.folder / _MARK).is_file()

    def _check_there(self) -> None:
        if not self._is_there():
            raise ConfigurationError(
                f"There is no server in {self.folder}; start one there with: {self.command('start')}, or "
                "name its folder with --folder."
            )

    def _take_folder(self) -> None:
        """Make the folder, or take an empty one; one of other things is refused."""
        with _said(f"No server can be started in {self.folder}"):
            check_way(self.folder)
            if self._is_there():
                return
            others = sorted(each.name for each in self.folder.iterdir()) if self.folder.exists() else []
            if others:
                raise ConfigurationError(
                    f"The folder {self.folder} holds other things ({', '.join(others[:3])}) and no server; "
                    "name an empty one with --folder."
                )
            make_way(self.folder)
            text = _WORDS.format(start=self.command("start"), remove=self.command("remove"))
            (self.folder / _MARK).write_text(text, encoding="utf-8")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one command at a time work on the server, which must be there."""
        self._check_there()
        with ExitStack() as stack:
            with _said(f"The folder {self.folder} cannot be used"):
                check_way(self.folder)
                stack.enter_context(one_at_a_time(self.folder / _LOCK))
            self._check_there()  # another command may have removed it meanwhile
            yield


def _here() -> str:
    """Who we are, and the folder that we stand in, unless that is gone."""
    user = pwd.getpwuid(os.getuid()).pw_name
    with suppress(OSError):
        return f"{user} in {Path.cwd()}"
    return user


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Turn what the operating system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{what} ({error.strerror}: {error.filename}); name another folder with --folder, or give "
            "yourself the right to this one."
        ) from error
