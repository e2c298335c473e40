"""Spares Python's garbage collector what never becomes garbage: the modules of a process that works for long.

Spark's Python workers collect garbage after every task (pyspark/daemon.py), and Python then walks over the
100,000 objects of all that was imported, which takes 50 ms.
https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import functools
import gc
import sys


def leave_out_modules() -> None:
    """Leave all that is there now out of further collections, if modules were loaded since the last call.

    Call it where a worker begins with a task: what the task before has left is collected already.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    gc.freeze()
