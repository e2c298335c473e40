"""A pipeline from one queue to others without Spark: :class:`tests.support.driver.Stream` with
our sink at its end.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator

import pyarrow as pa

from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.receive import Slice, Task
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.tables.stages.stage import StageRun
from sqlqueue_spark.tables.stages.stage_mark import Batch, Mark
from tests.support.driver import Message, Read, Stream, watched_connections
from tests.support.engines import Engine
from tests.support.messages import message_id
from tests.support.sending import PLAIN, composed

#: The name of the pipelines, and their stage.
NAME = "Forward"
STAGE = "Forward.Outgoing"
#: A message that does not come from the queue.
MESSAGE_100: Message = {
    "Headers": json.dumps({MESSAGE_ID: message_id(100)}),
    "Body": b"x",
    "RowVersion": 100,
}


class Forward(Stream):
    """Sends what it receives to the queue ``to``, or row by row to several queues in turn.

    Source and sink have the mode of ``options``. A test may change ``options`` between two processes.
    """

    def __init__(self, engine: Engine, queue: Read, /, *to: str, **options: str) -> None:
        super().__init__(engine, queue, commit=True, stream=options.pop("stream", NAME), **options)
        self._to = to or ("billing",)
        self.outbox = "optimistic"
        #: The messages that a batch sends beside the queue's own: state that a watermark lets go,
        #: or another source's rows.
        self.others: dict[int, list[Message]] = {}
        #: The options of the sink that differ from the source's.
        self.sink_says: dict[str, str] = {}
        #: Whether the sink publishes the messages, by the types in their headers,
        #: and sends them nowhere else.
        self.publishes = False
        #: The query's id as Spark tells it; empty where Spark does not tell.
        self.query = self.name
        self._began()

    def _began(self) -> None:
        self._attempt = str(uuid.uuid4())
        self._last: StageRun | None = None

    def crash(self, *, noticed: bool = True) -> None:
        super().crash(noticed=noticed)
        self._began()

    def stop(self) -> None:
        super().stop()
        self._began()

    @property
    def sink_options(self) -> SinkOptions:
        return SinkOptions.parse(
            {
                "url": self.options.url,
                "transactionMode": self.options.transaction_mode,
                "stream": self.options.stream or "",
                "outbox": self.outbox,
                **({"publish": "true"} if self.publishes else {}),
                **self.sink_says,
            }
        )

    def construct_without_rows(self, messages: list[Message]) -> None:
        """Log the offset of a batch that sends these messages although the queue has no rows for it.

        Spark runs that batch for its watermark, or for the rows of another source.
        It asks every source before.
        """
        end = self.receiver.latest(self.end(self.done), self.options.most_rows)
        assert not end.get("rows") or end == self.end(self.done)
        self.others[self.done] = messages
        self.offsets.append(json.dumps(end))

    def read(self, slices: list[Slice]) -> list[Message]:
        return super().read(slices) + self.others.get(self.done, [])

    def tasks(self) -> list[Task]:
        """Spark does not plan a source without rows."""
        return [] if self.end(self.done) == self.end(self.done + 1) else super().tasks()

    def write(self, messages: list[Message]) -> None:
        """Send a batch as the sink does for ``foreachBatch``, in two tasks."""
        super().write(messages)
        to = [self._to[message["RowVersion"] % len(self._to)] for message in messages]
        received = ("Id", "RowVersion") if self.sink_options.error_queue is not None else ()
        rows = pa.table(
            {
                **{name: [message[name] for message in messages] for name in received},
                "Headers": [message["Headers"] for message in messages],
                "Body": pa.array([message["Body"] for message in messages], pa.binary()),
                **({} if self.publishes else {"Destination": to}),
            }
        )
        self.send(rows)

    def send(self, rows: pa.Table) -> None:
        """Send the rows of the present batch in two tasks."""
        given = self.sink_options
        found = Destinations(given)
        to = () if self.publishes else rows["Destination"].unique().to_pylist()
        batch = Batch(query=self.query, number=self.done, attempt=self._attempt)
        run = self._last = prepare(found, PLAIN, to, batch=batch, last=self._last)
        half = max(1, -(-rows.num_rows // 2))
        tasks = rows.combine_chunks().to_batches(max_chunksize=half)
        if given.transaction_mode == ATOMIC:
            seal(given, [stage(found, composed(given, task)) for task in tasks], run)
        else:
            for task in tasks:
                with Sender(found) as sender:
                    sender.send(composed(given, task))


@contextlib.contextmanager
def forwarding(engine: Engine, queue: Read, /, *to: str, **options: str) -> Iterator[Forward]:
    """A pipeline that has not begun yet; it ends with the block,
    and is atomic unless the options say otherwise.
    """
    stream = Forward(engine, queue, *to, **{"transactionMode": ATOMIC, **options})
    with watched_connections(stream.opened):
        try:
            yield stream
        finally:
            stream.stop()


def staged(engine: Engine) -> int:
    """How many messages the stage keeps for a batch, and one more for its mark;
    0 if the mark is idle: then all are void.
    """
    if mark_of(engine).idle:
        return 0
    count = {
        "postgresql": (
            f"SELECT coalesce(sum(CASE task WHEN '' THEN 1 ELSE cardinality(ids) END), 0) FROM \"{STAGE}\""
        ),
        "sqlserver": f"SELECT count(*) FROM [{STAGE}]",
    }
    (number,) = engine.fetch(count[engine.name])[0]
    return int(str(number))


def mark_of(engine: Engine) -> Mark:
    """The stage's mark; an idle mark where it has none."""
    ask = {
        "postgresql": f"""SELECT mark FROM "{STAGE}" WHERE task = ''""",
        "sqlserver": f"SELECT Headers FROM [{STAGE}] WHERE Task = ''",
    }
    rows = engine.fetch(ask[engine.name])
    return Mark.from_json(str(rows[0][0])) if rows else Mark()
