"""A server that asks whoever connects for a password, as PostgreSQL does, hears it, and refuses the login.

Protocol: https://www.postgresql.org/docs/current/protocol-flow.html
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_SSL, _GSS = 80877103, 80877104
_ASK = b"R" + struct.pack("!ii", 8, 3)  # AuthenticationCleartextPassword
_REFUSED = 'SFATAL\0C28P01\0Mpassword authentication failed for user "me"\0\0'


class AskingServer:
    """All that it has heard stands in ``heard``.

    :param refused: the fields with which it refuses, as the protocol has them.
    """

    def __init__(self, listener: socket.socket, refused: str) -> None:
        self._listener = listener
        self._refused = refused.encode()
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
        while struct.unpack("!i", self._message(connection)[:4])[0] in (_SSL, _GSS):
            connection.sendall(b"N")
        connection.sendall(_ASK)
        if connection.recv(1) == b"p":
            self._message(connection)
            connection.sendall(b"E" + struct.pack("!i", 4 + len(self._refused)) + self._refused)

    def _message(self, connection: socket.socket) -> bytes:
        """What follows a message's length."""
        (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        said = connection.recv(length - 4, socket.MSG_WAITALL)
        self.heard += said
        return said


@contextlib.contextmanager
def asking(refused: str = _REFUSED) -> Iterator[AskingServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AskingServer(listener, refused)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
