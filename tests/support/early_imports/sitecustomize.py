"""Lets the processes from which Spark forks its Python workers import first what each worker would import: a third of a second each.

Python runs a module of this name at its start if its folder is on PYTHONPATH. https://docs.python.org/3/library/site.html
Spark itself imports after it has forked, because a process with threads must not fork (pyspark/daemon.py). These modules start
no thread once Arrow's allocator is told so; a daemon that has one all the same ends.
"""

import gc
import os
import sys

_DAEMON = "pyspark.daemon"
_MODULES = ("pyspark_sqlqueue", "psycopg", "adbc_driver_postgresql", "pandas")


def _import_early(of_worker: str) -> None:
    import importlib
    from pathlib import Path

    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    gc.disable()
    for each in (of_worker, *_MODULES):
        importlib.import_module(each)
    gc.freeze()
    gc.enable()
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.exit(
            f"The modules {of_worker}, {', '.join(_MODULES)} have started threads, so Spark's daemon may not import them."
        )


if _DAEMON in sys.orig_argv:
    _import_early(sys.orig_argv[-1])
