"""An engine's statements by their names, read from its SQL files.

A file has the statements of one task, in the same order on each engine. ``-- name: claim`` begins a statement (the format of
aiosql, https://nackjicholson.github.io/aiosql/defining-sql-queries/). The comments below it say what the statement does,
what goes in and comes out, and why each hint is there. ``{name}`` is always a quoted identifier (or NULL for a column that a
table does not have), and ``?`` is always a bound value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Statement(NamedTuple):
    """A statement and its comment. Where the text is empty, there is nothing to do on this engine."""

    text: str
    comment: str


def read(folder: Traversable) -> dict[str, Statement]:
    """The statements of all files of a folder.

    :raises ValueError: two statements have the same name.
    """
    found: dict[str, Statement] = {}
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            for name, statement in _parsed(file.read_text(encoding="utf-8")):
                if name in found:
                    raise ValueError(f"The statement {name} stands twice in {folder}; take one out.")
                found[name] = statement
    return found


def _parsed(text: str) -> Iterator[tuple[str, Statement]]:
    _, *parts = _NAME.split(text)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = body.strip().splitlines()
        said = [line for line in lines if line.lstrip().startswith("--")]
        sql = [line for line in lines if not line.lstrip().startswith("--")]
        yield name, Statement("\n".join(sql).strip(), "\n".join(line.strip("- ") for line in said))
