"""What happens on the driver while another database is down: rows for it wait, or else their batch does.

A database is down when it does not take what the job must write. Where rows can wait, no batch and no task
tries it. A probe does what the job does, and rolls back. When the probe succeeds, the rows that wait for the
database go back into their queue. Where rows cannot wait, the batch does, and the log says so once.
"""

import threading
import time
from collections.abc import Callable, Iterable

from sqlqueue_spark.engines.database_retry import paused
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import QueueError, SqlQueueError
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.tables_of_chunk import TAKES_NOTHING
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.waiting_rows import awaited, put_back
from sqlqueue_spark.tables import database_facts, queue_table, queues
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner

log = logger(__name__)

#: At each look of this number every database is tried: rows may wait of which this driver does not know,
#: because they were held at its last look, or because another job of the queue has put them there.
_ALL_AGAIN = 30


def why_down(
    target: Target, options: SinkOptions, *, reached: bool, told: Callable[[Connection], object] = id
) -> SqlQueueError | None:
    """Why a database does not take what a sink must write; None where it does. The probe is rolled back.

    :param reached: whether the database was reached before, and had its outbox.
    :param told: is called with the connection where it does. What it meets counts as met by the probe.
    :raises ConfigurationError: it refuses the login, and was never reached.
    :raises QueueError: it has no outbox, and none was ever seen.
    """
    try:
        with connect(target, again=reached) as connection:
            if options.uses_outbox:
                OutboxTable.of_sink(connection, options).rehearse()
            told(connection)
    except (*TAKES_NOTHING, QueueError) as error:
        if isinstance(error, QueueError) and not reached:
            raise
        return error
    return None


class RemoteDatabases:
    """Tries the databases that a sink sends to, other than home, where its rows are received.

    :param places: where the sink sends to.
    :param queues: the addresses of the queues in which rows are received.
    """

    def __init__(self, places: Places, *queues: str) -> None:
        self._places = places
        self._options = places.away
        self._queues = queues
        self._lock = threading.Lock()
        #: Those that are down, and since when by this process's clock.
        self._down: dict[Target, float] = {}
        self._all = places.everywhere()[1:]
        #: Whether rows may wait: at first because an earlier process may have let some wait. And how often a
        #: batch has said so.
        self._may_wait, self._notes = True, 0
        self._reached: set[Target] = set()
        #: Called over a connection to each database that answers a look, before anything is sent there; and
        #: called when rows wait, and before they go back.
        self.on_reaching: Callable[[Connection], object] = id
        self.on_leaving: Callable[[], object] = lambda: None
        #: Whether messages may wait for a database that no option leads to any more.
        self._renamed = True
        self._woken = threading.Event()
        self._looks = 0
        #: For how long rows may have waited that are back in their queue, also those of an earlier process.
        self._longest_wait = self._options.give_up_after

    def down(self) -> set[Target]:
        """The databases that are down."""
        with self._lock:
            return set(self._down)

    def clean(self, cleaner: OutboxCleaner, databases: Iterable[Target]) -> None:
        """Let outboxes forget old ids, unless rows may wait. For rows that are back ids are kept longer."""
        with self._lock:
            if not (self._down or self._may_wait):
                cleaner.clean_when_due(databases, self._longest_wait)

    def note(self, sent: Sent) -> None:
        """Note what became of a batch: if rows wait, the next look tries every database.

        It comes at once where none was known to be down, so that the next batch does not find that out again.
        A task that dies may have let rows wait. Spark runs it again, and then it only says that it repeats
        them.
        """
        if sent.waiting or sent.repeated:
            self.on_leaving()
            with self._lock:
                self._may_wait = True
                self._notes += 1
                new = sent.waiting and not self._down
            if new:
                self._woken.set()

    def try_all(self) -> None:
        """Find which databases are down. Errors as of :meth:`look`, the first one alone."""
        for target in self._all:
            self._answers(target)

    def look(self) -> int:
        """Try each database that is down, or all if rows may wait; put back the rows for those that answer.

        :returns: how many messages were put back.
        :raises QueueError: a database has no outbox of this name.
        :raises ConfigurationError: a database that was never reached refuses the login.
        :raises TryAgain: the database of the received messages gave way; the next look goes on.
        """
        with self._lock:
            self._looks += 1
            self._may_wait |= self._looks % _ALL_AGAIN == 0
            wanted, notes = self._all if self._may_wait else list(self._down), self._notes
            self._may_wait = bool(wanted)  # until all that answer have their rows back
        back, refusals = 0, list[SqlQueueError]()
        for target in wanted:
            try:
                answers = self._answers(target)
            except SqlQueueError as error:  # the others are looked at all the same
                refusals.append(error)
                continue
            if answers:
                back += self._put_back(self._places.option_of(target))
        if self._renamed:
            # No option leads to these any more: what waits for them goes wherever its address leads now.
            with connect(self._places.at_home, again=True) as connection:
                named = map(self._places.option_of, self._all)
                found = awaited(connection, [each.table for each in self._tables(connection)])
                others = found.difference(named)
            back += sum(map(self._put_back, sorted(others)))
            self._renamed = False
        with self._lock:  # rows of a batch may have begun to wait meanwhile
            self._may_wait = bool(refusals) or self._notes != notes
        if refusals:
            raise refusals[0]
        return back

    def watch(self, stopping: threading.Event) -> None:
        """Look again and again, until it is to stop and :meth:`wake` is called.

        What is in the way is said once as long as it is the same.
        """
        said = ""
        while True:
            self._woken.wait(self._options.retry_interval.total_seconds())
            self._woken.clear()
            if stopping.is_set():
                return
            before, said = said, ""
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next look may succeed
                said = str(error)
                if said != before:
                    log.warning("not_put_back queue=%s: %s", ", ".join(self._queues), error)

    def wake(self) -> None:
        """Let :meth:`watch` go on at once."""
        self._woken.set()

    def _answers(self, target: Target) -> bool:
        name = self._places.option_of(target)
        options, reached = self._places.at(target), target in self._reached
        error = why_down(target, options, reached=reached, told=self.on_reaching)
        with self._lock:
            down_since = self._down.pop(target, None)
            if error is not None:
                self._down[target] = time.monotonic() if down_since is None else down_since
        if error is not None:
            if down_since is None:
                log.warning("database_down database=%s retry_interval=%gs: rows for it wait: %s", name,
                            self._options.retry_interval.total_seconds(), error)  # fmt: skip
            return False
        self._reached.add(target)
        if down_since is not None:
            log.warning("database_back database=%s after=%.0fs", name, time.monotonic() - down_since)
        return True

    def _put_back(self, name: str) -> int:
        total = 0
        with connect(self._places.at_home, again=True) as connection:
            for queue, table in zip(self._queues, self._tables(connection), strict=True):
                back, first_due = put_back(connection, table, name, self.on_leaving)
                if first_due is not None:
                    with connection.transaction():
                        left = first_due - database_facts.now(connection)
                    self._longest_wait = max(self._longest_wait, self._options.give_up_after - left)
                    log.warning("put_back queue=%s database=%s rows=%d", queue, name, back)
                total += back
        return total

    def _tables(self, connection: Connection) -> list[queue_table.QueueTable]:
        naming = self._places.home.naming(connection.dialect)
        with connection.transaction():
            return [queues.get(connection, each, naming).table for each in self._queues]


def database_came_back(
    places: Places, batch_id: int, *, reached: bool = False, stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Wait for a database of ``endpoint.<name>.url`` that is down, for ``giveUpAfter`` at most.

    For its own database a sink waits by retrying.

    :param places: where the sink sends to.
    :param reached: whether the sink has sent before, so that what is missing now was there.
    :param stopped: whether the program is asked to stop.
    :returns: False if one stays down, or none is.
    """
    came_back, interval = False, places.away.retry_interval.total_seconds()

    def lost(target: Target) -> SqlQueueError | None:
        """Why a database takes nothing; None where it does, or where it is no passing trouble."""
        try:
            return why_down(target, places.at(target), reached=reached)
        except SqlQueueError:
            return None

    for target in places.everywhere()[1:] if places.home.transaction_mode != ATOMIC else ():
        if (error := lost(target)) is None:
            continue
        name = places.option_of(target)
        log.warning("batch_waits batch=%d database=%s retry_interval=%gs: it is down: %s",
                    batch_id, name, interval, error)  # fmt: skip
        end = time.monotonic() + places.away.give_up_after.total_seconds()
        while error is not None:
            if time.monotonic() >= end or paused(interval, stopped):
                return False
            error = lost(target)
        log.warning("database_back database=%s", name)
        came_back = True
    return came_back
