"""Runs a private MariaDB server of Debian's package in a folder of its own;
nothing of it is left afterwards.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

_FOLDERS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))

#: Only root gets in, and only with the password.
_BEGIN = (
    (
        "DELETE FROM mysql.global_priv WHERE NOT (User = 'root' AND Host IN ('localhost', '127.0.0.1')) AND "
        "User <> 'mariadb.sys'"
    ),
    "FLUSH PRIVILEGES",
    "ALTER USER IF EXISTS 'root'@'localhost' IDENTIFIED BY '{password}'",
    "ALTER USER IF EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '{password}'",
)


def program(name: str) -> str | None:
    """Where a program of the server is; Debian keeps some of them in folders that PATH may not name."""
    return shutil.which(name, path=_FOLDERS)


@contextmanager
def running_server() -> Iterator[dict[str, Any]]:
    """Start a server; yields what PyMySQL needs to connect.

    When we are root, it runs as the user ``nobody``.
    """
    server, install = program("mariadbd"), program("mariadb-install-db")
    assert server is not None
    assert install is not None
    # The folder is not below pytest's own, because pytest closes that to the server's user when we are root.
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-mariadb-"))
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data = [f"--datadir={folder / 'data'}", *([f"--user={user}"] if user else [])]
    where = {"host": "127.0.0.1", "port": _free_port(), "user": "root", "password": secrets.token_hex(16)}
    try:
        subprocess.run(
            [install, "--no-defaults", *data, "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True,
            capture_output=True,
        )
        begin = folder / "begin.sql"  # the server runs it before it lets anybody in
        begin.touch(0o600)
        begin.write_text("".join(f"{each.format(**where)};\n" for each in _BEGIN))
        if user:
            shutil.chown(begin, user)
        with (folder / "said.txt").open("wb") as said:
            process = subprocess.Popen(
                [
                    server,
                    "--no-defaults",
                    *data,
                    f"--init-file={begin}",
                    f"--socket={folder / 'socket'}",
                    f"--pid-file={folder / 'pid'}",
                    "--bind-address=127.0.0.1",
                    f"--port={where['port']}",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--default-time-zone=+05:30",
                ],  # so that UTC does not come out right by chance
                stdout=said,
                stderr=said,
            )
            try:
                eventually(lambda: _answers(where, process, folder / "said.txt"))
                yield where
            finally:
                process.terminate()
                process.wait(60)
    finally:
        shutil.rmtree(folder)


def _answers(where: dict[str, Any], process: subprocess.Popen[bytes], said: Path) -> bool:
    import pymysql

    assert process.poll() is None, said.read_text(errors="replace")[-3000:]
    try:
        pymysql.connect(**where).close()
    except pymysql.err.OperationalError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
