"""Sends the rows of a frame as messages to destination queue tables, each message id once."""

from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.databases_down import DatabaseWait, RemoteDatabases
from sqlqueue_spark.send.destinations import Destinations, check_one_database
from sqlqueue_spark.send.frame_columns import FrameColumns
from sqlqueue_spark.send.message_builder import MessageBuilder
from sqlqueue_spark.send.outbox_lookups import check_outbox
from sqlqueue_spark.send.outcome_builder import OutcomeBuilder
from sqlqueue_spark.send.parking_sender import ParkingSender
from sqlqueue_spark.send.preflight import prepare
from sqlqueue_spark.send.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.stage_writer import Staged, seal, stage
from sqlqueue_spark.send.stored_builder import StoredBuilder
from sqlqueue_spark.send.stored_sender import StoredSender

__all__ = [
    "Composed",
    "DatabaseWait",
    "Destinations",
    "FrameColumns",
    "MessageBuilder",
    "OutcomeBuilder",
    "ParkingSender",
    "RemoteDatabases",
    "Sender",
    "Sent",
    "Staged",
    "StoredBuilder",
    "StoredSender",
    "check_one_database",
    "check_outbox",
    "prepare",
    "seal",
    "stage",
]  # fmt: skip
