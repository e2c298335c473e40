"""The SQLSTATE of a server that refuses a login.

libpq passes on only the server's words, in the server's language. Its trace of a connection also has the
state. So where the words say nothing to us, we try once more, and trace it. The trace, which may have the
password, stays in memory.

https://www.postgresql.org/docs/current/libpq-control.html#LIBPQ-PQTRACE
"""

import os
import re
import select
import time

import psycopg
from psycopg import pq

#: Severity, in the server's language and in English, then the state. Poolers leave the second out.
_REFUSAL = re.compile(rb'\tErrorResponse\t S "[^"]*"(?: V "[^"]*")? C "([0-9A-Z]{5})"')
#: Between a severity and the server's words stand two blanks; libpq's own words have one.
_ANSWER = re.compile(r":  (?=\S)")


def answer(text: str) -> str | None:
    """The line of libpq's words that has a server's; None where no server has answered."""
    return next((line for line in text.splitlines() if _ANSWER.search(line)), None)


def state(conninfo: str, seconds: float) -> str | None:
    """Try to log in, and return the state with which the server refuses it; None where none is told.

    :param seconds: when to give up.
    """
    if not hasattr(os, "memfd_create"):  # where this system has no such file, libpq cannot trace either
        return None
    trace = os.memfd_create("sqlqueue")
    try:
        connection = pq.PGconn.connect_start(conninfo.encode())
        connection.trace(trace)
        try:
            _poll(connection, time.monotonic() + seconds)
        finally:
            connection.untrace()  # writes what is left of it
            connection.finish()
        told = _REFUSAL.findall(os.pread(trace, os.fstat(trace).st_size, 0))
    except (psycopg.Error, OSError, ValueError):  # ValueError: the socket is gone
        return None
    finally:
        os.close(trace)
    return told[-1].decode() if told else None


def _poll(connection: pq.abc.PGconn, deadline: float) -> None:
    while (left := deadline - time.monotonic()) > 0:
        match connection.connect_poll():
            case pq.PollingStatus.READING:
                select.select([connection.socket], [], [], left)
            case pq.PollingStatus.WRITING:
                select.select([], [connection.socket], [], left)
            case _:
                return
