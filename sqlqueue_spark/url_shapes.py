"""What looks like a database's url, and whether it holds a password: known by its looks, before anybody has understood it.

So a url that stands in the wrong place is refused without being repeated.
"""

from __future__ import annotations

import re

_SCHEME = re.compile(
    r"\s*(?:jdbc:)?(?:postgres(?:ql)?|mssql|sqlserver|mysql|mariadb|oracle)(?:\+\w+)?:", re.IGNORECASE
)
_KEYWORD = re.compile(r"(?:^|;)\s*(?:server|driver|dsn|pwd|password)\s*=", re.IGNORECASE)
#: A login before an ``@``. A password that is not percent-encoded may hold any character.
_LOGIN = re.compile(r"[a-z][a-z0-9+.:-]*://[^@/]*:.*@", re.IGNORECASE | re.DOTALL)
_PASSWORD = re.compile(r"(?:^|[;?&])\s*(?:pwd|password|sslpassword)\s*=\s*[^;&\s]", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether a text looks like a url or a connection string."""
    return _SCHEME.match(text) is not None or _KEYWORD.search(text) is not None


def holds_password(text: str) -> bool:
    """Whether a text looks like a url or a connection string with a password in it."""
    return _LOGIN.match(text.strip()) is not None or (is_url(text) and _PASSWORD.search(text) is not None)
