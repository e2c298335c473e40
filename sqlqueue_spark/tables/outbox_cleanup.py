"""Forgets old message ids, in the background of the process that sends, and never holds it up."""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.options import NO_OUTBOX, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.tables.database_facts import now
from sqlqueue_spark.tables.outbox import OutboxTable

log = logger(__name__)


def forget(outbox: OutboxTable, keep: timedelta, progress: Callable[[int], object] = lambda _: None) -> int:
    """Forget the ids that are older than ``keep``, a chunk in each transaction.

    Rows that others hold stay, and so do rows that are not dispatched.

    :returns: how many ids it has forgotten.
    """
    forgotten = 0
    while True:
        with outbox.connection.transaction():
            batch = outbox.clean(keep)
        forgotten += batch
        progress(batch)
        if batch < outbox.connection.dialect.written:
            return forgotten


class OutboxCleaner:
    """Cleans the outboxes of one sink every ``cleanupEvery``, when the sink says that it is at work."""

    def __init__(
        self,
        options: SinkOptions,
        clock: Callable[[], float] = time.monotonic,
        at: Callable[[Target], SinkOptions] | None = None,
    ) -> None:
        """:param at: gives the options as they hold in one of the databases."""
        self._options = options
        self._at = at or (lambda _: options)
        self._clock = clock
        self._due = clock()
        self._thread: threading.Thread | None = None

    def clean_when_due(self, databases: Iterable[Target], longer: timedelta = timedelta()) -> None:
        """Begin a cleanup if it is time for one and the last has ended; returns at once.

        :param databases: those whose outboxes the sink asks.
        :param longer: how much longer ids are kept than the option says: rows have waited meanwhile.
        """
        running = self._thread is not None and self._thread.is_alive()
        everywhere = list(databases)
        unwanted = self._options.disable_cleanup or self._options.outbox == NO_OUTBOX
        if not everywhere or unwanted or running or self._clock() < self._due:
            return
        self._due = self._clock() + self._options.cleanup_every.total_seconds()
        self._thread = threading.Thread(
            target=lambda: self._clean(everywhere, longer), name="sqlqueue-outbox-cleanup", daemon=True
        )
        self._thread.start()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the running cleanup has ended, at most ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _clean(self, databases: Iterable[Target], longer: timedelta) -> None:
        keep = self._options.keep_deduplication_data_for + longer
        for target in databases:
            try:
                with connect(target, again=True) as connection:
                    outbox = OutboxTable.of_sink(connection, self._at(target))
                    with connection.transaction():
                        if not outbox.exists():  # nothing was sent there
                            continue
                        # Its clock may have jumped ahead: then no id is older by ours than it may be.
                        ahead = max(timedelta(), now(connection) - datetime.now(UTC))
                    log.info("cleaned outbox=%s forgotten=%d", outbox.name, forget(outbox, keep + ahead))
            except SqlQueueError as error:
                log.warning("cleanup_failed endpoint=%s: %s", self._options.sender, error)
