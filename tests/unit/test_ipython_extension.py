"""``%load_ext sqlqueue_spark`` shows the sentence of an error before its stack trace."""

from typing import Any

import pytest

import sqlqueue_spark
from sqlqueue_spark.errors import QueueError, SqlQueueError


class Shell:
    """What IPython's shell does with an error: one function is asked for the kinds that it has named."""

    kinds: Any = ()
    show: Any = None

    def __init__(self) -> None:
        self.shown: list[tuple[type, int | None]] = []

    def set_custom_exc(self, kinds, show):
        self.kinds, self.show = kinds, show

    def showtraceback(self, exc_tuple=None, tb_offset=None):
        self.shown.append((exc_tuple[0], tb_offset))

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
