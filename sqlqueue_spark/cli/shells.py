"""Shell completion of ``sqlqueue`` lines by click, with a correction for bash.

Bash also splits words at ``@``, ``:`` and ``=``, so urls and addresses with a schema arrive in pieces. Here
it passes the whole line instead. It replaces only the last piece, which is the function's second argument:
https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html
"""

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

SHELLS = ("bash", "zsh", "fish")
#: The environment variable in which a shell names itself and what it asks for, as in ``bash_complete``.
COMPLETE = "_SQLQUEUE_COMPLETE"

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE = 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_REPLACED="$2"'


@add_completion_class
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


def answer(program: click.Command, asked: str) -> None:
    """Print what a shell asks for: completions, or with ``bash_source`` the script that asks for them."""
    shell_complete(program, {}, "sqlqueue", COMPLETE, asked)
