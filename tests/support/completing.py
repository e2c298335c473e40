"""How a shell completes a line of ``sqlqueue``."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from tests.support.terminal import terminal

_ROOT = Path(__file__).parents[2]
#: Calls the function as bash does: the name of the program, what a completion replaces,
#: and the word before that.
_BASH = """
set -u
{script}
complete -p sqlqueue >/dev/null || exit 3
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_WORDS=() COMP_CWORD=0 COMPREPLY=()
_sqlqueue_completion sqlqueue {replaced} ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
needs_fish, needs_zsh = (
    pytest.mark.skipif(
        shutil.which(shell) is None, reason=f"{shell} is not installed; make setup as root installs it"
    )
    for shell in ("fish", "zsh")
)


def script(shell: str) -> str:
    """The script with which a shell completes our lines."""
    return CliRunner().invoke(main, ["completion", shell]).stdout


def in_bash(
    folder: Path, line: str, replaced: str | None = None, **environment: str
) -> tuple[list[str], str]:
    """The completions that a real bash has for a line, in their order, and all that it shows beside them.

    :param folder: an empty folder, for a program ``sqlqueue`` that runs this package.
    :param replaced: what a completion takes the place of, where it is not the last word.
    """
    last = line.rsplit(" ", maxsplit=1)[-1] if replaced is None else replaced
    pressed = _BASH.format(script=script("bash"), line=shlex.quote(line), replaced=shlex.quote(last))
    ended = _pressed(["bash", "--norc", "-c", pressed], _with_program(folder, environment))
    return ended.stdout.split("\n")[:-1] if ended.stdout.strip() else [], ended.stderr


def _pressed(
    command: list[str], environment: Mapping[str, str], times: int = 3
) -> subprocess.CompletedProcess[str]:
    """Press the tabulator, and again where nothing came: a completion looks for a second,
    which is short beside other load.
    """
    ended = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return ended if ended.stdout.strip() or not times else _pressed(command, environment, times - 1)


def _with_program(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a shell that finds the program ``sqlqueue`` in this folder."""
    program = folder / "sqlqueue"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sqlqueue_spark "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(_ROOT)}
    own = {name: value for name, value in os.environ.items() if not name.startswith("SQLQUEUE_")}
    return {**own, **paths, **environment}


def in_fish(folder: Path, line: str, **environment: str) -> list[str]:
    """The completions that a real fish has for a line."""
    script_ = folder / "sqlqueue.fish"
    script_.write_text(script("fish"))
    pressed = f"source {shlex.quote(str(script_))}; complete -C {shlex.quote(line)}"
    ended = _pressed(["fish", "--no-config", "-c", pressed], _with_program(folder, environment))
    assert ended.stderr == ""
    return [each.partition("\t")[0] for each in ended.stdout.splitlines()]


def in_zsh(folder: Path, line: str, whole: str, **environment: str) -> None:
    """Type a line into a real zsh, press the tabulator, and wait until the line is this one."""
    (folder / "sqlqueue.zsh").write_text(script("zsh"))
    begun = (
        f"autoload -U compinit; compinit -u -D; source {shlex.quote(str(folder))}/sqlqueue.zsh; "
        "echo re''ady\n"
    )
    with terminal("-f", "-i", program="zsh", environment=_with_program(folder, environment)) as shell:
        shell.type(begun)
        shell.until("ready")
        shell.type(f"{line}\t")
        shell.until(whole)


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
