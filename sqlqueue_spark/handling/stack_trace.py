"""The stack trace of a handler that failed: the innermost frame of the user's code, then Python's traceback.

ServiceControl groups failed messages by the first line of a stack trace that looks like a frame of .NET. In a
traceback of Python that is an arbitrary line of source code. So the first line is a frame of the user's code:
``   at shop.orders.place() in /jobs/orders.py:line 7``. The traceback has no frames of ours.
"""

import functools
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Collection
from types import FrameType

from sqlqueue_spark.errors import type_name
from sqlqueue_spark.messages.failure_headers import FRAME, cut_stack_trace, said_by

#: Modules of these names are ours; the demo stands for a user's code.
_OURS = re.compile(r"sqlqueue_spark(?!\.demo\b)(?:\..*)?")
_LIBRARIES = tuple({sysconfig.get_path(each) + os.sep for each in ("stdlib", "platstdlib")})
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]|\A<frozen ")
#: The paths that a frame of .NET may name.
_PATH = re.compile(r"(?:/|[A-Za-z]:).{1,1000}")
_LONGEST_NAME = 200
_SHOWN = 1_000


def package_of(function: Callable[..., object]) -> str:
    """The top package of the module in which a function, or the class of a callable object, is written."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", "")).partition(".")[0]


def stack_trace(error: BaseException, packages: Collection[str]) -> str:
    """The stack trace of an error; empty where all its frames are ours.

    The innermost frame of the user's code is the last one outside of libraries and of what is installed.

    :param packages: the packages of the user's functions. They are the user's code, installed or not.
    """
    frames = [
        each for each in traceback.walk_tb(error.__traceback__) if not _OURS.fullmatch(_module(each[0]))
    ]
    if not frames:
        return ""
    users = [each for each in frames if _is_users(each[0], packages)] or frames[:1]
    lines = "".join(traceback.StackSummary.extract(iter(frames)).format())
    said = (said_by(error).splitlines() or [""])[0][:_SHOWN]
    return cut_stack_trace(
        f"{_line(*users[-1])}\nTraceback (most recent call last):\n{lines}{type_name(error)}: {said}\n"
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _is_users(frame: FrameType, packages: Collection[str]) -> bool:
    file = frame.f_code.co_filename
    if not file.startswith(_LIBRARIES) and not _INSTALLED.search(file):
        return True
    return _module(frame).partition(".")[0] in packages


def _line(frame: FrameType, line: int) -> str:
    """A frame as .NET writes it. A file whose name is no path is left out, for example ``<stdin>``."""
    code = frame.f_code
    name = f"{_word(_module(frame))}.{_word(code.co_qualname)}"
    file = code.co_filename
    known = line and file.isprintable() and _PATH.fullmatch(file)
    return f"{FRAME}{name}(){f' in {file}:line {line}' if known else ''}"


def _word(name: str) -> str:
    """A name without characters that would end it in the form of .NET."""
    shown = "".join(each if each.isprintable() and each not in " ()" else "_" for each in name)
    return shown[-_LONGEST_NAME:] or "_"
