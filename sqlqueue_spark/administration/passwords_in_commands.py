"""A password reaches the server alone that it was given for, and stands in no list of processes.

All users of a machine can read the command lines there.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from sqlqueue_spark.engines.hosts import same_server
from sqlqueue_spark.errors import NoPassword
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import holds_password, is_terminal, plain

T = TypeVar("T")

#: The ends of the names of options that are passwords, in lower case.
_SECRETS = (".password", "-password", ".accesstoken")


def refuse_password(name: str, value: str | None, variable: str) -> None:
    """Raise UsageError if an option of a job holds a password, which ``variable`` is to hold instead."""
    if _is_secret(name, value):
        raise click.UsageError(
            f"The password in {name} would stand in the list of processes and in Spark's event log, which "
            f"keeps the whole command line; give it in the environment ({variable}) or in the file of "
            "--config."
        )


def _is_secret(name: str, value: str | None) -> bool:
    return bool(value) and (name.lower().endswith(_SECRETS) or holds_password(value or ""))


def checked(
    ctx: click.Context, flag: click.Parameter, value: str | None, *, refused: bool = False
) -> str | None:
    """Return the url or the password of an option, or None for the password of the environment if the url
    leads to another server than that of the environment.

    Click parses the options that are typed before those of the environment, so a typed url is known here.

    :param flag: has a variable, of a name like ``SQLQUEUE_URL`` or ``SQLQUEUE_PASSWORD``.
    :param refused: whether a typed password is refused; else the list of processes forgets it.
    """
    name, variable = flag.opts[0], str(flag.envvar)
    if ctx.get_parameter_source(flag.name or "") is ParameterSource.COMMANDLINE:
        if refused:
            refuse_password(name, value, variable)
        elif value and _is_secret(name, value):
            _overwrite(value)
        return value
    is_password = name.endswith("password")
    url = ctx.params.get((flag.name or "").replace("password", "url")) if is_password else None
    kept = os.environ.get(variable.replace("PASSWORD", "URL"))
    return None if url and kept and not same_server(url, kept) else value


def _overwrite(secret: str) -> None:
    """Overwrite a word of this process's command line where Linux reads it, as MySQL's client does.

    The fields: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        at, end = int(after_name[45]), int(after_name[46])
        for word in ctypes.string_at(at, end - at).split(b"\0"):
            if word.endswith(os.fsencode(secret)):
                ctypes.memset(at + len(word) - len(os.fsencode(secret)), ord("x"), len(os.fsencode(secret)))
            at += len(word) + 1


def asking_for_password(
    options: ConnectionOptions,
    command: Callable[[ConnectionOptions], T],
    place: Callable[[ConnectionOptions], str],
) -> T:
    """Run a command. A user at a terminal is asked for the password that its options lack.

    :param place: says for which server that is.
    """
    try:
        return command(options)
    except NoPassword:  # raised by the first connection, before anything was done
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):  # there is no user to ask
            raise
    who = f" of {options.user}" if options.user else ""
    password = click.prompt(plain(f"Password{who}{place(options)}"), hide_input=True, err=True)
    return command(replace(options, password=password))
