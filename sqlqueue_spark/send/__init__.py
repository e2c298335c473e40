"""Sends the rows of a frame as messages to destination queue tables, each message id once."""

from sqlqueue_spark.send.compose.chunk import Chunk, Composed
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.message_builder import MessageBuilder
from sqlqueue_spark.send.compose.outcome_builder import OutcomeBuilder, builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations, check_one_database
from sqlqueue_spark.send.deliver.outbox_lookups import try_outbox
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import Staged, seal, stage
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases, database_came_back

__all__ = [
    "Chunk",
    "Composed",
    "Destinations",
    "FrameColumns",
    "MessageBuilder",
    "OutcomeBuilder",
    "RemoteDatabases",
    "Sender",
    "Sent",
    "Staged",
    "builder_of",
    "check_one_database",
    "database_came_back",
    "prepare",
    "seal",
    "stage",
    "try_outbox",
]  # fmt: skip
