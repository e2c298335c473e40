"""A job without Spark whose sink reaches several databases."""

import contextlib
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.transit import goes_elsewhere
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.pipeline.declared.pipeline_options import agreed, places_of
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.spark.send_task import SendTask
from tests.support.driver import BATCH_WRITTEN, Crash, Message, Stream, at_step, crash, watched_connections
from tests.support.engines import Engine, QueueTable
from tests.support.outcomes import COLUMNS, Json, frame

_PASSED_ON = FrameColumns(
    names={name: name for name in ("Queue", "RowVersion", "Id", "Headers", "Body", "Destination")}
)
#: What becomes of a received message: what it sends, or ``{"Failure": …}``.
Handler = Callable[[Message], Sequence[Json] | Json]


class Crossing(Stream):
    """The job. It passes on what it receives, or handles it.

    :param sink: options of its sink, as a user gives them.
    :param to: where each message is passed on to, by its number; or ``handler``, which is called for each.
    """

    def __init__(
        self,
        engine: Engine,
        queue: QueueTable,
        sink: dict[str, str],
        *,
        to: Callable[[int], Sequence[str]] | Sequence[str] = (),
        handler: Handler | None = None,
        **source: str,
    ) -> None:
        super().__init__(engine, queue, commit=True, **source)
        self.to = to
        self.handler = handler
        self.sent = Sent()
        self.begin(sink)

    def begin(self, sink: dict[str, str]) -> None:
        """Begin a new process with these options of the sink."""
        given = {"endpoint": "Cross", "errorQueue": "error", **sink}
        named = "queues" if isinstance(self.table.address, list) else "queue"
        self.places = places_of(
            *agreed({"url": self.engine.url, named: self.table.address}, {"url": self.engine.url, **given})
        )
        self.databases = RemoteDatabases(self.places, self.table.address)

    @property
    def given(self) -> SinkOptions:
        return self.places.home

    def crash(self, *, noticed: bool = True) -> None:
        super().crash(noticed=noticed)
        self.databases = RemoteDatabases(self.places, self.table.address)

    def write(self, messages: list[Message]) -> None:
        """Send a batch as a job does, in two tasks; the copies of a row are in one."""
        super().write(messages)
        columns, rows = self.columns_and_rows(messages)
        destinations = Destinations(self.places.home, self.places.away)
        down = self.databases.down()
        prepare(destinations, replace(columns, outgoing={}), (), down=down)
        given = SendTask(columns, destinations, down)
        task: SendTask = pickle.loads(pickle.dumps(given))  # noqa: S301 -- as Spark sends it
        versions = rows["RowVersion"].to_pylist()
        half = versions.index(versions[len(versions) // 2]) if versions else 0
        parts = [each for each in (rows.slice(0, half), rows.slice(half)) if each.num_rows]
        self.sent = sum((task.sent(iter([each])) for each in parts), Sent())
        self.databases.note(self.sent)

    def columns_and_rows(self, messages: list[Message]) -> tuple[FrameColumns, pa.RecordBatch]:
        received = [
            {
                "Queue": self.table.address,
                **{name: each[name] for name in ("RowVersion", "Id", "Headers", "Body")},
            }
            for each in messages
        ]
        if self.handler is None:
            to = self.to
            rows = [
                {**each, "Destination": one}
                for each in received
                for one in (to(number_of(each)) if callable(to) else to)
            ]
            return _PASSED_ON, pa.RecordBatch.from_pylist(rows, _PASSED)
        return COLUMNS, frame({**each, **self._outcome(each)} for each in received)

    def _outcome(self, message: Message) -> Json:
        """As ``each_message`` has it: no function is called for a message that only passes by."""
        assert self.handler is not None
        if goes_elsewhere(parse_headers(message["Headers"]) or {}, self.table.address, self.places.naming):
            return {"Outgoing": None, "Failure": None}
        made = self.handler(message)
        return (
            {"Outgoing": None, **made}
            if isinstance(made, dict)
            else {"Outgoing": list(made), "Failure": None}
        )


_PASSED = pa.schema(
    [
        ("Queue", pa.string()),
        ("RowVersion", pa.int64()),
        ("Id", pa.string()),
        ("Headers", pa.string()),
        ("Body", pa.binary()),
        ("Destination", pa.string()),
    ]
)


def number_of(message: Message) -> int:
    """The number of a message, by its body."""
    return int(json.loads(message["Body"])["order"])


@contextlib.contextmanager
def crossing(engine: Engine, queue: QueueTable, sink: dict[str, str], **more: object) -> Iterator[Crossing]:
    """A job that has not begun yet; it ends with the block."""
    job = Crossing(engine, queue, sink, **more)  # type: ignore[arg-type] # as Crossing has them
    with watched_connections(job.opened):
        try:
            yield job
        finally:
            job.stop()


def drained(job: Crossing) -> Sent:
    """Run batches until there is nothing new; returns what became of all messages."""
    total = Sent()
    while job.trigger():
        total += job.sent
    return total


def drained_twice(job: Crossing) -> Sent:
    """As :func:`drained`, but the process dies behind each batch, before Spark logs it: so each runs twice.

    :returns: what became of all messages when their batch ran again.
    """
    total = Sent()
    while True:
        with at_step(BATCH_WRITTEN, crash) as crashes, contextlib.suppress(Crash):
            job.trigger()
        if not crashes:
            return total
        job.crash()
        assert job.trigger()
        total += job.sent
