"""A module that an option names, in ``module:function``."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from types import ModuleType


def imported(name: str) -> ModuleType:
    """The module, from Python's path or else from the working folder.

    The working folder stands last on the path, so that no file in it takes the place of another module.
    """
    with suppress(OSError):  # the folder is gone
        if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 -- a path is a text here
            sys.path.append(here)
    return importlib.import_module(name)
