"""Handlers: Python functions that are called for each message, and what happens when they fail."""

from sqlqueue_spark.errors import (
    HandlerTimeout,
    NoHandler,
    NoReplyAddress,
    WorkerDied,
    WrongAnswer,
    WrongBody,
)
from sqlqueue_spark.handling.answers import Publish, Reply, Send
from sqlqueue_spark.handling.delayed_retries import recoverability
from sqlqueue_spark.handling.each_message import each_message
from sqlqueue_spark.handling.received_message import ReceivedMessage

__all__ = [
    "HandlerTimeout", "NoHandler", "NoReplyAddress", "Publish", "ReceivedMessage", "Reply", "Send",
    "WorkerDied", "WrongAnswer", "WrongBody", "each_message", "recoverability",
]  # fmt: skip
