"""Senders and .NET endpoints who live on the queues; each notes what it does in the transaction
in which it does it.

So the database knows what was sent and what was taken, whatever becomes of a connection or of
the answer to a commit.
"""

import functools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import psycopg

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.tables.outbox import OutboxTable
from tests.support.drivers.endless import ATOMIC, BILLING, FORWARDING, OPTIMISTIC, ORDERS
from tests.support.messages import number_of
from tests.support.neighbour import Habits, Handling, Neighbour
from tests.support.postgresql import PostgresEngine, PostgresQueue, PostgresSession

#: The numbers of a queue's messages begin here, so that a number says to which queue the message was sent.
FIRST: Mapping[str, int] = {queue: n * 10**9 for n, queue in enumerate((ORDERS, *FORWARDING))}
#: How many receivers the endpoint has that lives on a queue.
RECEIVERS = {ORDERS: 3, ATOMIC: 1}
#: How the endpoint lives: slowly enough that the streams have something to do.
_HABITS = Habits(rolls_back=0.1, handling=timedelta(milliseconds=50), remembers=False)
#: A sender pauses while more rows than these wait.
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
    """All senders and endpoints who live on the queues beside the streams, in threads."""

    def __init__(self, url: str, seed: str) -> None:
        self._engine = PostgresEngine(url)
        self._seed = seed
        self._no_more = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._neighbours: list[Neighbour] = []
        self._troubles: list[str] = []

    @property
    def troubles(self) -> list[str]:
        """The errors that ended a thread; there should be none."""
        ended = [each for neighbour in self._neighbours for each in neighbour.troubles]
        return self._troubles + ended

    def begin(self) -> None:
        self._engine.execute(_LEDGER)
        queues = {queue: self._engine.create_queue(queue) for queue in FIRST}
        self._engine.create_queue(BILLING)
        with PostgresConnection(Target(url=self._engine.url)) as connection, connection.transaction():
            OutboxTable(connection, OPTIMISTIC).create()
        for queue in queues.values():
            self._run(f"sender to {queue.name}", self._send, queue)
            if receivers := RECEIVERS.get(queue.name):
                habits = replace(_HABITS, concurrency=receivers, seed=self._seed)
                note = functools.partial(_note, queue.name)
                self._neighbours.append(Neighbour(self._engine, queue, habits, note).start())

    def send_no_more(self) -> None:
        self._no_more.set()

    def end(self) -> None:
        self._no_more.set()
        self._over.set()
        for neighbour in self._neighbours:
            neighbour.stop()
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
                self._troubles.append(f"{name} has ended: {type(error).__name__}: {error}")

        thread = threading.Thread(target=lives, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self, queue: PostgresQueue, random_: random.Random, over: threading.Event) -> None:
        """Send some messages at a time; now and then so slowly that others with higher numbers
        are committed before.
        """
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
            first += 2 * _MOST_AT_ONCE  # the next numbers, because these may have been sent or not

    @staticmethod
    def _send_some(session: PostgresSession, queue: PostgresQueue, first: int, count: int) -> None:
        session.insert(count, start=first)
        session.connection.execute(
            "INSERT INTO sent VALUES (%s, %s, %s)", [queue.name, first, first + count - 1]
        )


def _note(queue: str, handling: Handling) -> None:
    """Note what an endpoint handles."""
    row = handling.message
    handling.connection.execute(
        "INSERT INTO handled VALUES (%s, %s, %s)", [queue, number_of(row.id), row.row_version]
    )
