"""What happens on the driver while another database is down: messages for it wait, or else their batch does.

Where messages can be parked, no batch and no task tries the database. One look tries it now and then. When it answers, the look puts back
into their queue the messages that wait for it. Where messages cannot be parked, the batch waits, and the log says so once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlqueue_spark.engines.connect import Connection, Target, connect
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.outbox_lookups import check_outbox
from sqlqueue_spark.send.parking import awaited, release
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queues

log = logger(__name__)

#: Each so many looks try every database: messages may wait of which this driver does not know, because somebody held them at its last
#: look, or because another job of the queue has parked them.
_ALL_AGAIN = 30
#: How often a batch that waits looks whether it is to stop.
_STEP_SECONDS = 0.2


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
        self._down_since: dict[Target, float] = {}
        named = {each: self._destinations.option_of(each) for each in self._destinations.everywhere()}
        self._names = {target: name for target, name in named.items() if target != Target.of(home)}
        #: Those for which messages may wait. At first all: an earlier process may have parked some.
        self._awaited = set(self._names)
        self._reached: set[Target] = set()
        #: Whether messages may wait for a database that no option leads to any more.
        self._renamed = True
        self._woken = threading.Event()
        #: What was last in the way of a look.
        self._said = ""
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
            self._down_since.setdefault(target, time.monotonic())
        if not known:
            log.warning("database_down database=%s retry_interval=%gs: messages for it wait: %s", name,
                        self._options.retry_interval.total_seconds(), error)  # fmt: skip
        return True

    def note(self, sent: Sent) -> None:
        """Note what became of a batch: if messages were parked, the next look tries every database.

        It comes at once where none was known to be down, so that the next batch does not find that out again.

        A task that dies may have parked messages. Spark runs it again, and then it only says that it repeats them.
        """
        if sent.parked or sent.repeated:
            with self._lock:
                self._awaited |= self._names.keys()
                new = sent.parked and not self._down
            if new:
                self._woken.set()

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
        if self._renamed:
            # No option leads to these any more: what waits for them goes wherever its address leads now.
            with connect(Target.of(self._home), again=True) as connection:
                others = awaited(connection, self._table(connection)).difference(self._names.values())
            back += sum(map(self._put_back, sorted(others)))
            self._renamed = False
        return back

    def watch(self, stopping: threading.Event) -> None:
        """Look again and again, until somebody stops it, and :meth:`wake` is called."""
        while True:
            self._woken.wait(self._options.retry_interval.total_seconds())
            self._woken.clear()
            if stopping.is_set():
                return
            self._look_quietly()

    def _look_quietly(self) -> None:
        """Look, and say what was in the way, once as long as it is the same."""
        said = ""
        try:
            self.look()
        except SqlQueueError as error:
            said = str(error)
            if said != self._said:
                log.warning("not_put_back queue=%s: %s", self._queue, error)
        self._said = said

    def wake(self) -> None:
        """Let :meth:`watch` go on at once."""
        self._woken.set()

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
            since = self._down_since.pop(target, 0.0)
        if was_down:
            log.warning("database_back database=%s after=%.0fs", name, time.monotonic() - since)
        return True

    def _put_back(self, name: str) -> int:
        with connect(Target.of(self._home), again=True) as connection:
            back = release(connection, self._table(connection), name)
        if back:
            log.warning("put_back queue=%s database=%s rows=%d", self._queue, name, back)
        return back

    def _table(self, connection: Connection) -> queues.QueueTable:
        with connection.transaction():
            return queues.get(connection, self._queue, self._home.naming(connection.dialect)).table


@dataclass(frozen=True)
class DatabaseWait:
    """Waits for the databases of ``endpoint.<name>.url``; for its own one a sink waits in any case, and not for long.

    :param stopped: whether the program is asked to stop.
    """

    options: SinkOptions
    stopped: Callable[[], bool] = lambda: False

    def waited(self, batch_id: int) -> bool:
        """Wait for a database that is down, for ``giveUpAfter`` at most; False where none is down, or it has not come back."""
        destinations = Destinations(self.options)
        own = Target.of(self.options)
        waited = False
        for target in destinations.everywhere():
            if target == own or (error := _lost(target)) is None:
                continue
            name = destinations.option_of(target)
            log.warning("batch_waits batch=%d database=%s retry_interval=%gs: it is down: %s",
                        batch_id, name, self.options.retry_interval.total_seconds(), error)  # fmt: skip
            if not self._comes_back(target):
                return False
            log.warning("database_back database=%s", name)
            waited = True
        return waited

    def _comes_back(self, target: Target) -> bool:
        end = time.monotonic() + self.options.give_up_after.total_seconds()
        while time.monotonic() < end:
            look = time.monotonic() + self.options.retry_interval.total_seconds()
            while time.monotonic() < look:
                if self.stopped():
                    return False
                time.sleep(_STEP_SECONDS)
            if _lost(target) is None:
                return True
        return False


def _lost(target: Target) -> ConnectionLost | None:
    """Why no connection can be had; None where one can, or where it is no passing trouble."""
    try:
        connect(target, again=True).close()
    except ConnectionLost as error:
        return error
    except SqlQueueError:
        return None
    return None
