"""Sending: rows of a frame become messages in destination queue tables, each message id once."""

from sqlqueue_spark.send.columns import Columns
from sqlqueue_spark.send.composing import Composed, Composer
from sqlqueue_spark.send.destinations import Destinations
from sqlqueue_spark.send.preparing import prepare
from sqlqueue_spark.send.sending import Sender, Sent
from sqlqueue_spark.send.staging import Staged, seal, stage

__all__ = [
    "Columns", "Composed", "Composer", "Destinations", "Sender", "Sent", "Staged", "prepare", "seal", "stage",
]  # fmt: skip
