"""A message as a handler sees it, made of a row of the source."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sqlqueue_spark.errors import WrongBody
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import CONTROL_MESSAGE, ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, type_names
from sqlqueue_spark.messages.outgoing import REPLY_TO_ADDRESS
from sqlqueue_spark.messages.transit import UNKNOWN, goes_elsewhere

#: The columns of which a message is made, in small letters: a frame may spell them as it likes.
COLUMNS = ("queue", "id", "rowversion", "headers", "body", "replytoaddress")


# not frozen: one is made for each message, and a frozen one takes three times as long
@dataclass(kw_only=True, slots=True)
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
        return list(type_names(self.headers.get(ENCLOSED_MESSAGE_TYPES, "")))

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


def received(batch: pa.RecordBatch, naming: Naming = UNKNOWN) -> Iterator[ReceivedMessage | None]:
    """The messages of a batch; None for one that no function is called for."""
    own = {name.lower(): name for name in batch.schema.names}
    columns = [
        batch.column(own[name]).to_pylist() if name in own else itertools.repeat(None, batch.num_rows)
        for name in COLUMNS
    ]
    for queue, row_id, row_version, text, body, reply_to in zip(*columns, strict=True):
        headers = parse_headers(text)
        if headers is None or goes_elsewhere(headers, queue, naming):
            yield None
        else:
            yield ReceivedMessage(
                queue=queue,
                row_id=row_id,
                row_version=row_version,
                headers=headers,
                body=body.encode() if isinstance(body, str) else body or b"",
                reply_to_column=reply_to,
            )
