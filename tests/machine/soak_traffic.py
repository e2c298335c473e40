"""Senders and one-row receivers who live on the queues; each notes what it does in the transaction in which it does it.

So the database knows what was sent and what was taken, whatever becomes of a connection or of the answer to a commit.
"""

import random
import threading
from collections.abc import Callable, Mapping

import psycopg

from sqlqueue_spark.engines.connections import Target
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.support.drivers.endless import ATOMIC, BILLING, FORWARDING, OPTIMISTIC, ORDERS
from tests.support.messages import number_of
from tests.support.postgresql import PostgresEngine, PostgresQueue, PostgresSession

#: The numbers of a queue's messages begin here, so that a number says to which queue the message was sent.
FIRST: Mapping[str, int] = {queue: n * 10**9 for n, queue in enumerate((ORDERS, *FORWARDING))}
#: How many one-row receivers a queue has.
RECEIVERS = {ORDERS: 3, ATOMIC: 1}
#: Nobody sends more while so many rows wait.
_BACKLOG = 3000
_MOST_AT_ONCE = 400
_PAUSE = 0.1  # seconds
_LEDGER = """
CREATE TABLE sent (queue text NOT NULL, first bigint NOT NULL, last bigint NOT NULL);
CREATE TABLE handled (queue text NOT NULL, number bigint NOT NULL, row_version bigint NOT NULL);
"""
_PROGRESS = """
SELECT (SELECT coalesce(sum(last - first + 1), 0) FROM sent)::bigint, (SELECT count(*) FROM handled),
       (SELECT count(*) FROM "orders") + (SELECT count(*) FROM "atomic") + (SELECT count(*) FROM "optimistic")
"""


class Traffic:
    """All senders and receivers who live on the queues beside the streams, each in a thread."""

    def __init__(self, url: str, seed: str) -> None:
        self._engine = PostgresEngine(url)
        self._seed = seed
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        #: The errors that ended a thread; there should be none.
        self.troubles: list[str] = []

    def begin(self) -> None:
        self._engine.execute(_LEDGER)
        queues = {queue: self._engine.create_queue(queue) for queue in FIRST}
        self._engine.create_queue(BILLING)
        with PostgresConnection(Target(url=self._engine.url)) as connection, connection.transaction():
            OutboxTable(connection, OPTIMISTIC).create()
        for queue in queues.values():
            self._run(f"sender to {queue.name}", self._send, queue)
            for n in range(RECEIVERS.get(queue.name, 0)):
                self._run(f"receiver {n} of {queue.name}", self._receive, queue)

    def send_no_more(self) -> None:
        self._no_more.set()

    def end(self) -> None:
        self._no_more.set()
        self._over.set()
        for thread in self._threads:
            thread.join()

    def progress(self) -> tuple[int, int]:
        """How many messages the streams have moved, and how many wait."""
        ((sent, handled, waiting),) = self._engine.fetch(_PROGRESS)
        assert isinstance(sent, int)
        assert isinstance(handled, int)
        assert isinstance(waiting, int)
        return sent - handled - waiting, waiting

    def _run(
        self,
        name: str,
        live: Callable[[PostgresQueue, random.Random, threading.Event], None],
        queue: PostgresQueue,
    ) -> None:
        def lives() -> None:
            try:
                live(queue, random.Random(f"{self._seed} {name}"), self._over)  # noqa: S311
            except Exception as error:  # noqa: BLE001 -- the soak is to say so, not the thread
                self.troubles.append(f"{name} has ended: {type(error).__name__}: {error}")

        thread = threading.Thread(target=lives, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self, queue: PostgresQueue, random_: random.Random, over: threading.Event) -> None:
        """Send some messages at a time; now and then so slowly that others with higher numbers are committed before."""
        first = FIRST[queue.name]
        while not self._no_more.wait(_PAUSE * random_.random()):
            count = random_.randint(1, _MOST_AT_ONCE)
            slowly = random_.random() < 0.1
            try:
                if queue.count() > _BACKLOG:
                    over.wait(_PAUSE)
                    continue
                with queue.session() as session:
                    self._send_some(session, queue, first, count)
                    if slowly:
                        half = random_.randint(1, _MOST_AT_ONCE)
                        with queue.session() as faster:
                            self._send_some(faster, queue, first + count, half)
                            faster.commit()
                        over.wait(random_.random())
                    session.commit()
            except psycopg.Error:  # the server is away, or the connection was cut
                over.wait(_PAUSE)
            first += 2 * _MOST_AT_ONCE  # the next numbers, because nobody may know whether these were sent

    @staticmethod
    def _send_some(session: PostgresSession, queue: PostgresQueue, first: int, count: int) -> None:
        session.insert(count, start=first)
        session.connection.execute(
            "INSERT INTO sent VALUES (%s, %s, %s)", [queue.name, first, first + count - 1]
        )

    def _receive(self, queue: PostgresQueue, random_: random.Random, over: threading.Event) -> None:
        """Take one row a transaction; every tenth transaction is rolled back."""
        while not over.is_set():
            try:
                with queue.session() as session:
                    while not over.is_set():
                        took = self._take(session, queue, give_back=random_.random() < 0.1)
                        over.wait(_PAUSE * random_.random() if took else _PAUSE)
            except psycopg.Error:
                over.wait(_PAUSE)

    @staticmethod
    def _take(session: PostgresSession, queue: PostgresQueue, *, give_back: bool) -> bool:
        row = session.take()
        if row is None or give_back:
            session.rollback()
            return row is not None
        session.connection.execute(
            "INSERT INTO handled VALUES (%s, %s, %s)", [queue.name, number_of(row.id), row.row_version]
        )
        session.commit()
        return True
