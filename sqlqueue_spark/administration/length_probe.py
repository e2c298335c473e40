"""Checks whether too many messages wait in a queue, or one for too long; cheap enough for every few seconds.

Counting stops at the first row too many. The age of a message comes from its header TimeSent, for the queue
tables have no column that tells when a row was inserted.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlqueue_spark.administration.queue_tables import opened
from sqlqueue_spark.messages.header_json import time_sent
from sqlqueue_spark.messages.message import since
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.row_set import HIGHEST, LOWEST
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: If the first row has no TimeSent, it is looked for in this many rows at the head of the queue.
ASKED = 20


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The result of a probe. ``rows`` or ``oldest_sent`` is None if its limit was not given.

    :ivar beyond: which limits are exceeded: ``rows``, ``age``. If messages wait, and none of the first ones
        tells when it was sent, the age counts as exceeded.
    :ivar oldest_sent: None also if no row waits or none of the first rows tells.
    """

    queue: str
    within: bool
    beyond: tuple[str, ...]
    rows: int | None
    max_rows: int | None
    oldest_sent: datetime | None
    oldest_age: timedelta | None
    max_age: timedelta | None


def probe(
    options: ConnectionOptions, queue: str, *, max_rows: int | None = None, max_age: timedelta | None = None
) -> Probe:
    """Check that at most ``max_rows`` messages wait, and none of them for longer than ``max_age``."""
    with opened(options, queue) as admin, admin.connection.transaction():
        rows = None if max_rows is None else admin.count_up_to(max_rows + 1)
        oldest = None if max_age is None or rows == 0 else _oldest(admin)
    sent, age = oldest or (None, None)
    too_many = max_rows is not None and rows is not None and rows > max_rows
    too_old = max_age is not None and oldest is not None and (age is None or age > max_age)
    return Probe(
        queue=admin.table.name,
        within=not (too_many or too_old),
        beyond=(*(("rows",) if too_many else ()), *(("age",) if too_old else ())),
        rows=rows,
        max_rows=max_rows,
        oldest_sent=sent,
        oldest_age=age,
        max_age=max_age,
    )


def _oldest(admin: QueueAdmin) -> tuple[datetime | None, timedelta | None] | None:
    """Return when the oldest message was sent, and how long ago; None if the queue is empty."""
    if not admin.seeks:
        found = admin.length()
        return (found.oldest_sent, found.oldest_age) if found.rows else None
    if (waiting := admin.waiting(LOWEST)) is None:
        return None
    if (sent := time_sent(waiting.headers)) is None:
        times = (time_sent(each.headers) for each in admin.envelopes(LOWEST, HIGHEST, ASKED))
        sent = next((each for each in times if each is not None), None)
    return sent, since(sent, waiting.now)
