"""How commands begin and end: shell completion, errors as one sentence, exit codes, and what is missing."""

import contextlib
import errno
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click
from click import shell_completion

from sqlqueue_spark.cli import output
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.plain_text import holds_password, is_unicode, masked, plain
from sqlqueue_spark.version import pip_install

#: The keys in a click context for whether errors are shown with a traceback, and for typed passwords.
DEBUG, _PASSWORDS = "sqlqueue_spark.debug", "sqlqueue_spark.passwords"
_SPARK = ("pyspark", "py4j", "delta")
#: Exit codes after Ctrl-C and after a closed pipe: 128 plus the number of the signal, as in a shell.
INTERRUPTED, PIPE_CLOSED = 130, 141
#: More characters than a first sentence of help has.
_SENTENCE = 1_000
#: The errors of the operating system when a file cannot grow.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SHELLS = ("bash", "zsh", "fish")
#: The environment variable in which a shell names itself and what it asks for, as in ``bash_complete``.
COMPLETE = "_SQLQUEUE_COMPLETE"

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE = 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_REPLACED="$2"'


class CommandGroup(click.Group):
    """A group of commands. A refused request ends with one sentence on stderr and exit code 1.

    A command that returns True has found something: it ends with exit code 1 too.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, or answer a shell that asks for completions; then errors are not shown."""
        if not (asked := os.environ.get(COMPLETE)):
            sys.excepthook = _say_trace
            for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
                if getattr(sys, name) is None:  # it was closed; no file or connection is to take its place
                    setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 -- it stays open
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # letters that it lacks
            return super().main(*args, **extra)
        _discard(sys.stderr)  # a shell would show it within the line that is being typed
        with contextlib.suppress(Exception):
            answer(self, asked)
        return None

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command. Lists of commands show its first sentence to the end, and not only what fits."""
        for each in (cmd, *getattr(cmd, "commands", {}).values()):
            each.short_help = each.get_short_help_str(limit=_SENTENCE)
        super().add_command(cmd, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for given in args:
            if not is_unicode(given):
                shown = "" if holds_password(given) else f" {plain(given)!r}"
                raise click.UsageError(
                    f"The argument{shown} holds bytes that are no UTF-8; write it in UTF-8.", ctx
                )
        words = {word for each in args for word in (each.lstrip("@"), each.partition("=")[2])}
        ctx.meta[_PASSWORDS] = [*filter(holds_password, {*words, *(repr(each)[1:-1] for each in words)})]
        with _writing(ctx):  # the help of the program itself
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        if os.environ.get("NO_COLOR"):  # https://no-color.org
            ctx.color = False
        try:
            with _writing(ctx):
                ctx.exit(int(bool(super().invoke(ctx))))
        except SqlQueueError as error:
            if ctx.meta.get(DEBUG):
                raise
            raise click.ClickException(str(error)) from error
        except ImportError as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            package = (error.name or frame.f_globals["__name__"]).partition(".")[0]
            if ctx.meta.get(DEBUG) or package == "sqlqueue_spark":
                raise
            what, remedy = f"The package {package} cannot be loaded", "sqlqueue doctor says what to install"
            if error.name is not None and package in _SPARK:
                wrong = "not installed" if error.name in _SPARK else "another one than this package needs"
                extra = "demo" if ctx.invoked_subcommand == "demo" else "spark"
                what, remedy = f"Spark is {wrong}", f"install it with: {pip_install(extra)}"
            raise click.ClickException(f"{what} ({error}); {remedy}.") from error
        except click.ClickException as error:  # some of click's own texts repeat an argument as it is
            said = "\n".join(plain(each.expandtabs()) for each in error.message.split("\n"))
            error.message = masked(said, ctx.meta[_PASSWORDS])  # type: ignore[misc] # click calls it final
            raise
        except (KeyboardInterrupt, click.Abort) as error:  # click makes an Abort of both ends of its question
            output.say(err=True)  # behind the ^C of the terminal
            if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
                ctx.exit(INTERRUPTED)
            raise click.ClickException("No answer came, so nothing was done.") from error


@shell_completion.add_completion_class
class _Bash(shell_completion.BashComplete):
    """Bash's completion, corrected.

    Bash also splits words at ``@``, ``:`` and ``=``, so urls and addresses with a schema arrive in pieces.
    Here it passes the whole line instead. It replaces only the last piece, which is the function's second
    argument: https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html
    """

    source_template = shell_completion.BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = shell_completion.split_arg_string(line)[1:]
        last = words.pop() if words and not line[-1:].isspace() else ""
        self._stays = len(last.removesuffix(os.environ["COMP_REPLACED"]))
        return words, last

    def format_completion(self, item: shell_completion.CompletionItem) -> str:
        return f"{item.type},{item.value[self._stays :]}"


def answer(program: click.Command, asked: str) -> None:
    """Print what a shell asks for: completions, or with ``bash_source`` the script that asks for them."""
    shell_completion.shell_complete(program, {}, "sqlqueue", COMPLETE, asked)


class SparkCommand(click.Command):
    """A command that needs Spark, ``module:command``: imported when it runs, because that takes a second."""

    def __init__(self, name: str, where: str, help: str) -> None:  # noqa: A002 -- click's name
        super().__init__(name, help=help)
        self._where = where

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        command: click.Command = pkgutil.resolve_name(self._where)
        return command.make_context(info_name, args, parent, **extra)


def _say_trace(_type: object, error: BaseException, _trace: object) -> None:
    for line in "".join(traceback.format_exception(error)).splitlines():
        output.say(line, err=True)


@contextmanager
def _writing(ctx: click.Context) -> Iterator[None]:
    """In this block, the command ends well where its output cannot be written."""
    try:
        yield
    except BrokenPipeError:
        _discard(sys.stdout)  # its reader, for example head, has ended
        ctx.exit(PIPE_CLOSED)
    except OSError as error:
        if error.errno not in _FULL or ctx.meta.get(DEBUG):
            raise
        _discard(sys.stdout)  # the rest cannot be written either
        raise click.ClickException(
            f"The output cannot be written ({error.strerror}), so what is there of it is not all; make "
            "room, and try again."
        ) from error


def _discard(stream: TextIO) -> None:
    """Let all that is still written to a stream vanish."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
