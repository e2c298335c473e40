"""Looks after waiting messages beside a job: those that are due, and those for a database that is down."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlqueue_spark.engines.open_connection import Connection, connect, one_each
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import RECEIVE_ONLY, SourceOptions
from sqlqueue_spark.plain_text import for_shell, logger
from sqlqueue_spark.receive.claiming.queue_list import tables_of
from sqlqueue_spark.send.compose.database_of_address import Place, Places
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover
from sqlqueue_spark.send.waiting.waiting_rows import awaited
from sqlqueue_spark.tables import delayed
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.queue_table import passed_over

log = logger(__name__)

#: A mover that has failed begins again after this time: what was missing may have been created.
_AGAIN_SECONDS = 10.0
#: How often delayed tables are looked for.
_LOOK_SECONDS = 30.0
_SECONDS_TO_END = 10.0


class DelayedDelivery:
    """The movers of a job, each in a thread of its own."""

    def __init__(self, source: SourceOptions, places: Places) -> None:
        self.stopping = threading.Event()
        self._source = source
        self._places = places
        self._error_queue = places.home.error_queue or source.error_queue
        self._lock = threading.Lock()
        self._moved = Sent()
        self._threads: dict[Place, threading.Thread] = {}

    def details(self) -> str:
        """What was moved since the last call, as ``key=value`` with a blank before; empty if nothing was."""
        with self._lock:
            done, self._moved = self._moved, Sent()
        counts = {"delivered": done.sent, "undelivered": done.failed}
        return "".join(f" {name}={number}" for name, number in counts.items() if number)

    def begin(self) -> None:
        """Begin a mover for each delayed table that has none yet.

        Without an error queue none begins: a message that cannot reach its queue must go there.
        """
        for each in _owners(self._source, self._places) - self._threads.keys():
            thread = threading.Thread(target=self._run, args=(each,), daemon=True)
            self._threads[each] = thread
            if self._error_queue is None:
                log.warning(
                    "not_delivering table=%s: this job delivers what is due with the option errorQueue "
                    "alone; else see that the endpoint of that name runs, or: sqlqueue delayed run %s",
                    delayed.table_of(each.table),
                    for_shell(str(each.table)),
                )
            else:
                thread.start()

    def watch(self) -> None:
        """Look now and then for delayed tables that were created meanwhile, until the job ends."""
        while not self.stopping.wait(_LOOK_SECONDS):
            try:
                self.begin()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next look may succeed
                log.warning("not_looked_for_delayed_tables queue=%s: %s", self._source.title, error)
        for thread in list(self._threads.values()):
            if thread.ident is not None:
                thread.join(_SECONDS_TO_END)

    def _run(self, owner: Place) -> None:
        """Deliver what is due until the job ends or the table has gone. An error is logged."""
        options, error_queue = self._places.at(owner.target), self._error_queue or ""
        chosen = {each.table for each in self._places.chosen if each.target == owner.target}
        if self._source.queue_pattern is None or owner == self._places.sends_later(owner.target):
            chosen.add(owner.table)  # else a pattern has found it, and it may be a stranger's
        mover = DelayedMover(options=options, owner=owner.table, error_queue=error_queue, chosen=chosen)
        while True:
            try:
                mover.run(self.stopping.wait, self._count)
            except Exception as error:  # noqa: BLE001 -- likewise
                log.warning("delivery_stopped table=%s: %s", delayed.table_of(owner.table), error)
            if self.stopping.wait(_AGAIN_SECONDS) or self._is_gone(owner):
                return

    def _is_gone(self, owner: Place) -> bool:
        """Whether the table has gone. If it comes back, :meth:`watch` begins a mover for it."""
        with suppress(SqlQueueError), connect(owner.target, again=True) as connection:
            with connection.transaction():
                gone = delayed.find(connection, owner.table) is None
            return gone and self._threads.pop(owner) is not None
        return False

    def _count(self, done: Sent) -> None:
        with self._lock:
            self._moved += done


@contextmanager
def delivering(
    source: SourceOptions, places: Places, databases: RemoteDatabases | None = None
) -> Iterator[DelayedDelivery]:
    """While the block runs, deliver what is due in the delayed tables of the source's queues and the sink.

    :param databases: those that rows may wait for. They are tried, and rows put back for those that answer.
    """
    delivery = DelayedDelivery(source, places)
    delivery.begin()
    threads = [threading.Thread(target=delivery.watch, daemon=True)]
    if databases is not None:
        threads.append(threading.Thread(target=databases.watch, args=(delivery.stopping,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield delivery
    finally:
        delivery.stopping.set()
        if databases is not None:
            databases.wake()
        for thread in threads:
            thread.join(2 * _SECONDS_TO_END)


def waiting_for(source: SourceOptions, places: Places) -> RemoteDatabases | None:
    """The other databases of a job for which rows may wait; None where a batch waits instead.

    Rows wait in the tables of delayed messages of the job's queues, which options name. This needs an outbox
    at home, and an error queue for rows that have waited too long.
    """
    home = places.home
    if source.queue_pattern is not None:
        return None
    if not home.uses_outbox or home.error_queue is None or source.transaction_mode != RECEIVE_ONLY:
        return None
    with connect(places.at_home) as connection:
        with connection.transaction():
            owners = tables_of(connection, source)
            lacking = [each for each in owners if delayed.find(connection, each) is None]
        # Rows may wait for a database that no option leads to any more.
        if len(places.everywhere()) == 1 and (lacking or not awaited(connection, owners)):
            return None
    if not lacking:
        return RemoteDatabases(places, *map(str, owners))
    log.warning("rows_do_not_wait queue=%s: while a database is down a batch waits for it; rows could wait "
                "instead and hold no others up, after: sqlqueue delayed create %s",
                source.title, for_shell(str(lacking[0])))  # fmt: skip
    return None


def _received(connection: Connection, source: SourceOptions) -> list[Table]:
    """The job's queues, but for those found by a pattern whose delayed table has code of strangers."""
    there = {each: delayed.find(connection, each) for each in tables_of(connection, source)}
    found = {owner: table for owner, table in there.items() if table is not None}
    if source.queue_pattern is None:
        return [*found]
    named = AllowedDestinations(source).named(connection, found.values())
    alone = {
        owner: None if each.address in named else passed_over(connection, each.table)
        for owner, each in found.items()
    }
    for owner, why in alone.items():
        if why is not None:
            log.warning("delayed_left_alone table=%s: %s", delayed.table_of(owner), why)
    return [owner for owner, why in alone.items() if why is None]


def _owners(source: SourceOptions, places: Places) -> set[Place]:
    """The owners of delayed tables: the job's queues, and the sink in each of its databases."""
    found = set[Place]()
    with one_each() as connected:
        for target in places.everywhere():
            try:
                connection = connected(target)
            except ConnectionLost as error:
                log.debug("no_movers_yet database=%s: %s", places.option_of(target), error)
                continue
            with connection.transaction():
                owners = _received(connection, source) if target == places.at_home else []
                sender = places.sends_later(target)
                if delayed.find(connection, sender.table):
                    owners.append(sender.table)
            found |= {Place(target, each) for each in owners}
    return found
