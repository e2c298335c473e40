"""A file of ours in a folder that others may write to: no link is followed, no file of another user is used.

In a folder like /tmp another user may have made a link to a file of ours, or a file of that name.
"""

import errno
import grp
import os
import pwd
import secrets
import stat
from contextlib import suppress
from pathlib import Path

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OwnFile:
    """A file that its owner alone reads and writes, like one with a password."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """What is in it; None where there is no such file, or others may have read or written it."""
        with suppress(OSError), os.fdopen(opened(self.path, os.O_RDONLY), encoding="utf-8") as file:
            if not stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                return file.read().strip() or None
        return None

    def write(self, text: str) -> None:
        """Write it anew, as a file that only we read from its first moment on."""
        replace(self.path, text + "\n")


def opened(path: str | Path, flags: int, *, folder: int | None = None, owner: int | None = None) -> int:
    """A descriptor of a file, which is made if ``flags`` say so.

    :param folder: the descriptor of the folder in which ``path`` is a name.
    :param owner: whose file it must be; else ours or root's.
    :raises OSError: it is a link, or the file of another user.
    """
    try:
        descriptor = os.open(path, flags | _SAFELY, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a link, which is not followed"
        raise
    found = os.fstat(descriptor).st_uid
    if found != owner if owner is not None else found and found != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, f"it belongs to the user with the number {found}", str(path))
    return descriptor


def replace(
    path: str | Path, text: str, *, folder: int | None = None, owner: tuple[int, int] | None = None
) -> None:
    """Write a file by a new one in its place. A link there is replaced, and not followed.

    :param owner: the user and the group to whom the file is given; else it is ours.
    """
    new = f"{path}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY
    descriptor = os.open(new, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if owner is not None:
                os.fchown(descriptor, *owner)
        os.replace(new, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise


def changed_by_others(path: Path, *, passed: bool = False) -> Path | None:
    """The first part of a path that another user could replace by something else; None if he cannot.

    What is missing is ours to make. The folders on the way count for root alone: others may share a folder
    with people whom they trust.

    :param passed: whether the last part may be a folder like /tmp, where others change only their own.
    """
    for each in (*reversed(path.parents), path) if os.geteuid() == 0 else (path,):
        through = passed or each != path
        try:
            of = each.lstat()
        except FileNotFoundError:
            return None
        if of.st_uid not in (0, os.geteuid()):
            return each
        if stat.S_ISLNK(of.st_mode):
            with suppress(FileNotFoundError):
                each.stat()  # fails where links lead round in a circle
            target = each.parent / each.readlink()
            if (found := changed_by_others(target, passed=through)) is not None:
                return found
        elif _others_may_write(of) and not (through and of.st_mode & stat.S_ISVTX):
            return each
    return None


def _others_may_write(of: os.stat_result) -> bool:
    """The group of root, and one with the name of the owner, have no other members."""
    by_group = bool(of.st_mode & stat.S_IWGRP and of.st_gid)
    with suppress(KeyError):
        by_group = by_group and grp.getgrgid(of.st_gid).gr_name != pwd.getpwuid(of.st_uid).pw_name
    return by_group or bool(of.st_mode & stat.S_IWOTH)
