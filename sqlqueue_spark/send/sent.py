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

    def __add__(self, other: Self) -> Self:
        sent, repeated, failed = map(sum, zip(astuple(self), astuple(other), strict=True))
        return type(self)(sent=sent, repeated=repeated, failed=failed)
