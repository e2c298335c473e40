"""Lets only the first reading of a slice take its rows: a worker of mode ``none`` asks the driver before.

A plan that samples its input, a union of parts of a batch, a function that uses a batch twice: each reads
every slice again. The second reading would find no rows, and the batch would be done without them. A task
that Spark tries again is the same reading. Why the driver is asked, and not the database:
docs/decisions/first-reading-takes.md.
"""

import functools
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from sqlqueue_spark import plain_text
from sqlqueue_spark.errors import ConfigurationError

log = plain_text.logger(__name__)

#: How long a worker waits for the driver's answer, and the driver for the worker's question.
_SECONDS = 5.0
#: How long a worker that got no answer asks no more, and how long it waits then: a firewall never answers.
_REST_SECONDS, _AGAIN_SECONDS = 120.0, 0.5
#: The longest question, in bytes.
_LONGEST = 200
_YES, _NO = b"y", b"n"


class Reading(NamedTuple):
    """What reads a slice: the same for each attempt of a task, and another for another task."""

    name: str = ""
    #: The host at which workers reach the driver, if Spark tells.
    driver: str | None = None
    #: Whether Spark may run two attempts of a task at once: it throws away what one of them reads.
    speculative: bool = False


#: Where each slice is read once.
ONLY = Reading()


class Asking(NamedTuple):
    """What a worker needs to ask whether it may take a slice."""

    host: str
    port: int
    #: The secret of the batch: only its workers know it.
    batch: str
    #: The number of the slice.
    slice: int


class FirstReadings:
    """Remembers on the driver which reading has each slice of the newest batch, and answers its workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batch = ""
        self._first: dict[str, str] = {}
        self._server: socketserver.TCPServer | None = None

    def begin(self) -> Callable[[int], Asking]:
        """A new batch begins, and no slice of an older one may be taken any more.

        :returns: what the worker of each slice needs, by the number of the slice.
        """
        if self._server is None:
            self._server = _listening(self._answer)
        with self._lock:
            self._batch, self._first = secrets.token_hex(16), {}
        return functools.partial(Asking, socket.gethostname(), self._server.server_address[1], self._batch)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, question: str) -> bool:
        batch, _, rest = question.partition(" ")
        part, _, reading = rest.partition(" ")
        with self._lock:
            ours = hmac.compare_digest(batch.encode(), self._batch.encode())
            return ours and self._first.setdefault(part, reading) == reading


def check_first(asking: Asking, queue: str, reading: Reading) -> None:
    """Ask the driver whether this reading may take the slice.

    Where the driver cannot be reached, the rows are taken; a line in the worker's log says so.

    :raises ConfigurationError: another reading has the slice, or Spark may run this one twice at once.
    """
    if reading.speculative:
        raise ConfigurationError(
            f"No row of {queue} is taken: spark.speculation is true, so Spark may run a task twice at once, "
            "and with transactionMode none it would lose what the slower one has taken; set "
            "spark.speculation to false, or take transactionMode receiveOnly."
        )
    if _asked((reading.driver or asking.host, asking.port), f"{asking.batch} {asking.slice} {reading.name}"):
        return
    raise ConfigurationError(
        f"A slice of {queue} is read a second time, but with transactionMode none its rows have gone with "
        "the first reading, so this batch fails and what it had read is lost; call persist() on the batch "
        "before it is used twice (a sort, and a union of its parts, use it twice too), or take "
        "transactionMode receiveOnly."
    )


def _asked(driver: tuple[str, int], question: str) -> bool:
    if time.monotonic() < _UNREACHABLE.get(driver, 0.0):
        return True
    seconds = _AGAIN_SECONDS if driver in _UNREACHABLE else _SECONDS
    try:
        with socket.create_connection(driver, timeout=seconds) as connection:
            connection.sendall(f"{question}\n".encode())
            if answer := connection.recv(1):
                _UNREACHABLE.pop(driver, None)
                return answer != _NO
        reason = "it closed the connection"
    except OSError as error:
        reason = str(error)
    _UNREACHABLE[driver] = time.monotonic() + _REST_SECONDS
    log.warning(
        "second_readings_not_noticed driver=%s:%d reason=%r: a plan that reads a batch twice loses its "
        "rows without an error", *driver, reason,
    )  # fmt: skip
    return True


#: The drivers that this process has failed to reach, and until when it asks them no more.
_UNREACHABLE: dict[tuple[str, int], float] = {}


def _listening(answer: Callable[[str], bool]) -> socketserver.TCPServer:
    """A server on a free port; a thread of it answers each question."""

    class Handler(socketserver.StreamRequestHandler):
        timeout = _SECONDS

        def handle(self) -> None:
            question = self.rfile.readline(_LONGEST)
            if question.endswith(b"\n"):
                self.wfile.write(_YES if answer(question.decode(errors="replace").rstrip("\n")) else _NO)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

        def server_bind(self) -> None:
            if self.address_family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

        def handle_error(self, *_: object) -> None:
            """Say nothing: who asks nothing, or goes away, is no worker of ours."""

    server = Server(("", 0), Handler)
    threading.Thread(target=server.serve_forever, name="first readings", daemon=True).start()
    return server
