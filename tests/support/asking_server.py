"""A server that asks each client for a password, as PostgreSQL does, hears it, and refuses the login.

Protocol: https://www.postgresql.org/docs/current/protocol-flow.html
"""

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

_SSL, _GSS = 80877103, 80877104
#: What it may ask for, as the protocol numbers it.
CLEARTEXT_PASSWORD, GSSAPI = 3, 7
_REFUSED = 'SFATAL\0C28P01\0Mpassword authentication failed for user "me"\0\0'


class AskingServer:
    """All that it has heard stands in ``heard``.

    :param refused: the fields with which it refuses, as the protocol has them.
    :param certificates: a folder of :func:`certified`: it encrypts, and asks for a certificate. The names in
        those that it was shown stand in ``shown``.
    """

    def __init__(self, listener: socket.socket, refused: str, ask: int, certificates: Path | None) -> None:
        self._listener = listener
        self._refused = refused.encode()
        self._asked = b"R" + struct.pack("!ii", 8, ask)
        self._certificates = certificates
        self.shown: list[str] = []
        self.port: int = listener.getsockname()[1]
        self.heard = b""

    def url(self, user: str = "me") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/shop?sslmode=disable"

    def serve(self) -> None:
        """Until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        while (request := struct.unpack("!i", self._message(connection)[:4])[0]) in (_SSL, _GSS):
            if request == _SSL and self._certificates is not None:
                connection.sendall(b"S")
                with self._encrypted(connection) as encrypted:
                    self._ask(encrypted)
                return
            connection.sendall(b"N")
        connection.sendall(self._asked)
        if connection.recv(1) == b"p":
            self._message(connection)
            connection.sendall(b"E" + struct.pack("!i", 4 + len(self._refused)) + self._refused)

    def _encrypted(self, connection: socket.socket) -> ssl.SSLSocket:
        assert self._certificates is not None
        own = self._certificates / "postgresql.crt", self._certificates / "postgresql.key"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*own)
        context.load_verify_locations(own[0])
        context.verify_mode = ssl.CERT_OPTIONAL
        encrypted = context.wrap_socket(connection, server_side=True)
        if told := encrypted.getpeercert():
            self.shown.append(str(told["subject"]))
        return encrypted

    def _message(self, connection: socket.socket) -> bytes:
        """What follows a message's length."""
        (length,) = struct.unpack("!i", _all_of(connection, 4))
        said = _all_of(connection, length - 4)
        self.heard += said
        return said


def _all_of(connection: socket.socket, length: int) -> bytes:
    """Bytes of a socket, also of one that encrypts, which takes no flags."""
    said = b""
    while len(said) < length and (more := connection.recv(length - len(said))):
        said += more
    return said


def certified(home: Path) -> Path:
    """Put a certificate where libpq looks for one in a home; returns its folder. The server has it too."""
    folder = home / ".postgresql"
    folder.mkdir()
    made = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=machine"
    command = f"{made} -keyout postgresql.key -out postgresql.crt"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    (folder / "postgresql.key").chmod(0o600)
    return folder


@contextlib.contextmanager
def asking(
    refused: str = _REFUSED, ask: int = CLEARTEXT_PASSWORD, certificates: Path | None = None
) -> Iterator[AskingServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AskingServer(listener, refused, ask, certificates)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
