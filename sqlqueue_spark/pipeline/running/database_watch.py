"""Tries, beside a job, the databases that are down, and puts their waiting messages back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue_spark.engines.connect import Target, connect
from sqlqueue_spark.options import RECEIVE_ONLY, SinkOptions, SourceOptions
from sqlqueue_spark.plain_text import for_shell, logger
from sqlqueue_spark.send import RemoteDatabases
from sqlqueue_spark.tables import delayed

log = logger(__name__)

_SECONDS_TO_END = 10.0


def parking_for(source: SourceOptions, sink: SinkOptions) -> RemoteDatabases | None:
    """The other databases of a job whose messages may wait for them; None where a batch waits instead.

    Messages wait in the table of delayed messages of the job's queue. This needs one database for source and
    sink, an outbox, and an error queue for messages that have waited too long.
    """
    if source.queue is None or not sink.endpoint_urls or sink.store_and_forward is not None:
        return None
    together = Target.of(source).url == Target.of(sink).url and source.transaction_mode == RECEIVE_ONLY
    if not together or not sink.uses_outbox or sink.error_queue is None:
        return None
    with connect(Target.of(sink)) as connection, connection.transaction():
        owner = source.naming(connection.dialect).table(source.queue)
        if delayed.find(connection, owner) is None:
            log.warning(
                "not_parking queue=%s: while a database is down a batch waits for it; messages could wait "
                "instead and "
                "hold no others up, after: sqlqueue delayed create %s",
                source.queue,
                for_shell(str(owner)),
            )
            return None
    return RemoteDatabases(sink, sink, source.queue)


@contextmanager
def watched(databases: RemoteDatabases | None) -> Iterator[None]:
    """While the block runs, try the databases that are down, and put messages back for those that answer."""
    if databases is None:
        yield
        return
    stopping = threading.Event()
    thread = threading.Thread(target=databases.watch, args=[stopping], name="sqlqueue-databases", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        databases.wake()
        thread.join(_SECONDS_TO_END)
