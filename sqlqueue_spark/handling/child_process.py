"""A child process that handles messages, so that a handler which kills or hangs its process does so there.

The parent sends record batches as streams of Arrow's IPC over a pair of sockets, each behind its length. The
child sends the outcomes back in the same way. A few bytes of shared memory tell the parent which message the
child handles, and until when.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import signal
import socket
import stat
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Never

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError, HandlerTimeout, WorkerDied
from sqlqueue_spark.handling.handler_calls import Seen
from sqlqueue_spark.spark.processes import leave_out_modules

#: Gives the outcomes of a batch of messages, part by part.
Outcomes = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]

#: The number of new objects after which a child looks for garbage. A part of messages makes thousands.
_MADE_OF_MESSAGES = 20_000
_LENGTH = struct.Struct("<Q")
_LOOK_SECONDS = 0.1
#: A child that hears no alarm is killed this many seconds after it should have heard one.
_LEAST_GRACE, _MOST_GRACE = 1.0, 5.0
_REAP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1  # prctl(2) of Linux
_STANDARD = 2  # the highest descriptor of the three standard ones


class ChildEnded(Exception):
    """The child is no more.

    :param reason: the failure of the message that did it: :class:`WorkerDied` or :class:`HandlerTimeout`.
    :param position: of the message that was begun last, in the batch; None where none was begun.
    """

    def __init__(self, reason: Exception, position: int | None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.position = position


class ChildProcess:
    """The parent's end of a child; one thread at a time may use it."""

    def __init__(self, load: Callable[[Seen], Outcomes], *, timeout: float) -> None:
        """Fork a child.

        :param load: called in the child; it loads the handler.
        :param timeout: how many seconds each step of the child may take. It is killed a grace later.
        :raises OSError: no process can be made.
        """
        self._timeout = timeout
        self._grace = min(max(timeout, _LEAST_GRACE), _MOST_GRACE)
        self._seen = Seen.from_buffer(mmap.mmap(-1, ctypes.sizeof(Seen)))
        self._status: int | None = None
        self._channel, theirs = socket.socketpair()
        parent, main = os.getpid(), threading.current_thread() is threading.main_thread()
        with theirs, warnings.catch_warnings():
            # From Python 3.12 on a fork beside threads warns. The child uses no lock but malloc's.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self._pid = os.fork()
            except OSError:
                self._channel.close()
                raise
            if not self._pid:
                _run_as_child(theirs, parent if main else None, lambda: load(self._seen))
        self._channel.settimeout(_LOOK_SECONDS)

    @property
    def usable(self) -> bool:
        """Whether the child runs, as far as is known."""
        return self._channel.fileno() >= 0

    def wait_until_loaded(self) -> None:
        """Wait until the handler is loaded, however long that takes.

        :raises ConfigurationError: it cannot be loaded.
        :raises ChildEnded: the child ended instead.
        """
        self._begin(float("inf"))
        if error := self._receive():
            self.end()
            raise ConfigurationError(
                f"The handler cannot be loaded in Spark's workers: {error.decode()}; "
                "install what it needs there, or give it to spark-submit as --py-files."
            )

    def outcomes(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The outcomes of messages, part by part. The child is ended if not all of them are taken.

        :raises ChildEnded: the child ended, or hung and was killed. All outcomes that it had sent were given
            before.
        """
        self._begin(self._timeout)
        left = messages.num_rows
        try:
            packed = _packed(messages)
            for part in (_LENGTH.pack(len(packed)), packed):
                self._move(self._channel.send, part)
            while left:
                outcomes = _unpacked(self._receive())
                left -= outcomes.num_rows
                yield outcomes
        finally:
            if left:
                self.end()

    def end(self) -> None:
        """Kill the child, unless it has ended. Calling again is harmless."""
        if self.usable:
            self._channel.close()
            if not self._reap(0):  # else its number may be another's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                self._reap(_REAP_SECONDS)

    def _begin(self, timeout: float) -> None:
        self._seen.position = Seen.NOTHING
        self._seen.until = time.monotonic() + timeout

    def _receive(self) -> bytearray:
        length = bytearray(_LENGTH.size)
        self._move(self._channel.recv_into, length)
        whole = bytearray(*_LENGTH.unpack(length))
        self._move(self._channel.recv_into, whole)
        return whole

    def _move(self, move: Callable[[memoryview], int], whole: bytes | bytearray | pa.Buffer) -> None:
        """Give the channel the whole of something, or fill it from the channel.

        The end of the child does not always end the channel: a process that the handler has forked may hold
        it open.
        """
        rest, ended = memoryview(whole), False
        began = time.monotonic()  # before, the child may have waited for us while Spark waited for a sink
        while rest:
            try:
                rest, ended = rest[move(rest) or self._died() :], False
                continue
            except TimeoutError:
                if ended:  # and since then nothing more has come
                    self._died()
            except OSError:
                self._died()
            ended = self._reap(0)
            waited = time.monotonic() - began
            if not ended and waited > self._timeout + self._grace and self._seen.is_overdue(self._grace):
                self._kill_hung()

    def _kill_hung(self) -> Never:
        position = self._position()
        self.end()
        # It may have gone on between the look and its death. Then no message is to blame.
        blamed = position if self._seen.is_overdue(self._grace) else None
        killed = (
            "The handler took longer than handlerTimeout, and as it heard no alarm its process was killed."
        )
        raise ChildEnded(HandlerTimeout(killed), blamed)

    def _died(self) -> Never:
        self._reap(1.0)
        how = _end_of(self._status)  # by itself, before it is killed
        self.end()
        raise ChildEnded(WorkerDied(f"The handler's process {how}."), self._position())

    def _position(self) -> int | None:
        return None if self._seen.position == Seen.NOTHING else self._seen.position

    def _reap(self, seconds: float) -> bool:
        """Whether the child has ended; waits at most this long for its end."""
        until = time.monotonic() + seconds
        while self._status is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # its status was asked for elsewhere
                pid, status = self._pid, 0
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(0.005)
        return True


def _end_of(status: int | None) -> str:
    if status is None:
        return "closed its channel"
    if status >= 0:
        return f"ended itself with status {status}"
    names = {int(each): each.name for each in signal.Signals}
    name = names.get(-status, f"signal {-status}")
    return f"was killed by {name}" + (
        ", perhaps because the memory was used up" if -status == signal.SIGKILL else ""
    )


# -- in the child ---------------------------------------------------------------------------------


def _run_as_child(channel: socket.socket, parent: int | None, load: Callable[[], Outcomes]) -> Never:
    """Serve the parent until it ends. Then leave at once: buffers and exit handlers belong to the parent."""
    status = 1
    try:
        _leave_the_parent(channel.fileno(), parent)
        _serve(channel, load)
        status = 0
    except BaseException:  # noqa: BLE001 -- nothing may get back into the parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _leave_the_parent(channel: int, parent: int | None) -> None:
    """Take no part in what the parent does: it alone speaks to Spark.

    :param parent: the process with which the child dies even within a call; None where that cannot be
        arranged.
    """
    if parent is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    # Ctrl-C is for the parent: as a handler's failure it would send the message to the error queue.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for usual in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(usual, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = open(  # noqa: SIM115 -- for ever
        1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    # A connection has one process at either end.
    for each in _sockets():
        if each > _STANDARD and each != channel:
            os.dup2(nothing, each, inheritable=False)
    os.close(nothing)


def _sockets() -> Iterator[int]:
    try:
        descriptors: Iterable[int] = map(int, os.listdir("/dev/fd"))  # noqa: PTH208 -- numbers, not paths
    except OSError:
        descriptors = range(os.sysconf("SC_OPEN_MAX"))
    for each in descriptors:
        with contextlib.suppress(OSError):  # it is not open, as that of the listing itself
            if stat.S_ISSOCK(os.fstat(each).st_mode):
                yield each


def _serve(channel: socket.socket, load: Callable[[], Outcomes]) -> None:
    own = os.getpid()
    with channel.makefile("rb") as requests:
        try:
            outcomes = load()
        except BaseException as error:  # noqa: BLE001 -- what it loads is a user's, and may raise anything
            traceback.print_exc()
            _write(channel, "".join(traceback.format_exception_only(error)).strip().encode(errors="replace"))
            return
        gc.set_threshold(_MADE_OF_MESSAGES)
        leave_out_modules()
        _write(channel, b"")
        while length := requests.read(_LENGTH.size):
            messages = requests.read(_LENGTH.unpack(length)[0])
            for part in outcomes(_unpacked(messages)):
                if os.getpid() != own:  # a handler has forked, and came back twice
                    return
                _write(channel, _packed(part))


def _write(channel: socket.socket, packed: pa.Buffer | bytes) -> None:
    channel.sendall(_LENGTH.pack(len(packed)))
    channel.sendall(packed)


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue()


def _unpacked(packed: bytes | bytearray) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(packed)) as reader:
        return reader.read_next_batch()
