"""Looks, before Spark starts, for what it needs on this machine: Java, Delta's package, folders to write."""

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.machine_checks import java
from sqlqueue_spark.pipeline.running.delta_lake import fetches_delta
from sqlqueue_spark.pipeline.running.session import is_ours, missing_settings, runs
from sqlqueue_spark.pipeline.running.spark_defaults import settings_in, users_folder


def check_machine(*, delta: bool = True, folders: Mapping[str, str] | None = None) -> None:
    """Look whether this machine has what Spark needs, where this process starts it.

    :param folders: those into which a job writes, by their options.
    :raises SqlQueueError: Java is missing, or Delta Lake's package; the text says how to install it. Or a
        folder cannot be written.
    """
    try:
        os.getcwd()  # noqa: PTH109 -- Java needs one too
    except OSError as error:
        raise ConfigurationError(
            f"The working folder cannot be used ({error.strerror}); change into another one."
        ) from error
    for name, path in (folders or {}).items():
        if path.startswith("file:") or (_files_are_local() and ":" not in path):
            check_folder(f"The option {name}", path)
    if not runs():
        java()
    if delta and is_ours():
        theirs = settings_in(users_folder())
        if fetches_delta(missing_settings(theirs, delta=True), theirs):
            # That of Java's user.home, which does not follow HOME.
            with suppress(KeyError):
                jars = theirs.get("spark.jars.ivy") or f"{pwd.getpwuid(os.getuid()).pw_dir}/.ivy2.5.2"
                check_folder("Spark's setting spark.jars.ivy", jars)


def check_folder(name: str, path: str) -> None:
    """Refuse a folder of this machine that cannot be written. One that is missing is made later.

    :param name: what names the folder.
    :raises ConfigurationError: a file is in its place or on the way there, or its rights forbid to write.
    """
    folder = Path(path.removeprefix("file:")).absolute()
    # It is False for what this user may not see, where Path.exists() fails.
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))  # noqa: PTH110
    if not there.is_dir():
        raise ConfigurationError(f"{name} is {path!r}, and {there} is a file; name a folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{name} is {path!r}, and this user may not write into {there}; name another folder, or have "
            "that allowed."
        )


def check_file(name: str, path: str) -> None:
    """Refuse a file of this machine that cannot be made; arguments and errors as :func:`check_folder`."""
    if Path(path).is_dir():
        raise ConfigurationError(f"{name} is {path!r}, which is a folder; name a file.")
    check_folder(f"{name} is {path!r}; its folder", str(Path(path).parent))


def _files_are_local() -> bool:
    """Whether a path without a scheme surely means a file of this machine."""
    folder, theirs = users_folder(), settings_in(users_folder())
    elsewhere = (
        not theirs.get("spark.master", "local").startswith("local"),
        "spark.hadoop.fs.defaultFS" in theirs,
        "HADOOP_CONF_DIR" in os.environ,
        *((folder / each).exists() for each in ("core-site.xml", "spark-env.sh")),
    )
    return is_ours() and not any(elsewhere)
