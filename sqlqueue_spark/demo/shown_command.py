"""A command of a demo: shown as a reader could type it, then run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import click

from sqlqueue_spark.demo.folder import short
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError


def run(
    environment: Mapping[str, str], program: str, *arguments: str, log: Path | None = None, before: str = ""
) -> list[str]:
    """Show a command, run it, show what it says, and return that.

    :param log: the file for what the command says on stderr; without one the user sees it, as a progress bar needs.
    :param before: what stands before the command when one types it, such as ``SQLQUEUE_URL=$SHOP``.
    :raises SqlQueueError: it failed.
    """
    click.secho(f"\n$ {before and f'{before} '}{shlex.join([program, *arguments])}", bold=True)
    command = [str(_installed(program)), *arguments]
    with (
        log.open("wb") if log else nullcontext() as stderr,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout is not None, "it was asked for"
        said = []
        for line in process.stdout:
            click.echo(line, nl=False)
            said.append(line.rstrip("\n"))
    if process.returncode:
        where = f"look above and into {log}" if log else "look above"
        raise SqlQueueError(f"{program} ended with exit code {process.returncode}; {where} to see why.")
    return said


def activation() -> str:
    """The line that makes a shell find ``sqlqueue``; empty where it finds this one already."""
    found, activate = shutil.which("sqlqueue"), Path(sys.prefix, "bin", "activate")
    if (found is not None and Path(found).samefile(_installed("sqlqueue"))) or not activate.exists():
        return ""
    return f"  . {shlex.quote(short(activate))}\n"


def _installed(program: str) -> Path:
    """The program of this installation; the first one on the PATH may be another one."""
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for path in (folder / program for folder in folders):
        if path.exists():
            return path
    raise ConfigurationError(
        f"{program} is not installed beside {sys.executable}; run: pip install 'sqlqueue_spark[demo]'."
    )
