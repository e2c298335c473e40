"""What urls of every engine have in common."""

from __future__ import annotations


def splits_login(url: str) -> bool:
    """Whether a slash in the password, not percent-encoded, makes its rest look like the database's name, to be shown."""
    _, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    return "@" in path
