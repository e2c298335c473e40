"""A module that an option names, in ``module:function``."""

import importlib.util
import os
import re
import sys
from contextlib import suppress
from types import ModuleType

#: ``module:function``.
FUNCTION = re.compile(r"(?!\d)[\w.]+:(?!\d)\w+")


def function_name(value: str) -> str:
    if not FUNCTION.fullmatch(value):
        raise ValueError("a module and a function in it, such as shop.routing:to_billing")
    return value


def imported(name: str) -> ModuleType:
    """The module, from Python's path or else from the working folder.

    The working folder stands last on the path, so that no file in it takes the place of another module.
    """
    _take_working_folder()
    return importlib.import_module(name)


def find(name: str) -> None:
    """Look whether there is such a module. Only the packages around it are run.

    :raises ImportError: there is none.
    """
    _take_working_folder()
    if name not in sys.modules and importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _take_working_folder() -> None:
    with suppress(OSError):  # the folder is gone
        if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 -- a path is a text here
            sys.path.append(here)
