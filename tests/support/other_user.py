"""Another user of this machine. Only root can play him; for others these tests are skipped, and say so."""

import os
import pwd
from collections.abc import Callable

import pytest

#: Owns folders that are not ours, as far as files go; nothing runs as him.
STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user of this machine")


def as_user(name: str, work: Callable[[], object]) -> None:
    """Do some work in a child process of another user."""
    user = pwd.getpwnam(name)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
