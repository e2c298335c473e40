"""Logins of a PostgreSQL server, which a module or a test makes and takes away again."""

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import sql

from sqlqueue_spark.embedded import EmbeddedServer

_PASSWORD = "open sesame"


@contextlib.contextmanager
def logins(server: EmbeddedServer, *names: str) -> Iterator[None]:
    """Within the block these logins are there. What they own must be gone at its end."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name in names:
            role = sql.Identifier(name)
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, _PASSWORD))
        yield
        for name in names:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def url_of(server: EmbeddedServer, url: str, name: str) -> str:
    """The url of a database as this login uses it."""
    return server.url(url.rpartition("/")[2], user=name, password=_PASSWORD)
