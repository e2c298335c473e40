"""What a task of a sink or a writer does with its rows, and what is logged of what all tasks did."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import stage
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.arrow_batches import plain
from sqlqueue_spark.spark.error_boundary import sentence_first

log = logger(__name__)

_COUNTS = [each.name for each in fields(Sent)]
_SENT = pa.schema([(name, pa.int64()) for name in _COUNTS])
_TEXTS = pa.list_(pa.string())
_STAGED = pa.schema(
    [("task", pa.string()), ("destinations", _TEXTS), ("named", _TEXTS), ("rows", pa.int64()), *_SENT]
)
#: What :meth:`SendTask.send` and :meth:`SendTask.stage` yield, as Spark's ``mapInArrow`` wants it said.
SENT_COLUMNS, STAGED_COLUMNS = map(from_arrow_schema, (_SENT, _STAGED))


@sentence_first
@dataclass(frozen=True)
class SendTask:
    """What a worker does with its part of a batch."""

    columns: FrameColumns
    destinations: Destinations
    #: The databases that are down; None where nothing waits for them.
    down: Collection[Target] | None = None
    #: What reads the addresses that messages of handled rows go to, where these are not the others'
    #: destinations.
    answers: Places | None = None

    def send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send what a part says; yields one row that counts it."""
        yield pa.RecordBatch.from_pylist([asdict(self.sent(batches))], _SENT)

    def sent(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        """Send what a part says, and tell what became of it."""
        builder = builder_of(self.columns, self.destinations.places, self.answers)
        # Else the batch waits.
        down = set(self.down) if self.down is not None and self.columns.tells_rows else None
        with Sender(self.destinations, down) as sender:
            return sender.send(builder.compose(plain(batches)))

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        builder = builder_of(self.columns, self.destinations.places, self.answers)
        staged = stage(self.destinations, builder.compose(plain(batches)))
        yield pa.RecordBatch.from_pylist([{**vars(staged), **asdict(staged.sent)}], _STAGED)


def counted(rows: Iterable[object]) -> Sent:
    """What became of the messages of all tasks, by the rows that these have yielded."""
    return sum((Sent(**{name: getattr(row, name) for name in _COUNTS}) for row in rows), Sent())


def log_untyped(count: int) -> None:
    log.warning("without_type messages=%d: a .NET endpoint cannot handle a message without a type, and moves "
                "it to its error queue; set the option messageType, or give the header %s",
                count, ENCLOSED_MESSAGE_TYPES)  # fmt: skip
