"""Checks whether too many messages wait in a queue, or one for too long; cheap enough for every few seconds.

Counting stops at the first row too many. The age of a message comes from its header TimeSent, which is the
time by the clock of its first sender. It stays when a message is delayed, retried or forwarded. The queue
tables have no column that tells when a row was inserted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.messages.message import time_sent
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: If the first row has no TimeSent, it is looked for in this many rows at the head of the queue.
ASKED = 20


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of a probe. ``rows`` or ``oldest_sent`` is None if its limit was not given.

    :ivar rows: how many rows wait; counting stops at ``max_rows`` + 1.
    :ivar oldest_sent: when the oldest message was sent; None also if no row waits or none of the first rows
        tells.
    """

    queue: str
    max_rows: int | None
    rows: int | None
    max_age: timedelta | None
    oldest_sent: datetime | None
    oldest_age: timedelta | None
    empty: bool

    @property
    def too_many(self) -> bool:
        return self.max_rows is not None and self.rows is not None and self.rows > self.max_rows

    @property
    def too_old(self) -> bool:
        return self.max_age is not None and self.oldest_age is not None and self.oldest_age > self.max_age

    @property
    def age_unknown(self) -> bool:
        """Whether messages wait, but none of the first ones tells when it was sent."""
        return self.max_age is not None and self.oldest_age is None and not self.empty

    @property
    def within(self) -> bool:
        """Whether the queue is within both limits. An unknown age is not within."""
        return not (self.too_many or self.too_old or self.age_unknown)


def probe(
    options: ConnectionOptions,
    queue: str,
    *,
    max_rows: int | None = None,
    max_age: timedelta | None = None,
) -> Probe:
    """Check that at most ``max_rows`` messages wait, and none of them for longer than ``max_age``."""
    with opened(options, queue) as admin, admin.connection.transaction():
        rows = None if max_rows is None else admin.count_up_to(max_rows + 1)
        sent = now = None
        empty = rows == 0
        if max_age is not None and not empty:
            empty, sent, now = _oldest(admin)
    return Probe(
        queue=admin.table.name,
        max_rows=max_rows,
        rows=rows,
        max_age=max_age,
        oldest_sent=sent,
        oldest_age=None if sent is None or now is None else max(timedelta(0), now - sent),
        empty=empty,
    )


def _oldest(admin: QueueAdmin) -> tuple[bool, datetime | None, datetime | None]:
    """Return whether the queue is empty, when its oldest message was sent, and the database's time."""
    if not admin.seeks:
        found = admin.length()
        return found.rows == 0, time_sent(found.oldest_headers), found.now
    waiting = admin.waiting(LOWEST)
    if waiting is None:
        return True, None, None
    sent = time_sent(waiting.headers)
    if sent is None:
        times = (time_sent(each.headers) for each in admin.envelopes(LOWEST, HIGHEST, ASKED))
        sent = next((each for each in times if each is not None), None)
    return False, sent, waiting.now
