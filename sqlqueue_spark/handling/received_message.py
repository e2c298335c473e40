"""A message as a handler sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlqueue_spark.messages.message import CONTROL_MESSAGE, ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from sqlqueue_spark.messages.outgoing import REPLY_TO_ADDRESS


class WrongBody(ValueError):
    """The body of a message is no JSON. To try again does not help."""


@dataclass(frozen=True, kw_only=True)
class ReceivedMessage:
    """A received message.

    :param queue: the address of the queue in which it was received.
    :param row_id: the Id of its row, new with each hop, and ``row_version`` its place in the queue.
    :param headers: its headers, by name.
    """

    queue: str
    row_id: str
    row_version: int
    headers: Mapping[str, str]
    body: bytes
    #: The column of the oldest senders.
    reply_to_column: str | None = None

    @property
    def id(self) -> str:
        """The id that follows the message through its retries and hops: the header, else the row's Id."""
        return self.headers.get(MESSAGE_ID) or self.row_id

    @property
    def types(self) -> list[str]:
        """The full names of its types, without their assemblies, the most derived one first."""
        enclosed = self.headers.get(ENCLOSED_MESSAGE_TYPES, "").split(";")
        return [name for each in enclosed if (name := each.partition(",")[0].strip())]

    @property
    def type(self) -> str | None:
        """The full name of its first type; None where it has none, as control messages."""
        return next(iter(self.types), None)

    @property
    def reply_to(self) -> str | None:
        """The address to which a reply goes; None where it has none."""
        return self.headers.get(REPLY_TO_ADDRESS) or self.reply_to_column or None

    @property
    def is_control(self) -> bool:
        """Whether endpoints exchange it among themselves; it has no type, and usually no body."""
        return self.headers.get(CONTROL_MESSAGE, "").lower() == "true"

    def json(self) -> object:
        """The body as JSON (UTF-8, a byte-order mark is no matter).

        :raises WrongBody: it is none.
        """
        try:
            return json.loads(self.body.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise WrongBody(f"The body of the message {self.id} is no JSON: {error}.") from error
