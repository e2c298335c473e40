"""Connection poolers before PostgreSQL: one that lends a session for less than a connection is refused.

Settings belong to a session (timeouts, plans, durable commits), and so do prepared statements. A pooler in
transaction mode gives each transaction any session that is free: ours would run under others' settings, and
theirs under ours.

A pooler answers a login itself, with a process number that it made up. Where that number is the server's own,
there is no pooler, and we ask nothing more. Otherwise a second connection looks whether the pooler gives it
the session of the first one, which does nothing meanwhile. We look so once for each process and target.
Whatever we saw then, each transaction of a connection through a pooler first looks for the mark that we left
in its session.

The readers of workers ask nothing: Spark's driver has come the same way before, to plan what they read.
"""

import contextlib

import psycopg

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL

#: How often the second connection looks. A pooler gives the session that was freed last, or all in turn;
#: others come and go.
_LOOKS = 30
_BACKEND = str(POSTGRESQL.statement("backend")).encode()

#: The targets where we have looked already, and where whole sessions are lent.
_LENDS_SESSIONS: set[Target] = set()


def lends_sessions(target: Target, conninfo: str, backend: int) -> bool:
    """Whether a connection keeps its session of the server for itself, as far as can be seen.

    :param backend: the session of an open connection that has no transaction.
    """
    if target in _LENDS_SESSIONS:
        return True
    seen = {backend}
    with contextlib.closing(psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)) as other:
        for _ in range(_LOOKS):
            found, _ = session_of(other)
            seen.add(found)
            if found == backend or len(seen) > 2:
                return False
    _LENDS_SESSIONS.add(target)
    return True


def session_of(connection: psycopg.Connection) -> tuple[int, str | None]:
    """The session on which the connection's transaction runs, and the mark in it."""
    row = connection.execute(_BACKEND, prepare=False).fetchone()
    assert row is not None, "the statement has one row"
    return row[0], row[1]
