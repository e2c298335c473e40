"""Where the jars of a package lie once Spark has fetched them, noted for each user: only the first start asks Maven's repository.

To ask costs each start a second, ninety lines on stderr and, without the network, half a minute. A note counts for nothing once a jar
is gone.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlqueue_spark.pipeline.cache_folder import cache_folder


def fetched(package: str) -> str | None:
    """The urls of the jars, with commas between, as the setting spark.jars has them; None where they are not known to be there.

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
    return cache_folder() / f"{package.replace(':', '-')}.jars"
