"""What options take from the environment: a password, and what a url of PostgreSQL leaves out.

``SQLQUEUE_PASSWORD`` is for one database and goes to no other. ``SQLQUEUE_URL`` says which database that is.
What a program or SQL gives to Spark must name it letter for letter; a command may name another database of
the same server.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.plain_text import logger

log = logger(__name__)

URL, PASSWORD = "SQLQUEUE_URL", "SQLQUEUE_PASSWORD"
#: What a url is, for people.
MEANING_OF_URL = "`postgresql://…`; for SQL Server `mssql://…` or an ODBC connection string."
_LOGINS = ("password", "accessToken", "accessTokenProvider")
#: The variables of libpq that say which database is meant where a url does not, and how it is reached.
#: https://www.postgresql.org/docs/current/libpq-envars.html
LIBPQ = ("PGDATABASE", "PGHOST", "PGHOSTADDR", "PGOPTIONS", "PGPORT", "PGSERVICE", "PGSSLMODE", "PGUSER")


def of_libpq() -> tuple[tuple[str, str], ...]:
    """The variables of libpq that this machine sets. Without ``PGUSER`` libpq takes the name of its user."""
    found = {name: value for name in LIBPQ if (value := os.environ.get(name))}
    if "PGUSER" not in found:
        with suppress(ImportError, KeyError):  # no Unix; a user without a name
            import pwd

            found["PGUSER"] = pwd.getpwuid(os.geteuid()).pw_name
    return tuple(found.items())


def check_url(given: Mapping[str, str]) -> None:
    """Where a program reads ``SQLQUEUE_URL``.

    :raises ConfigurationError: neither it nor an option says a url.
    """
    if not said(given, "url"):
        raise ConfigurationError(
            f"The option url is required; set it, or {URL} in the environment, to: {MEANING_OF_URL}"
        )


def with_password(given: Mapping[str, str]) -> dict[str, str]:
    """The options, with the environment's password if they have no login and their url is ``SQLQUEUE_URL``.

    The driver calls it, and hands the password on to the workers as one that was given as an option: other
    machines have another environment.

    The url must be that of the environment letter for letter. A user who may only write SQL gives any url to
    ``format("sqlqueue")``, and one parameter of it can lead a password to another server.
    """
    options = dict(given)
    password, url = os.environ.get(PASSWORD), said(options, "url")
    if not password or url is None or any(said(options, name) is not None for name in _LOGINS):
        return options
    if url == os.environ.get(URL):
        return {**options, "password": password}
    told = "password_not_taken: %s is for the database of %s, and the option url is another one"
    log.info(told, PASSWORD, URL)
    return options
