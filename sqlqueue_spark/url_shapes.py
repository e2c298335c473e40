"""What looks like a database's url, and whether it holds a password: known by its looks, before anybody has understood it.

So a url that stands in the wrong place is refused without being repeated.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = re.compile(
    r"\s*(?:jdbc:)?(?:postgres(?:ql)?|mssql|sqlserver|mysql|mariadb|oracle)(?:\+\w+)?:", re.IGNORECASE
)
_KEYWORD = re.compile(r"(?:^|;)\s*(?:server|driver|dsn|pwd|password)\s*=", re.IGNORECASE)
#: A login before an ``@``. A password that is not percent-encoded may hold any character.
_LOGIN = re.compile(r"[a-z][a-z0-9+.:-]*://[^@/]*:.*@", re.IGNORECASE | re.DOTALL)
#: A parameter or keyword whose name says that it is a secret. ``sslkey`` names a file.
_PASSWORD = re.compile(
    r"(?:^|[;?&])\s*(?!(?:sslkey|passfile)\s*=)[\w ]*(?:pwd|pass|secret|(?:client|server)_key|token)[\w ]*=\s*[^;&\s]",
    re.IGNORECASE,
)


def is_url(text: str) -> bool:
    """Whether a text looks like a url or a connection string."""
    return _SCHEME.match(text) is not None or _KEYWORD.search(text) is not None


def holds_password(text: str) -> bool:
    """Whether a text looks like a url or a connection string with a password in it."""
    plain = unquote(text)  # a name can be percent-encoded, too
    return _LOGIN.match(text.strip()) is not None or (is_url(text) and _PASSWORD.search(plain) is not None)
