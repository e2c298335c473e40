"""The servers that are measured, and what others do on them: all by plain SQL, none of it ours."""

from __future__ import annotations

from servers.base import DESTINATION, QUEUE, Server
from servers.postgresql import PostgreSQL
from servers.sqlserver import SqlServer

__all__ = ["DESTINATION", "QUEUE", "Server", "server_at"]


def server_at(url: str) -> Server:
    """The server of a URL or connection string."""
    return PostgreSQL(url) if url.startswith("postgres") else SqlServer(url)
