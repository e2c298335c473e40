"""Where the jars of a package lie once Spark has fetched them, noted for each user: only the first start asks Maven's repository.

To ask costs each start a second, ninety lines on stderr and, without the network, half a minute. A note counts for nothing once a jar
is gone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlqueue_spark.pipeline.cache_folder import cache_folder

#: The artifact and the version in the name of a jar's file.
_JAR = re.compile(r"(.+?)-(\d.*)\.jar")


def fetched(package: str) -> str | None:
    """The urls of the jars, with commas between, as the setting spark.jars has them; None where they are not known to be there.

    :param package: its coordinates, ``group:artifact:version``.
    """
    with suppress(OSError, RuntimeError, ValueError):
        jars = _note(package).read_text(encoding="utf-8").strip()
        if jars and all(Path(unquote(urlsplit(each).path)).is_file() for each in jars.split(",")):
            return jars
    return None


def without_sparks_own(jars: str, of_spark: Iterable[str]) -> str:
    """The jars that Spark has not got itself, for it copies each one that it is given at every start.

    Of a package's jars most are its dependencies on Spark and Hadoop. Spark takes a class from its own jars first, so one that it has
    in the same or a newer version is never read.

    :param jars: urls with commas between, of files as Ivy names them: group, a low line, then Maven's own name.
    :param of_spark: the names of Spark's own jars.
    """
    versions = {found[1]: _version(found[2]) for found in map(_JAR.fullmatch, of_spark) if found is not None}

    def is_sparks(url: str) -> bool:
        found = _JAR.fullmatch(url.rpartition("/")[2].partition("_")[2])
        return found is not None and _version(found[2]) <= versions.get(found[1], ())

    return ",".join(each for each in jars.split(",") if not is_sparks(each))


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


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
