"""Delivers delayed messages beside a job: what is due goes to its queue while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue_spark.engines.connect import Target, connect
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.receive.claiming.queue_list import tables_of
from sqlqueue_spark.send import Destinations
from sqlqueue_spark.send.delayed_mover import DelayedMover, Moved
from sqlqueue_spark.tables import delayed

log = logger(__name__)

#: A mover that has failed begins again after this time: what was missing may have been created.
_AGAIN_SECONDS = 10.0


class DelayedDelivery:
    """The movers of a job, each in a thread of its own."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._moved = Moved()

    def details(self) -> str:
        """What was moved since the last call, as ``key=value`` with a blank before; empty if nothing was."""
        with self._lock:
            done, self._moved = self._moved, Moved()
        undelivered = f" undelivered={done.failed}" if done.failed else ""
        return (f" delivered={done.sent}" if done.sent else "") + undelivered

    def run(self, mover: DelayedMover) -> None:
        """Deliver what is due until the job ends. An error is logged, and the mover begins again."""
        while True:
            try:
                mover.run(self._stopping.wait, self._count)
            except SqlQueueError as error:
                log.warning("delivery_stopped table=%s: %s", delayed.table_of(mover.owner), error)
            if self._stopping.wait(_AGAIN_SECONDS):
                return

    def stop(self) -> None:
        self._stopping.set()

    def _count(self, done: Moved) -> None:
        with self._lock:
            self._moved += done


@contextmanager
def delivering(source: SourceOptions, sink: SinkOptions) -> Iterator[DelayedDelivery]:
    """While the block runs, deliver what is due in the delayed tables of the source's queues and the sink.

    Without an error queue nothing is delivered: a message that cannot reach its queue must go there.
    """
    delivery = DelayedDelivery()
    error_queue = sink.error_queue or source.error_queue
    there = _owners(source, sink)
    if error_queue is None:
        for owner in there:
            log.warning(
                "not_delivering table=%s: this job delivers what is due with the option errorQueue alone; "
                "else see that "
                "the endpoint of that name runs, or: sqlqueue delayed run",
                delayed.table_of(owner),
            )
        there = []
    movers = [DelayedMover(options=sink, owner=owner, error_queue=error_queue or "") for owner in there]
    threads = [threading.Thread(target=delivery.run, args=[each], daemon=True) for each in movers]
    for thread in threads:
        thread.start()
    try:
        yield delivery
    finally:
        delivery.stop()
        for thread in threads:
            thread.join(_AGAIN_SECONDS)


def _owners(source: SourceOptions, sink: SinkOptions) -> list[Table]:
    """The owners of delayed tables: the sink, and the job's queues where they are in its database."""
    target = Target.of(sink)
    own = Destinations(sink).owner_of_delayed(target)
    with connect(target) as connection, connection.transaction():
        owners = [*(tables_of(connection, source) if source.url == sink.url else ()), own]
        return [each for each in dict.fromkeys(owners) if delayed.find(connection, each)]
