"""A server that has imported what Spark's Python processes import, and forks them:
else each takes a third of a second for it.

Spark starts Python. That process stands in for a fork: it hands its streams, environment and arguments to the
server, waits until the fork ends, and ends likewise; its own end is the fork's end. The first that finds no
server starts one, in its own session, so that the server dies with a program whose whole session is killed.
It ends when no fork is left.

Spark itself imports after it has forked, because a process with threads must not fork (pyspark/daemon.py).
These modules start no thread once Arrow's allocator and numpy are told so; a server that has one all the same
ends.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

_MODULES = (
    *("pyspark.worker", "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.lookup_data_sources"),
    *("pyspark.sql.worker.plan_data_source_read", "pyspark_sqlqueue", "psycopg", "adbc_driver_postgresql"),
    "pandas",
)
#: So long a process looks for a server, and a server waits for its first order.
_SECONDS = 30.0
_BEGUN, _TERMINATE = b"+", b"-"
_NUMBER = struct.Struct("<i")
#: Process, user and group. https://man7.org/linux/man-pages/man7/unix.7.html
_CREDENTIALS = struct.Struct("3i")

Order = dict[str, Any]


def stand_in() -> NoReturn:
    """Let a fork do the work of this process, and end as it ends."""
    # Ctrl-C reaches the fork without us. The server inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    until, starting = time.monotonic() + _SECONDS, None
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(_address())
            except ConnectionRefusedError:
                if starting is None or starting.poll() == 0:
                    starting = _start()
                elif starting.returncode:
                    break
                time.sleep(0.01)
                continue
            if _is_ours(server) and _handed_over(server):
                _pass_on(server)
                _end_with(_read(server, _NUMBER.size))
    sys.exit("No server of ours has forked this process.")


def _start() -> subprocess.Popen[bytes]:
    unsafe = {
        name: each for name, each in os.environ.items() if name != "PYTHONSAFEPATH"
    }  # else no folder is first on its path
    return subprocess.Popen(
        [sys.executable, __file__], env=unsafe, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _address() -> str:
    """One for each session and each place of the modules. It is no file, so nothing is left behind."""
    place = f"{sys.executable} {os.environ.get('PYTHONPATH')}"
    return f"\0sqlqueue-tests-{os.getsid(0)}-{zlib.crc32(place.encode())}"


def _is_ours(connection: socket.socket) -> bool:
    """Whether our own user is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _handed_over(server: socket.socket) -> bool:
    """Whether the server has forked; it may have been about to end."""
    order = {"arguments": sys.orig_argv[2:], "folder": str(Path.cwd()), "environment": dict(os.environ)}
    text = json.dumps(order).encode()
    try:
        socket.send_fds(server, [_NUMBER.pack(len(text))], [0, 1, 2])
        server.sendall(text)
        return server.recv(1) == _BEGUN
    except ConnectionError:
        return False


def _pass_on(server: socket.socket) -> None:
    """Let the server send the fork the signal by which Java ends a process,
    also one that came before there was a fork.
    """
    signal.signal(signal.SIGTERM, lambda *_: server.send(_TERMINATE))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _end_with(code: bytes) -> NoReturn:
    """:param code: an exit code, or below 0 the number of a signal; nothing,
    where the server itself was killed.
    """
    number = _NUMBER.unpack(code)[0] if code else -signal.SIGKILL
    if number < 0:
        if number != -signal.SIGKILL:
            signal.signal(-number, signal.SIG_DFL)
        os.kill(os.getpid(), -number)
    os._exit(number)


def _read(connection: socket.socket, size: int) -> bytes:
    """``size`` bytes; none if the other process has ended before."""
    read = b""
    with suppress(ConnectionResetError):  # it had not read all of ours
        while part := connection.recv(size - len(read)):
            read += part
            if len(read) == size:
                return read
    return b""


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._fork)
        self._forks: set[int] = set()

    def serve(self) -> Order | None:
        """Fork until no fork is left. Returns in each fork, with its order, and at last in the server."""
        events = self._selector.select(_SECONDS)
        while events:
            for key, _ in events:
                order: Order | None = key.data()
                if order is not None:
                    return order
            events = self._selector.select() if self._forks else []
        return None

    def _fork(self) -> Order | None:
        connection, _ = self._listener.accept()
        size, streams = b"", list[int]()
        with suppress(ConnectionResetError):
            size, streams, _, _ = socket.recv_fds(connection, _NUMBER.size, 3)
        text = _read(connection, *_NUMBER.unpack(size)) if size and _is_ours(connection) else b""
        pid = os.fork() if text else None
        if pid == 0:
            self._let_go()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if not pid:
            connection.close()
            return dict(json.loads(text)) if text else None
        ended = os.pidfd_open(pid)
        self._forks.add(pid)
        self._selector.register(ended, selectors.EVENT_READ, partial(self._end, pid, ended, connection))
        self._selector.register(connection, selectors.EVENT_READ, partial(self._signal, pid, connection))
        with suppress(ConnectionError):
            connection.send(_BEGUN)
        return None

    def _let_go(self) -> None:
        """In a fork: close what belongs to the server."""
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._selector.close()

    def _signal(self, pid: int, connection: socket.socket) -> None:
        """What stands in for the fork was told to end, or was killed."""
        if pid not in self._forks:
            return
        if _read(connection, 1) == _TERMINATE:
            os.kill(pid, signal.SIGTERM)
        else:
            self._selector.unregister(connection)
            os.kill(pid, signal.SIGKILL)

    def _end(self, pid: int, ended: int, connection: socket.socket) -> None:
        _, status = os.waitpid(pid, 0)
        self._forks.remove(pid)
        self._selector.unregister(ended)
        os.close(ended)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(ConnectionError):
            connection.send(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
        connection.close()


def _import() -> None:
    os.environ |= {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
    gc.disable()
    for each in _MODULES:
        importlib.import_module(each)
    gc.freeze()
    gc.enable()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit(f"The modules {', '.join(_MODULES)} have started threads, so this process must not fork.")


def _run(order: Order) -> None:
    """As ``python -m`` does in the process that stands in."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:1] = [] if "PYTHONSAFEPATH" in os.environ else [order["folder"]]
    sys.argv[:] = order["arguments"]
    runpy.run_module(order["arguments"][0], run_name="__main__", alter_sys=True)


def main() -> None:
    """Serve, unless another server is there."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # its parent blocks it
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(_address())
        except OSError:
            return
        listener.listen(100)
        _import()
        order = _Server(listener).serve()
    if order is not None:
        _run(order)


if __name__ == "__main__":
    main()
