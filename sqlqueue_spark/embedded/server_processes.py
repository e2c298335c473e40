"""The processes of a server and those connected to it, as the machine shows them: no login is needed."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlqueue_spark.embedded.data_folder import DataFolder
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.version import pip_install


@dataclass(frozen=True, kw_only=True)
class Client:
    """A process that is connected. What another user's process does not tell is None."""

    process: int | None = None
    program: str | None = None
    user: str | None = None
    folder: str | None = None


def servers_on(data_directory: Path) -> set[str]:
    """The server processes that work in this directory. An id alone proves nothing: it may be used again."""
    return {str(each.pid) for each in _processes_in(data_directory)}


def started_at(data_directory: Path) -> datetime | None:
    """When the server in this directory started, the first of its processes; None where none runs."""
    began = [each.info["create_time"] for each in _processes_in(data_directory)]
    return datetime.fromtimestamp(min(began), UTC) if began else None


def connected_to(port: int) -> tuple[Client, ...]:
    """The processes that are connected to this port of 127.0.0.1, each once."""
    found = {
        pid
        for pid, each in _connections()
        # Java's address is ::ffff:127.0.0.1.
        if each.status == "ESTABLISHED" and each.raddr[1] == port and each.raddr[0].endswith("127.0.0.1")
    }
    return tuple(_client(pid) for pid in sorted(found, key=lambda pid: pid or 0))


def _connections() -> Iterator[tuple[int | None, Any]]:
    psutil = _psutil()
    try:
        yield from ((each.pid, each) for each in psutil.net_connections("tcp"))
    except psutil.AccessDenied:  # macOS tells root alone of the processes of others
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                yield from ((process.pid, each) for each in process.net_connections("tcp"))


def _client(pid: int | None) -> Client:
    psutil = _psutil()
    if pid is not None:
        with suppress(psutil.Error):
            told = psutil.Process(pid).as_dict(["name", "username", "cwd"])
            return Client(process=pid, program=told["name"], user=told["username"], folder=told["cwd"])
    return Client(process=pid)


def _processes_in(data_directory: Path) -> list[Any]:
    folder = str(data_directory.resolve())
    wanted = ["name", "cwd", "cmdline", "uids", "create_time"]
    found = [each for each in _psutil().process_iter(wanted) if "postgres" in (each.info["name"] or "")]
    return [
        each
        for each in found
        if each.info["cwd"] == folder
        or (each.info["cwd"] is None and _began_in(data_directory, each.info["cmdline"], each.info["uids"]))
    ]


def _began_in(data_directory: Path, command: Sequence[str] | None, users: Any) -> bool:
    """Whether a server was told this directory, where root may not see in which folder it works.

    In a container root often may not. Any user may tell a program of his this directory.
    """
    told = ("-D", str(data_directory)) in itertools.pairwise(command or ())
    return told and users.effective == DataFolder(data_directory).owner()


def _psutil() -> Any:
    try:
        import psutil
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Whether the server runs cannot be seen, because psutil is not installed; run: "
            f"{pip_install('demo')}."
        ) from error
    return psutil
