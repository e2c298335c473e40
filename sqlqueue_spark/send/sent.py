"""What became of the messages of a chunk, a task or a batch."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Sent:
    """How many messages went out, how many had been sent before, and how many went to the error queue.

    Of a frame of outcomes ``repeated`` counts the received messages that had their outcome before.
    """

    sent: int = 0
    repeated: int = 0
    failed: int = 0

    @property
    def failures(self) -> str:
        """What a line says of messages that failed, with a blank before; empty where none did."""
        return f" failed={self.failed}" if self.failed else ""

    def __add__(self, other: Self) -> Self:
        sent, repeated, failed = map(sum, zip(astuple(self), astuple(other), strict=True))
        return type(self)(sent=sent, repeated=repeated, failed=failed)
