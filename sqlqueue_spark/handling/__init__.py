"""Handlers: Python functions that are called for each message, what they answer, and what becomes of those that fail."""

from sqlqueue_spark.handling.answers import Publish, Reply, Send, WrongAnswer
from sqlqueue_spark.handling.calls import HandlerTimeout, NoHandler, NoReplyAddress, WorkerDied
from sqlqueue_spark.handling.each_message import each_message
from sqlqueue_spark.handling.received_message import ReceivedMessage, WrongBody
from sqlqueue_spark.handling.recoverability import recoverability

__all__ = [
    "HandlerTimeout",
    "NoHandler",
    "NoReplyAddress",
    "Publish",
    "ReceivedMessage",
    "Reply",
    "Send",
    "WorkerDied",
    "WrongAnswer",
    "WrongBody",
    "each_message",
    "recoverability",
]  # fmt: skip
