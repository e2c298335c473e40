"""What a url of PostgreSQL does beyond saying where the server is and which login is used.

libpq loads a library for ``sslkey``, writes a file for ``sslkeylogfile``, reads passwords of this machine for
``passfile`` and ``service``, and sends a password that was kept for ``host`` to ``hostaddr``:
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sqlqueue_spark.errors import ConfigurationError

#: Parameters that can do no more than that. All others count as more, those of new versions too.
_HARMLESS = frozenset(
    """
    application_name channel_binding client_encoding connect_timeout dbname fallback_application_name host
    keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts options password
    port require_auth sslcompression ssl_max_protocol_version ssl_min_protocol_version sslmode
    sslnegotiation sslsni target_session_attrs tcp_user_timeout user
    """.split()
)
#: Where libpq finds a password that the url does not have.
_PASSWORDS = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE")


def local_access(url: str, *, password: bool) -> Iterator[tuple[str, str]]:
    """The parameters that do more, each with its value.

    :param password: whether a password or a token is given beside the url.
    :raises ConfigurationError: the url cannot be read. The message never shows it.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigurationError("The driver does not understand the url; correct it.") from error
    for name, value in given.items():
        if value is not None and name not in _HARMLESS and (name, value) != ("sslrootcert", "system"):
            yield f"parameter {name} of the url", str(value)
    for host in str(given.get("host") or "").split(","):
        if not host or host.startswith(("/", "@")):
            yield "local socket of the url", host or "local"
    if not password and not given.get("password"):
        kept = [name for name in _PASSWORDS if os.environ.get(name)]
        if kept or (Path.home() / ".pgpass").exists():
            yield "password kept on this machine for a url without one", kept[0] if kept else ".pgpass"
