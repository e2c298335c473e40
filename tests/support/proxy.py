"""A network between a client and the PostgreSQL server that breaks at a chosen word, or swallows packets."""

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # socket(7) of Linux
#: The filter of a socket that lets no packet in: nothing is acknowledged, as if there were no machine.
_NOTHING = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
_SWALLOWS = struct.pack("@HP", 1, ctypes.addressof(_NOTHING))


class Proxy:
    """Listens on a port of its own; ``url`` leads to the server through this port."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{parts.port}/", f":{self._listener.getsockname()[1]}/")
        self.cuts = 0
        self._word: bytes | None = None
        self._deliver = self._swallows = False
        self._sockets: list[socket.socket] = []

    def cut_at(self, word: bytes, *, deliver: bool) -> None:
        """Cut the next connection whose client says this word.

        :param deliver: whether the server still hears the word. If so, only its answer gets lost.
        """
        self._word, self._deliver = word, deliver

    def swallow(self) -> None:
        """Let each packet of the connections that are open vanish, without a word to either end."""
        for each in self._sockets:
            with contextlib.suppress(OSError):  # it is closed
                each.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _SWALLOWS)

    def heal(self) -> None:
        """Let packets through again; both ends send again what has vanished."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def swallow_answer_to(self, word: bytes) -> None:
        """Deliver what the client says with this word, and let each packet behind it vanish."""
        self._word, self._swallows = word, True

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            answers_lost = threading.Event()
            threading.Thread(target=self._listen, args=(client, server, answers_lost), daemon=True).start()
            threading.Thread(target=self._answer, args=(client, server, answers_lost), daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            _cut(each)
            each.close()

    def _listen(self, client: socket.socket, server: socket.socket, answers_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while said := client.recv(1 << 16):
                if self._word is not None and self._word in said:
                    self._word = None
                    self.cuts += 1
                    if self._swallows:
                        self.swallow()
                        self._swallows, self._deliver = False, True
                        server.sendall(said)
                        continue
                    if not self._deliver:
                        break
                    answers_lost.set()
                server.sendall(said)
        _cut(client, server)

    @staticmethod
    def _answer(client: socket.socket, server: socket.socket, answers_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (said := server.recv(1 << 16)) and not answers_lost.is_set():
                client.sendall(said)
        _cut(client, server)


@contextlib.contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()


def _cut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
