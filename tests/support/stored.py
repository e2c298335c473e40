"""A store-and-forward job without Spark: :class:`tests.support.driver.Stream` with the job's sink at its end,
and a second database.
"""

import contextlib
import json
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline.declared import store_and_forward
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.send_task import SendTask, counted
from tests.support import messages
from tests.support.delayed import DelayedRows
from tests.support.driver import Message, Stream, watched_connections
from tests.support.engines import Engine, QueueTable
from tests.support.messages import body, row_id
from tests.support.sending import columns_of

DESTINATION, EVENT = "$.store-and-forward.destination", "$.store-and-forward.eventtype"
GIVE_UP_AT, WAITS_FOR = "sqlqueue.GiveUpAt", "sqlqueue.WaitsFor"
_COLUMNS = ("Id", "CorrelationId", "ReplyToAddress", "Expires", "Headers", "Body", "RowVersion")


def stored_headers(number: int, to: str | None = "billing", **more: str) -> str:
    """The headers of a message that a sender has stored for a queue of the other database."""
    hop = {} if to is None else {DESTINATION: to}
    added = json.dumps({**hop, **more}, separators=(",", ":"))[1:]
    own = messages.headers(number)
    return own if added == "}" else f"{own[:-1]},{added}"


def store(queue: QueueTable, numbers: Sequence[int], to: str | None = "billing", **more: str) -> None:
    """Commit messages in the queue that go to a queue of the other database."""
    for number in numbers:
        queue.insert_row(id=row_id(number), headers=stored_headers(number, to, **more), body=body(number))


def create_home(engine: Engine, endpoint: str, name: str) -> QueueTable:
    """Create a queue, and beside it the error queue, the outbox,
    and the table in which the queue's messages wait.
    """
    engine.create_queue("error")
    create_outbox(engine, endpoint)
    DelayedRows(engine, name).create()
    return engine.create_queue(name)


def create_outbox(engine: Engine, endpoint: str) -> None:
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), endpoint)


@contextlib.contextmanager
def running(engine: Engine, queue: QueueTable, other: str, **options: Any) -> Iterator["StoreAndForward"]:
    """A job that has not begun yet; it ends with the block."""
    job = StoreAndForward(engine, queue, other, **options)
    with watched_connections(job.opened):
        try:
            yield job
        finally:
            job.stop()


def numbers_in(queue: QueueTable) -> list[int]:
    """The numbers of the messages in a queue, in the order of its rows."""
    return [json.loads(row.body or b"{}")["order"] for row in queue.rows()]


def drained(job: "StoreAndForward") -> Sent:
    """Run batches until there is nothing new; returns what became of all messages."""
    total = Sent()
    while job.trigger():
        total += job.sent
    return total


class StoreAndForward(Stream):
    """The job, whose queue is in the database of ``engine``.

    :param other: the url of the other database.
    :param sink: options of the job's sink, and ``job`` its own.
    """

    def __init__(
        self,
        engine: Engine,
        queue: QueueTable,
        other: str,
        *,
        sink: dict[str, str] | None = None,
        job: dict[str, str] | None = None,
        **options: str,
    ) -> None:
        super().__init__(engine, queue, commit=True, **options)
        given = {"url": other, "endpoint": "Forward", "errorQueue": "error", **(sink or {})}
        of_job = store_and_forward.StoreAndForwardOptions.parse({"checkpoint": "none", **(job or {})})
        # As a user gives them: no name that tells the stream's connections apart.
        source = {"url": engine.url, "queue": queue.address}
        found = store_and_forward.StoreAndForward(source, given, of_job)
        self.home, self.other = found.places.home, found.places.away
        self.databases = found.remote
        #: What the job adds to the columns of the source where it has no handler.
        self.nothing = "Outgoing" if of_job.local_queue is None else "Failure"
        self.sent = Sent()

    @property
    def columns(self) -> FrameColumns:
        return columns_of(*_COLUMNS, "Queue", self.nothing)

    def restart_databases(self) -> None:
        """What the job knows of databases is gone with its process."""
        self.databases = type(self.databases)(Places(self.home, self.other), self.table.address)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block the databases that are down are tried beside the batches, as a job does."""
        stopping = threading.Event()
        watching = threading.Thread(target=self.databases.watch, args=(stopping,), daemon=True)
        watching.start()
        try:
            yield
        finally:
            stopping.set()
            self.databases.wake()
            watching.join(20)

    def note_down(self) -> None:
        """Batches have let messages wait: the next look tries every database."""
        self.databases.note(Sent(waiting=1))
        self.databases.look()

    def crash(self, *, noticed: bool = True) -> None:
        super().crash(noticed=noticed)
        self.restart_databases()

    def write(self, messages: list[Message]) -> None:
        """Send a batch as the job's sink does, in two tasks."""
        super().write(messages)
        destinations = Destinations(self.home, self.other)
        prepare(destinations, self.columns, (), down=self.databases.down())
        done = Sent()
        half = max(1, -(-len(messages) // 2))
        for part in (messages[:half], messages[half:]):
            if part:
                done += self.task(destinations, self.table.address, part)
        self.sent = done
        self.databases.note(done)

    def task(self, destinations: Destinations, queue: str, rows: Sequence[Message]) -> Sent:
        given = SendTask(
            self.columns,
            destinations,
            self.databases.down(),
            Places(self.home, self.home),
        )
        task: SendTask = pickle.loads(pickle.dumps(given))  # noqa: S301 -- as Spark sends it
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _COLUMNS}
        frame = pa.table(
            {
                **columns,
                "Queue": [queue] * len(rows),
                self.nothing: pa.nulls(len(rows)),
                "Body": pa.array(columns["Body"], pa.binary()),
                "CorrelationId": pa.array(columns["CorrelationId"], pa.string()),
                "ReplyToAddress": pa.array(columns["ReplyToAddress"], pa.string()),
                "Expires": pa.array(columns["Expires"], pa.timestamp("us", tz="UTC")),
            }
        )
        batches = list(task.send(iter(frame.to_batches())))
        return counted([FrameRow(each.to_pylist()[0]) for each in batches])


class FrameRow:
    """A row as Spark hands it to the driver."""

    def __init__(self, values: dict[str, int]) -> None:
        self.__dict__.update(values)
