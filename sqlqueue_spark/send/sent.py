"""What became of the messages of a chunk, a task or a batch."""

import logging
from dataclasses import asdict, dataclass, field, fields
from typing import Self

from sqlqueue_spark.plain_text import logger

log = logger(__name__)

_NOT_OTHERS = ("sent", "repeated", "received", "cubes", "untyped")
CUBES = 1 << 48


@dataclass(frozen=True, kw_only=True)
class Sent:
    """How many messages went out, had been sent before, were handled, have failed, and are tried again later.

    Of a frame of outcomes ``repeated`` counts the received messages that had their outcome before.
    """

    sent: int = 0
    repeated: int = 0
    #: Received messages that were handled, in a frame of outcomes.
    handled: int = 0
    failed: int = 0
    retried: int = 0
    #: Received messages that wait for a database that is down.
    waiting: int = 0
    #: Those of the messages that went out which wait until they are due.
    delayed: int = 0
    #: Events to which no queue has subscribed.
    unsubscribed: int = 0
    #: Copies in the audit queue, and messages of which ServiceControl was told that they were handled.
    audited: int = 0
    acknowledged: int = 0
    #: Received messages that the frame has, whatever became of them, also in an earlier try.
    received: int = field(default=0, compare=False)
    #: The sum of the cubes of their RowVersions, modulo :data:`CUBES`: it tells a row that stands there twice
    #: from one that is missing.
    cubes: int = field(default=0, compare=False)
    #: Messages that lack a type and need one: a line of their own tells of them.
    untyped: int = field(default=0, compare=False)

    @property
    def others(self) -> str:
        """What a line says of messages that neither went out nor were repeated, each with a blank before."""
        told = {name: number for name, number in asdict(self).items() if name not in _NOT_OTHERS}
        return "".join(f" {name}={number}" for name, number in told.items() if number)

    def log(self, batch: str, done: str = "sent") -> None:
        """Log one line a batch, as a warning where messages were repeated, or have failed.

        After a failure repeats are right. Else they are a sign that ids are not as unique as they should be.
        The one line of a batch job, which has no number, is always a warning, so that it is seen.
        """
        level = logging.WARNING if self.repeated or self.failed or not batch else logging.INFO
        log.log(level, "%s %s%s=%d repeated=%d%s", done, batch, done, self.sent, self.repeated, self.others)

    def __add__(self, other: Self) -> Self:
        names = [each.name for each in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})
