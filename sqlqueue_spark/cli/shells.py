"""The shells that complete a line of ``sqlqueue``: click knows them, but to bash it is told the whole line.

Bash cuts a line into words at ``@``, ``:`` and ``=`` too, so a url or an address with a schema comes in pieces; what it replaces by a
completion is the last of them, the function's second argument:
https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html
"""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

#: In this variable of the environment a shell asks how a line may go on, and in which form it wants the answer.
COMPLETE = "_SQLQUEUE_COMPLETE"

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE = 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_REPLACED="$2"'


class _Bash(BashComplete):
    source_template = BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is to be completed, and what there is of that."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        last = words.pop() if words and not line[-1:].isspace() else ""
        self._stays = len(last.removesuffix(os.environ["COMP_REPLACED"]))
        return words, last

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self._stays :]}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


def script(program: click.Command, shell: str) -> str:
    """The script by which a shell completes the lines of a program."""
    return _of(program, shell).source()


def asks() -> bool:
    """Whether a shell has started the program to ask how a line may go on, or for its script."""
    shell, wanted = _asked()
    return shell in SHELLS and wanted in ("complete", "source")


def answer(program: click.Command) -> str:
    """What a shell asks for, as it reads it."""
    shell, wanted = _asked()
    return script(program, shell) if wanted == "source" else _of(program, shell).complete()


def _of(program: click.Command, shell: str) -> ShellComplete:
    return SHELLS[shell](program, {}, "sqlqueue", COMPLETE)


def _asked() -> tuple[str, str]:
    shell, _, wanted = os.environ.get(COMPLETE, "").partition("_")
    return shell, wanted
