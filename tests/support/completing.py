"""How a shell completes a line of ``sqlqueue``."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from sqlqueue_spark.cli import main
from sqlqueue_spark.cli.shells import script

_ROOT = Path(__file__).parents[2]
#: Calls the function as bash does: the name of the program, what a completion replaces, and the word before that.
_BASH = """
set -u
{script}
complete -p sqlqueue >/dev/null || exit 3
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_WORDS=() COMP_CWORD=0 COMPREPLY=()
_sqlqueue_completion sqlqueue {replaced} ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_bash(
    folder: Path, line: str, replaced: str | None = None, **environment: str
) -> tuple[list[str], str]:
    """The completions that a real bash has for a line, in their order, and all that it shows beside them.

    :param folder: an empty folder, for a program ``sqlqueue`` that runs this package.
    :param replaced: what a completion takes the place of, where it is not the last word.
    """
    program = folder / "sqlqueue"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sqlqueue_spark "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(_ROOT)}
    last = line.rsplit(" ", maxsplit=1)[-1] if replaced is None else replaced
    ended = subprocess.run(
        ["bash", "--norc", "-c", _BASH.format(script=script(main, "bash"), line=shlex.quote(line), replaced=shlex.quote(last))],
        env={name: value for name, value in os.environ.items() if not name.startswith("SQLQUEUE_")} | paths | environment,
        stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True, timeout=60,
    )  # fmt: skip
    return ended.stdout.split("\n")[:-1] if ended.stdout.strip() else [], ended.stderr


def completed(*words: str) -> list[str]:
    """The values for the last word of a line."""
    *before, incomplete = words
    command: click.Command = main
    name = ""
    with click.Context(main, info_name="sqlqueue", resilient_parsing=True) as context:
        while isinstance(command, click.Group):
            name, *before = before
            command = command.commands[name]
        with command.make_context(name, before, parent=context, resilient_parsing=True) as its:
            (argument,) = (each for each in its.command.params if isinstance(each, click.Argument))
            return [item.value for item in argument.shell_complete(its, incomplete)]
