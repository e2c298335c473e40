"""What looks like a database's url, and whether it holds a password: known by its looks, before anybody has understood it.

So a url that stands in the wrong place is refused without being repeated.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = re.compile(
    r"\s*(?:jdbc:)?(?:postgres(?:ql)?|mssql|sqlserver|mysql|mariadb|oracle)(?:\+\w+)?:", re.IGNORECASE
)
_KEYWORD = re.compile(
    r"(?:^|;)\s*(?:server|driver|dsn|host|data source|initial catalog|pwd|password)\s*=", re.IGNORECASE
)
#: A login before an ``@``. A password that is not percent-encoded may hold any character.
_LOGIN = re.compile(r"[a-z][a-z0-9+.:-]*://[^@/]*:.*@", re.IGNORECASE | re.DOTALL)
#: A parameter or keyword whose name says that it is a secret. ``sslkey`` names a file.
_PASSWORD = re.compile(
    r"(?:^|[;?&])\s*(?!(?:sslkey|passfile)\s*=)[\w ]*(?:pwd|pass|secret|(?:client|server)_key|token)[\w ]*=\s*[^;&\s]",
    re.IGNORECASE,
)
_FROM_DOTNET = (
    "a .NET driver; write it for ODBC (Server=host;Database=name, and UID=name or Trusted_Connection=yes), or as "
    "mssql://user@host:port/database"
)
#: How others write what leads to a database: whose form it is, and what to write instead.
_ELSEWHERE = {
    r"\s*jdbc:": "JDBC; write postgresql://user@host:port/database or mssql://user@host:port/database",
    r"(?:.*;)?\s*(?:data source|initial catalog)\s*=": _FROM_DOTNET,
    r"(?:.*;)?\s*host\s*=": "Npgsql or libpq; write postgresql://user@host:port/database",
}


def told_of_others(text: str) -> str | None:
    """Whose form a connection string has that we do not read, and what to write instead; None where nobody's is known."""
    return next(
        (told for form, told in _ELSEWHERE.items() if re.match(form, text, re.IGNORECASE | re.DOTALL)), None
    )


def is_url(text: str) -> bool:
    """Whether a text looks like a url or a connection string."""
    return _SCHEME.match(text) is not None or _KEYWORD.search(text) is not None


def holds_password(text: str) -> bool:
    """Whether a text looks like a url or a connection string with a password in it."""
    plain = unquote(text)  # a name can be percent-encoded, too
    return _LOGIN.match(text.strip()) is not None or (is_url(text) and _PASSWORD.search(plain) is not None)
