"""Keeps a connection to each database for the next look of a test: to open one costs 4 ms of a processor,
a look a tenth of it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

_kept: dict[tuple[int, str], psycopg.Connection[Any]] = {}


@contextmanager
def connection_to(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that commits each statement.

    Only the main thread's is kept, and only if the block ends well.
    """
    connection = _kept.pop((os.getpid(), url), None)
    if connection is None or not _lives(connection):
        # Tables change between two looks, and a statement that the server has prepared would not know it.
        connection = psycopg.connect(url, autocommit=True, prepare_threshold=None, client_encoding="utf8")
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    _keep(url, connection)


def forget(url: str) -> None:
    """Close the connection that is kept, if there is one."""
    if connection := _kept.pop((os.getpid(), url), None):
        connection.close()


def forget_all() -> None:
    """Close all connections that are kept."""
    while _kept:
        _kept.popitem()[1].close()


def _keep(url: str, connection: psycopg.Connection[Any]) -> None:
    forget(url)  # what the block itself has kept
    if threading.current_thread() is threading.main_thread():
        _kept[os.getpid(), url] = connection
    else:
        connection.close()


def _lives(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server still answers: a test may have stopped it, or cut its connections."""
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        connection.close()
        return False
    return True
