"""``%load_ext sqlqueue_spark`` shows the sentence of an error before its stack trace."""

import logging
import traceback
from typing import Any

import pytest
from pyspark.util import fail_on_stopiteration

import sqlqueue_spark
from sqlqueue_spark.errors import QueueError, SqlQueueError


class Shell:
    """What IPython's shell does with an error: one function is asked for the kinds that it has named."""

    kinds: Any = ()
    show: Any = None

    def __init__(self) -> None:
        self.shown: list[tuple[type, int | None]] = []
        self.calls: list[str] = []

    def set_custom_exc(self, kinds, show):
        self.kinds, self.show = kinds, show

    def showtraceback(self, exc_tuple=None, tb_offset=None):
        self.shown.append((exc_tuple[0], tb_offset))
        self.calls = [each.name for each in traceback.extract_tb(exc_tuple[2])]

    def run(self, cell):
        try:
            cell()
        except (LookupError, SqlQueueError) as error:
            if isinstance(error, self.kinds):
                self.show(self, type(error), error, error.__traceback__, tb_offset=1)
            else:
                self.showtraceback((type(error), error, error.__traceback__))


def fail():
    raise QueueError("There is no queue table orders; create it.")


@pytest.mark.parametrize(
    "cell,said,shown",
    [
        (fail, "There is no queue table orders; create it.\n", (QueueError, 1)),
        (lambda: {0: 1}[2], "", (KeyError, None)),
    ],
)
def test_a_notebook_shows_the_sentence_first_and_other_errors_as_they_are(capsys, cell, said, shown):
    shell = Shell()
    extension: Any = sqlqueue_spark
    extension.load_ipython_extension(shell)
    shell.run(cell)
    assert (capsys.readouterr(), shell.shown) == (("", said), [shown])
    extension.unload_ipython_extension(shell)
    shell.run(cell)
    assert (capsys.readouterr(), shell.shown) == (("", ""), [shown, (shown[0], None)])


@pytest.mark.parametrize(
    "level,calls", [("INFO", ["run", "cell", "fail"]), ("DEBUG", ["run", "cell", "wrapper", "fail"])]
)
def test_a_notebook_shows_no_call_within_spark_unless_it_is_to_debug(level, calls, capsys, caplog):
    """A function of the user's that Spark has called stays."""
    shell = Shell()
    extension: Any = sqlqueue_spark

    def cell():
        fail_on_stopiteration(fail)()

    caplog.set_level(getattr(logging, level), "sqlqueue_spark")
    extension.load_ipython_extension(shell)
    shell.run(cell)
    assert (capsys.readouterr().err, shell.calls) == ("There is no queue table orders; create it.\n", calls)
