"""A pipeline from one queue to others without Spark: :class:`tests.support.driver.Stream`, and the sink at its end."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.send import Destinations, Sender, prepare, seal, stage
from tests.support.driver import Message, Stream, watched_connections
from tests.support.engines import Engine, QueueTable
from tests.support.sending import composed

#: What the pipelines are called, and the table on which their messages wait.
NAME = "Forward"
STAGE = "Forward.Outgoing"


class Forward(Stream):
    """Sends what it receives to the queue ``to``, or row by row to several in turn.

    The mode is that of ``options``, which may be changed between two processes; sink and source have the same.
    """

    def __init__(self, engine: Engine, queue: QueueTable, *to: str, **options: str) -> None:
        super().__init__(engine, queue, commit=True, stream=options.pop("stream", NAME), **options)
        self._to = to or ("billing",)
        self.outbox = "optimistic"

    @property
    def sink_options(self) -> SinkOptions:
        return SinkOptions.parse(
            {
                "url": self.options.url,
                "transactionMode": self.options.transaction_mode,
                "stream": self.options.stream or "",
                "outbox": self.outbox,
            }
        )

    def write(self, messages: list[Message]) -> None:
        """As the sink does it for ``foreachBatch``, in two tasks."""
        super().write(messages)
        given = self.sink_options
        found = Destinations(given)
        to = [self._to[message["RowVersion"] % len(self._to)] for message in messages]
        run = prepare(given, found, dict.fromkeys(to))
        if not messages:
            return
        rows = pa.table(
            {
                "Headers": [message["Headers"] for message in messages],
                "Body": pa.array([message["Body"] for message in messages], pa.binary()),
                "Destination": to,
            }
        )
        half = -(-len(messages) // 2)
        tasks = rows.to_batches(max_chunksize=half)
        if given.transaction_mode == ATOMIC:
            seal(given, [stage(given, found, composed(given, task)) for task in tasks], run)
        else:
            for task in tasks:
                with Sender(given, found) as sender:
                    sender.send(composed(given, task))


@contextlib.contextmanager
def forwarding(engine: Engine, queue: QueueTable, /, *to: str, **options: str) -> Iterator[Forward]:
    """A pipeline that has not begun yet, and ends with the block; atomic unless the options say otherwise."""
    stream = Forward(engine, queue, *to, **{"transactionMode": ATOMIC, **options})
    with watched_connections(stream.opened):
        try:
            yield stream
        finally:
            stream.stop()


def staged(engine: Engine) -> int:
    """How many messages the stage has, and its mark counts too."""
    count = {
        "postgresql": f"""SELECT coalesce(sum(CASE task WHEN '' THEN 1 ELSE cardinality(ids) END), 0) FROM "{STAGE}\"""",
        "sqlserver": f"SELECT count(*) FROM [{STAGE}]",
    }
    (number,) = engine.fetch(count[engine.name])[0]
    return int(str(number))
