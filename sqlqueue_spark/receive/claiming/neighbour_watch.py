"""Looks for neighbours while a batch runs: who begins to receive then must not wait for the end of the batch.

A one-row receiver that begins beside a running batch steps over every row that the stream holds, and may get
nothing until it ends. So a thread looks four times a second who looks for a row of a queue, over a session of
its own. A neighbour that two looks running have seen counts: a foreign key's check or an administrator's
SELECT FOR UPDATE holds the same lock for a moment.
"""

import threading
from collections.abc import Callable, Iterable

from sqlqueue_spark import plain_text
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.receive.claiming.queue_scanner import QueueScanner
from sqlqueue_spark.receive.claiming.set_aside import QueueFails, setting_aside

log = plain_text.logger(__name__)

#: The pause between two looks, and the pause after one that failed.
_LOOK_SECONDS, _REST_SECONDS = 0.25, 5.0
#: How long the end waits for a look: it may wait for a lock of another session.
_CLOSE_SECONDS = 5.0


class NeighbourWatch:
    """Watches queues in the background while a batch of theirs runs.

    :param seen: is called, in the watch's own thread, once neighbours are seen.
    """

    def __init__(self, pool: ConnectionPool, seen: Callable[[], None]) -> None:
        self._pool = pool
        self._seen = seen
        self._watched: tuple[QueueScanner, ...] = ()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._closed = False

    def begin(self, scanners: Iterable[QueueScanner]) -> None:
        """Watch these queues until :meth:`end`, where it is not known that they have neighbours."""
        with self._changed:
            self._watched = tuple(each for each in scanners if each.headroom.watches)
            if not self._watched or self._closed:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sqlqueue-neighbours", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self) -> None:
        """Look no more until the next batch begins."""
        self._watched = ()

    def close(self) -> None:
        """End the thread, and wait until its look has given its session back."""
        with self._changed:
            self._closed, self._watched = True, ()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def look(self) -> None:
        """Look once at each watched queue. One that fails hides no neighbours of the others."""
        if not (watched := self._watched):
            return
        found = False
        with self._pool.borrowed() as session:
            session.hurry()
            for each in watched:
                try:
                    with setting_aside(session, each.name):
                        found |= each.headroom.sees(session.at(each.table))
                except QueueFails as error:
                    log.debug("neighbours_not_looked_for queue=%s: %s", each.name, error)
                    session.rollback()
                    session.hurry()
            session.rollback()
        if found and self._watched:
            self.end()
            self._seen()

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait(pause if self._watched else None)
                if self._closed:
                    return
            try:
                self.look()
                pause = _LOOK_SECONDS
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next look may succeed
                log.debug("neighbours_not_looked_for queue=%s: %s", self._pool.title, error)
                pause = _REST_SECONDS
