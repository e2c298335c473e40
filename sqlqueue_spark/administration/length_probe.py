"""Asks of a queue whether too many messages wait, or one for too long; cheap enough to be asked every few seconds.

It counts no further than to the first row too many. How old the oldest message is, its header TimeSent tells: the time by the clock
of whoever sent it first, which stays when a message is delayed, retried or forwarded. The tables have no column for when a row came.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.messages.message import time_sent
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.queues import Queue

#: Where the first row does not tell when it was sent, so many of the first ones are asked.
ASKED = 20


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probe found.

    :ivar rows: how many rows wait, counted no further than to one more than ``max_rows``; None where that was not asked.
    :ivar oldest_sent: when the oldest message was sent that tells it; None where none of the first rows does, there is none, or
        that was not asked.
    :ivar empty: whether no row waits.
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
        """Whether messages wait, and none of the first ones tells since when."""
        return self.max_age is not None and self.oldest_age is None and not self.empty

    @property
    def within(self) -> bool:
        """Whether all that was asked is as it should be. An age that nobody knows is not."""
        return not (self.too_many or self.too_old or self.age_unknown)


def probe(
    options: ConnectionOptions,
    queue: str,
    *,
    max_rows: int | None = None,
    max_age: timedelta | None = None,
) -> Probe:
    """Look whether at most ``max_rows`` wait, and none of them for longer than ``max_age``."""
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
    """Whether the queue is empty, when the oldest message was sent, and the time by the database's clock."""
    if not admin.seeks:
        found = admin.length()
        return found.rows == 0, time_sent(found.oldest_headers), found.now
    waiting = Queue(admin.connection, admin.table).waiting(LOWEST)
    if waiting is None:
        return True, None, None
    sent = time_sent(waiting.headers)
    if sent is None:
        told = (time_sent(each.headers) for each in admin.envelopes(LOWEST, HIGHEST, ASKED))
        sent = next((each for each in told if each is not None), None)
    return False, sent, waiting.now
