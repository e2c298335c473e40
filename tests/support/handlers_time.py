"""The time by which handlers may take too long: it stands unless a handler says that it passes.

So a call is late because of what it does, and never because the machine is slow.
"""

import contextlib
import ctypes
import mmap
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

from sqlqueue_spark.handling import handler_calls

#: In memory that forks share, because handlers run in children.
_now = ctypes.c_double.from_buffer(mmap.mmap(-1, ctypes.sizeof(ctypes.c_double)))


def passes(seconds: float) -> None:
    """Let time pass, for this process and for all that share the clock with it."""
    _now.value += seconds


@contextlib.contextmanager
def standing() -> Iterator[None]:
    """Within the block this clock is that of handlers, also in processes that are forked within it."""
    own = SimpleNamespace(monotonic=lambda: _now.value, time_ns=time.time_ns)
    with mock.patch.object(handler_calls, "time", own):
        yield
