"""``%load_ext sqlqueue_spark``: a notebook shows what is wrong in one sentence above the stack trace."""

import sys
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.errors import PySparkException

from sqlqueue_spark.errors import SqlQueueError, why


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
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
