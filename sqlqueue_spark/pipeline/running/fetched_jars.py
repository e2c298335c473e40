"""Notes for each user where the jars of a package are, so that only the first start asks Maven's repository.

To ask costs each start a second, ninety lines on stderr and, without a network, half a minute. A note is
ignored when one of its jars is gone.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit


def fetched(package: str) -> str | None:
    """The urls of the jars as the setting spark.jars has them, with commas; None where they must be fetched.

    :param package: its coordinates, ``group:artifact:version``.
    """
    with suppress(OSError, RuntimeError, ValueError):
        jars = _note(package).read_text(encoding="utf-8").strip()
        if jars and all(Path(unquote(urlsplit(each).path)).is_file() for each in jars.split(",")):
            return jars
    return None


def remember(package: str, jars: str) -> None:
    """Note where Spark has put the jars of a package. Where that cannot be written, Spark asks again."""
    if not jars or not all(each.startswith("file:") for each in jars.split(",")):
        return
    with suppress(OSError, RuntimeError):
        note = _note(package)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun = note.with_name(f"{note.name}.{secrets.token_hex(4)}")
        begun.write_text(jars + "\n", encoding="utf-8")
        begun.replace(note)


def _note(package: str) -> Path:
    """The file in the user's cache folder, which is ``XDG_CACHE_HOME``, else ~/.cache.

    :raises RuntimeError: the user has no home.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return cache / "sqlqueue" / f"{package.replace(':', '-')}.jars"
