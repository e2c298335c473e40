"""A server that can be shut off: what leads to it is refused, and what was open is broken,
until it is opened again.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator

from sqlqueue_spark.engines.hosts import hosts


class Gate:
    """Listens on a port of its own; ``url`` leads to the server through it."""

    def __init__(self, url: str) -> None:
        (self._server,) = hosts(url)
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        #: A client that comes while the gate is being shut is thrown out too, or not let in.
        self._letting_in = threading.Lock()
        #: How many connections were let in.
        self.entered = 0
        # In a url or a connection string.
        self.url = re.sub(rf"(?<=[:,]){self._server[1]}(?=[/}}])", str(self._port), url, count=1)
        self._accept(self._listener)

    def shut(self) -> None:
        """No new client comes in, and the clients that are in are thrown out."""
        with self._letting_in:
            if self._listener is not None:
                _cut(self._listener)
                self._listener = None
        self.cut()

    def cut(self) -> None:
        """Break what is open. Who comes again is let in."""
        with self._letting_in:
            while self._sockets:
                _cut(self._sockets.pop())

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._accept(self._listener)

    def _accept(self, listener: socket.socket) -> None:
        threading.Thread(target=self._let_in, args=[listener], daemon=True).start()

    def _let_in(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._letting_in:
                if self._listener is not listener:
                    _cut(client)
                    return
                server = socket.create_connection(self._server)
                self.entered += 1
                self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=[one, other], daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while said := one.recv(1 << 16):
            other.sendall(said)
    _cut(one)
    _cut(other)


def _cut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextlib.contextmanager
def gated(url: str) -> Iterator[Gate]:
    gate = Gate(url)
    try:
        yield gate
    finally:
        gate.shut()
