"""The servers that are measured, and what others do on them: all by plain SQL, none of it ours."""

from __future__ import annotations

import sys

from servers.base import DESTINATION, QUEUE, Server
from sqlqueue_spark.engines.drivers import remedy
from sqlqueue_spark.engines.engine_of_url import SQLSERVER

__all__ = ["DESTINATION", "QUEUE", "Server", "server_at"]


def server_at(url: str) -> Server:
    """The server of a URL or connection string. An engine's driver is imported only where it is needed."""
    if url.startswith("postgres"):
        from servers.postgresql import PostgreSQL

        return PostgreSQL(url)
    try:
        from servers.sqlserver import SqlServer
    except ImportError as error:
        sys.exit(f"The driver for {SQLSERVER.title} {remedy(SQLSERVER, error)}")
    return SqlServer(url)
