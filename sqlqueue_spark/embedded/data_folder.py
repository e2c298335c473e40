"""The server's data folder, and the way to it: no link of another user leads us elsewhere.

For root the server runs as another user, who may put a link in the place of each file of the data, and so may
who runs a query as superuser. So here alone are these files touched: none is followed, and one counts only if
it is the server's. Another user could also lead us on the way to the folder. So as root we go only where root
alone may write.
"""

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlqueue_spark.embedded.programs import binary, server_user
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import changed_by_others, opened, replace
from sqlqueue_spark.plain_text import shell_word

#: The default folders of root: one for each HOME, by its name.
OF_ROOT = Path("/var/lib/sqlqueue")
#: Characters that mean something in quotation marks. In these pg_ctl hands the path to a shell.
_OF_SHELL = frozenset('"$`\\\n')
#: Most bytes that are read of a file: the server's user may make one without an end.
_MOST = 1 << 20


class DataFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, user: pwd.struct_passwd | None) -> None:
        """Make the folder, or take one that is empty or a server's.

        :param user: for root the server's user, to whom the folder is given.
        :raises ConfigurationError: it is a link, another user's, or for root one of other things.
        """
        _check_name(self.path)
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700)
        if self.path.is_symlink():
            raise ConfigurationError(f"{self.path} is a link, which is not followed; name the folder itself.")
        with self._opened() as folder:
            owner = os.fstat(folder).st_uid
            if user is not None and owner == user.pw_uid:
                return
            if owner != os.geteuid():
                raise ConfigurationError(
                    f"The folder {self.path} belongs to the user with the number {owner}, and a server in it "
                    "would run what he has put there; name a folder of your own."
                )
            if user is not None:
                if any(self.path.iterdir()):
                    raise ConfigurationError(
                        f"The folder {self.path} holds other things, and PostgreSQL's user {user.pw_name} "
                        "would own it; name an empty one."
                    )
                os.fchown(folder, user.pw_uid, user.pw_gid)

    def clear(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)

    def take_the_place_of(self, other: "DataFolder") -> None:
        """:raises ConfigurationError: the other folder is not empty."""
        try:
            self.path.rename(other.path)
        except OSError as error:
            raise ConfigurationError(
                f"The folder {other.path} holds other things and no server ({error.strerror}); name an empty "
                "one."
            ) from error

    def owner(self) -> int:
        with self._opened() as folder:
            return os.fstat(folder).st_uid

    def read(self, name: str, *, after: int = 0) -> bytes | None:
        """What a file has behind this many bytes; None where the server has no such file."""
        with suppress(OSError), self._opened() as folder:
            owner = os.fstat(folder).st_uid
            with os.fdopen(opened(name, os.O_RDONLY, folder=folder, owner=owner), "rb") as file:
                file.seek(after)
                return file.read(_MOST)
        return None

    def size(self, name: str) -> int:
        with suppress(OSError), self._opened() as folder:
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        return 0

    def write(self, name: str, text: str) -> None:
        with self._opened() as folder:
            of = os.fstat(folder)
            replace(name, text, folder=folder, owner=(of.st_uid, of.st_gid))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(name, dir_fd=folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)


def default_folder() -> Path:
    """A folder for each HOME: sqlqueue/server below ``XDG_DATA_HOME``, else below ~/.local/share.

    Root's is below /var/lib: the user that PostgreSQL runs as must be let through to the folder. There each
    other HOME than root's own has a folder with its name.
    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    named = os.environ.get("XDG_DATA_HOME", "")
    if Path(named).is_absolute():
        return Path(named, "sqlqueue", "server")
    home = whole_path(Path("~"))
    if os.geteuid() == 0:
        own = home == Path(pwd.getpwuid(0).pw_dir)
        return Path(OF_ROOT, "" if own else quote(str(home), safe=""), "server")
    return home / ".local" / "share" / "sqlqueue" / "server"


def whole_path(folder: Path) -> Path:
    """:raises ConfigurationError: it begins with ``~`` and no user's name, or the working folder is gone."""
    try:
        return folder.expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ConfigurationError(
            f"The folder {folder} cannot be found ({error}); name another with --folder."
        ) from error


def check_way(folder: Path) -> None:
    """:raises ConfigurationError: another user could put files into a folder, or lead root elsewhere."""
    if (found := changed_by_others(folder)) is not None:
        owner = found.lstat().st_uid
        theirs = owner not in (0, os.geteuid())
        why = f"belongs to the user with the number {owner}" if theirs else "may be written by other users"
        raise ConfigurationError(
            f"A server in {folder} could be led elsewhere, because {found} {why}; name a folder of your own "
            "that others may not change."
        )


def make_way(folder: Path) -> pwd.struct_passwd | None:
    """Make a folder for a server, and what is missing on the way to it.

    :returns: for root the server's user, whom each folder that is new or empty lets through.
    :raises ConfigurationError: another user could lead us elsewhere, or a folder lets that one not through.
    """
    _check_name(folder)
    check_way(folder)
    user = server_user()
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700)
        _let_through(each, user, folder)
    for each in binary("postgres").parents:
        _let_through(each, user, binary("postgres"))
    return user


def _check_name(folder: Path) -> None:
    if found := sorted(_OF_SHELL.intersection(str(folder))):
        raise ConfigurationError(
            f"The path {str(folder)!r} of a server has the character {found[0]!r}, which a shell would not "
            "leave as it is; name a folder without it."
        )


def _let_through(folder: Path, user: pwd.struct_passwd | None, to: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if user is None or mode & stat.S_IXOTH:
        return
    if any(folder.iterdir()):
        raise ConfigurationError(
            f"The folder {folder} does not let PostgreSQL's user {user.pw_name} through to {to}; use a path "
            f"outside of it, or type: chmod o+x {shell_word(str(folder))}"
        )
    folder.chmod(mode | stat.S_IXOTH)
