"""Shell completion of ``sqlqueue`` lines by click, with a correction for bash.

Bash also splits words at ``@``, ``:`` and ``=``, so urls and addresses with a schema arrive in pieces. Here
it passes the whole line instead. It replaces only the last piece, which is the function's second argument:
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

#: The environment variable in which a shell names itself and what it asks for.
COMPLETE = "_SQLQUEUE_COMPLETE"

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE = 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_REPLACED="$2"'


class _Bash(BashComplete):
    source_template = BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words, and the beginning of the word to be completed."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        last = words.pop() if words and not line[-1:].isspace() else ""
        self._stays = len(last.removesuffix(os.environ["COMP_REPLACED"]))
        return words, last

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self._stays :]}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}


def script(program: click.Command, shell: str) -> str:
    """Return the script with which a shell completes the lines of a program."""
    return _of(program, shell).source()


def asks() -> bool:
    """Whether a shell has started the program to ask for completions or for its script."""
    shell, wanted = _asked()
    return shell in SHELLS and wanted in ("complete", "source")


def answer(program: click.Command) -> str:
    """Return what the shell asks for, in its own format."""
    shell, wanted = _asked()
    return script(program, shell) if wanted == "source" else _of(program, shell).complete()


def _of(program: click.Command, shell: str) -> ShellComplete:
    return SHELLS[shell](program, {}, "sqlqueue", COMPLETE)


def _asked() -> tuple[str, str]:
    shell, _, wanted = os.environ.get(COMPLETE, "").partition("_")
    return shell, wanted
