"""Spares Python's garbage collector the modules of a long-lived process, which never become garbage.

Spark's Python workers collect garbage after every task (pyspark/daemon.py), which walks over the 100,000
objects of the imported modules and takes 50 ms. https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import functools
import gc
import sys


def leave_out_modules() -> None:
    """Exempt all objects of now from later collections, if modules were loaded since the last call.

    Call it at the beginning of a task: the objects of the task before are collected by then.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    gc.freeze()
