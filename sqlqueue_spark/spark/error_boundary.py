"""An error of ours reaches Spark as its sentence alone, so that it stands in the first line of Spark's own.

Spark copies what its Python processes print of an error into the message of its exception and into its log,
and Python shows the stack trace in it once more. With ``SQLQUEUE_LOG=DEBUG`` the stack traces stay.

After ``%load_ext sqlqueue_spark`` a notebook shows the sentence above the user's part of the stack trace.
"""

import functools
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import py4j  # type: ignore[import-untyped] # it ships neither
import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from sqlqueue_spark.errors import SqlQueueError, why
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.spark.processes import begin_call, is_of_spark

log = logger(__name__)

#: With it a Python process of Spark hands over an error without stack traces, when it ends by it
#: (``handle_worker_exception`` in pyspark/util.py).
_HIDE = "SPARK_HIDE_TRACEBACK"
#: What Spark's Java says of a thread that was interrupted.
_STOPPED = re.compile(r"java\.(lang|io|nio\.channels)\.(Closed)?(ByInterrupt|Interrupted(IO)?)Exception")
#: The folders of the code of Spark and of its way to Java.
_OF_SPARK = tuple(f"{Path(str(each.__file__)).parent}{os.sep}" for each in (pyspark, py4j))
Kind = TypeVar("Kind", bound=type)


def sentence_first(kind: Kind) -> Kind:
    """The class, whose public methods Spark calls in its processes. Each begins with :func:`begin_call`."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _said(method))
    return kind


def shorten(error: Exception) -> None:
    """Take the stack trace and the cause from an error whose text says all, before Spark has it.

    Py4J prints the stack trace of its callback above the error, and a cause above that. So an error of ours,
    also one out of a worker, has its own sentence as its cause.
    """
    if isinstance(error, SqlQueueError | PySparkException) and not log.isEnabledFor(logging.DEBUG):
        ours = isinstance(error, SqlQueueError) or "sqlqueue_spark.errors." in str(error)
        sentence = SqlQueueError(why(error)) if ours else None
        error.__traceback__, error.__cause__, error.__suppress_context__ = None, sentence, True


def end_if_stopped(error: Exception) -> None:
    """Raise in short what Spark takes for ``query.stop()`` within a batch, if the error of the batch says so.

    A long text makes Spark overflow its stack (``StreamExecution.isInterruptionException``).
    """
    if stopped := _STOPPED.search(str(error)):
        said = "py4j.protocol.Py4JJavaError: An error occurred while calling save"
        raise SqlQueueError(f"{said}: {stopped[0]}") from None


def _said(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        begin_call()
        try:
            with _sentence_alone():
                result = method(*given, **named)
        except SqlQueueError as error:
            if method.__name__ == "streamReader" and _HIDE in os.environ:
                return _Refused(error)
            raise
        return _rows(result) if isinstance(result, Iterator) else result

    return call


class _Refused:
    """In place of a reader: it raises an error when Spark first asks it something.

    Spark hides what ``streamReader`` raises beneath an error of its own, for it stops a reader that is not
    there.
    """

    def __init__(self, error: SqlQueueError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error

    def stop(self) -> None:
        """There is nothing to stop."""


def _rows(rows: Iterator[Any]) -> Iterator[Any]:
    with _sentence_alone():
        yield from rows


@contextmanager
def _sentence_alone() -> Iterator[None]:
    try:
        yield
    except SqlQueueError:
        if is_of_spark() and not log.isEnabledFor(logging.DEBUG):
            os.environ[_HIDE] = "1"
        raise


def load_ipython_extension(shell: Any) -> None:
    """Show the sentence of each error that Spark or this package raises in a cell; IPython calls this."""
    shell.set_custom_exc((SqlQueueError, PySparkException, Py4JError), _show)


def unload_ipython_extension(shell: Any) -> None:
    """Show errors as before; IPython calls this at ``%unload_ext``."""
    shell.set_custom_exc((), None)


def _show(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    sys.stderr.write(f"{why(error)}\n")
    at = None if log.isEnabledFor(logging.DEBUG) else trace
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_code.co_filename.startswith(_OF_SPARK):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
