"""PgBouncer, a real connection pooler in front of PostgreSQL, from Debian's package."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.mariadb import program
from tests.support.waiting import eventually

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
logfile = {folder}/said.txt
pool_mode = {mode}
{more}
"""


def is_there() -> bool:
    return program("pgbouncer") is not None


@contextmanager
def pooled(url: str, mode: str, **settings: str) -> Iterator[str]:
    """Start a pooler in front of a server; yields the url that leads through it.

    When we are root, it runs as the user ``nobody``.

    :param mode: ``session``, ``transaction`` or ``statement``.
    """
    pooler = program("pgbouncer")
    assert pooler is not None
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-pgbouncer-"))
    more = {**settings, **({"user": "nobody"} if os.geteuid() == 0 else {})}
    port, server = _free_port(), urlsplit(url).port
    login = urlsplit(url)
    (folder / "users.txt").touch(0o600)
    (folder / "users.txt").write_text(f'"{login.username}" "{login.password}"\n')
    (folder / "settings.ini").write_text(
        _SETTINGS.format(server=server, port=port, folder=folder, mode=mode,
                         more="\n".join(f"{name} = {value}" for name, value in more.items()))
    )  # fmt: skip
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "nobody")
    process = subprocess.Popen([pooler, "-q", folder / "settings.ini"])
    through = url.replace(f":{server}/", f":{port}/")
    try:
        eventually(lambda: _answers(through, process))
        yield through
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder)


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "pgbouncer has ended"
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
