"""The other databases of a pipeline, as its driver knows them: which are down, and which messages wait for them.

While a database is down, no batch and no task tries it. One look tries it now and then, and when it answers, puts back into their queue the
messages that wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlqueue_spark.engines.connections import Connection, Target, connect
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.outbox_check import check_outbox
from sqlqueue_spark.send.parked_release import release
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queues

log = logger(__name__)

#: Each so many looks try every database: messages may wait of which this driver does not know, because somebody held them at its last
#: look, or because another job of the queue has parked them.
_ALL_AGAIN = 30


class RemoteDatabases:
    """Tries the databases that a sink sends to, which are others than that in which its messages are received.

    :param options: the sink's.
    :param home: where the messages are received, in the queue at the address ``queue``.
    """

    def __init__(self, options: SinkOptions, home: ConnectionOptions, queue: str) -> None:
        self._options = options
        self._home = home
        self._queue = queue
        self._destinations = Destinations(options)
        self._lock = threading.Lock()
        self._down: dict[Target, str] = {}
        named = {each: self._destinations.option_of(each) for each in self._destinations.everywhere()}
        self._names = {target: name for target, name in named.items() if target != Target.of(home)}
        #: Those for which messages may wait. At first all: an earlier process may have parked some.
        self._awaited = set(self._names)
        self._reached: set[Target] = set()
        self._looks = 0

    def down(self) -> dict[Target, str]:
        """The databases that are down, each with the name of the option that leads there."""
        with self._lock:
            return dict(self._down)

    def is_down(self, target: Target, error: ConnectionLost) -> bool:
        """Note that a database does not answer; False where it is none that messages wait for."""
        name = self._names.get(target)
        if name is None:
            return False
        with self._lock:
            known = target in self._down
            self._down[target] = name
        if not known:
            log.warning("database_down database=%s retry_interval=%s: messages for it wait: %s", name,
                        self._options.retry_interval, error)  # fmt: skip
        return True

    def note(self, sent: Sent) -> None:
        """Note what became of a batch: if messages were parked, the next look tries every database.

        A task that dies may have parked messages. Spark runs it again, and then it only says that it repeats them.
        """
        if sent.parked or sent.repeated:
            with self._lock:
                self._awaited |= self._names.keys()

    def look(self) -> int:
        """Try each database that is down or for which messages may wait, and put back the messages for those that answer.

        :returns: how many messages were put back.
        :raises QueueError: a database has no outbox of this name.
        :raises ConfigurationError: a database that was never reached refuses the login.
        :raises TryAgain: the database of the received messages gave way; the next look goes on.
        """
        with self._lock:
            self._looks += 1
            if self._looks % _ALL_AGAIN == 0:
                self._awaited |= self._names.keys()
            wanted = [each for each in self._names if each in self._down or each in self._awaited]
        answering = [target for target in wanted if self._answers(target)]
        back = 0
        for target in answering:
            with self._lock:  # before, because a batch may park messages while we look
                self._awaited.discard(target)
            try:
                back += self._put_back(self._names[target])
            except BaseException:
                with self._lock:
                    self._awaited.add(target)
                raise
        return back

    def watch(self, pause: Callable[[float], bool]) -> None:
        """Look again and again, until ``pause``, which waits for so many seconds, returns True."""
        while not pause(self._options.retry_interval.total_seconds()):
            try:
                self.look()
            except SqlQueueError as error:
                log.warning("not_put_back queue=%s: %s", self._queue, error)

    def _answers(self, target: Target) -> bool:
        name = self._names[target]
        try:
            with connect(target, again=target in self._reached) as connection:
                check_outbox(self._options, self._destinations, connection)
        except ConnectionLost as error:
            self.is_down(target, error)
            return False
        self._reached.add(target)
        with self._lock:
            was_down = self._down.pop(target, None) is not None
        if was_down:
            log.warning("database_back database=%s", name)
        return True

    def _put_back(self, name: str) -> int:
        def queue(connection: Connection) -> queues.QueueTable:
            with connection.transaction():
                return queues.get(connection, self._queue, self._home.naming(connection.dialect)).table

        with connect(Target.of(self._home), again=True) as connection:
            back = release(connection, queue(connection), name)
        if back:
            log.warning("put_back queue=%s database=%s rows=%d", self._queue, name, back)
        return back
