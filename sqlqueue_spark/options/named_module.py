"""A module that an option names, in ``module:function``."""

import importlib.util
import itertools
import os
import re
import sys
import traceback
from contextlib import suppress
from types import ModuleType

#: ``module:function``.
FUNCTION = re.compile(r"(?!\d)[\w.]+:(?!\d)\w+")

#: How the files of Python's own import are called.
_IMPORTING = "<frozen importlib"


def function_name(value: str) -> str:
    if not FUNCTION.fullmatch(value):
        raise ValueError("a module and a function in it, like shop.routing:to_billing")
    return value


def imported(name: str) -> ModuleType:
    """The module, from Python's path or else from the working folder.

    The working folder stands last on the path, so that no file in it takes the place of another module.
    """
    _take_working_folder()
    return importlib.import_module(name)


def find(name: str) -> None:
    """Look whether there is a module of this name. Only the packages around it are run.

    :raises ImportError: there is none.
    """
    _take_working_folder()
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def broken_at(error: BaseException) -> str:
    """File and line at which a module failed as it was imported; empty where there is no such module."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", in {error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    after = itertools.dropwhile(lambda each: not each.filename.startswith(_IMPORTING), frames)
    own = [each for each in after if not each.filename.startswith(_IMPORTING)]
    at = [each for each in own if each.filename == own[0].filename]  # its own line, not that of a library
    return f", in {at[-1].filename}, line {at[-1].lineno}" if at else ""


def _take_working_folder() -> None:
    with suppress(OSError):  # the folder is gone
        if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 -- a path is a text here
            sys.path.append(here)
