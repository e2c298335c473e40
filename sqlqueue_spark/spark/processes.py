"""What we set in processes that receive and send: the log, the garbage collector, and Ctrl-C in Spark's
reader.
"""

import functools
import gc
import logging
import os
import signal
import sys
import threading

from pyspark import TaskContext

from sqlqueue_spark.plain_text import logger, warn_once

log = logger(__name__)

_READER_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
_OUR_DAEMON = "sqlqueue_spark.spark.worker_daemon"


def log_to_stderr() -> None:
    """Log as the environment's ``SQLQUEUE_LOG`` says, like ``INFO``. Without it Python shows warnings.

    In a process whose logging is configured already, only the level is ours.
    """
    ours = logging.getLogger("sqlqueue_spark")
    asked = os.environ.get("SQLQUEUE_LOG", "")
    level = asked.upper()
    if level not in logging.getLevelNamesMapping():
        if asked:
            said = "SQLQUEUE_LOG is %r, which is no level; set it to DEBUG, INFO, WARNING or ERROR."
            warn_once(log, said, asked)
        return
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)
    ours.setLevel(level)


def begin_call() -> None:
    """What every call by Spark does first."""
    log_to_stderr()
    if TaskContext.get() is not None:  # else it runs in a process of the user
        leave_out_modules()


def leave_out_modules() -> None:
    """Exempt all objects of now from later collections of garbage, if modules were loaded since the last
    call.

    Spark's workers collect garbage after every task (pyspark/daemon.py), which walks over the 100,000 objects
    of the imported modules and takes 50 ms. Call it at the beginning of a task: the objects of the task
    before are collected by then. https://docs.python.org/3/library/gc.html#gc.freeze
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    gc.freeze()


def is_of_spark() -> bool:
    """Whether Spark has started this process, to run our code or a user's."""
    return _main_module().startswith(("pyspark.", _OUR_DAEMON))


def _main_module() -> str:
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")


def leave_ctrl_c_to_the_program() -> None:
    """Ignore Ctrl-C in Spark's reader process: the terminal sends it there too, but the program decides."""
    if _main_module() == _READER_PROCESS and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
