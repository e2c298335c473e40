"""The named steps at which a crash must lose nothing and double nothing.

In production :func:`step` does nothing. A test names a function ("module:function") in the environment
variable ``SQLQUEUE_AT_STEP``. Each process that reaches a step then calls this function with the step's name,
and the function may kill the process.
"""

from __future__ import annotations

import os
import pkgutil

ROWS_LOCKED = "rows locked"
OFFSET_LOGGED = "offset logged"
HALF_READ = "batch half read"
COMMIT_LOGGED = "commit logged"
DELETED = "deleted but not committed"
COMMITTED = "committed"
ROWS_TAKEN = "rows taken but not yielded"
LEFT_DELETED = "what was left deleted but not committed"
LEFT_COMMITTED = "what was left committed"

TRANSIT_LOCKED = "messages in transit locked"
TRANSIT_INSERTED = "messages in transit inserted"
TRANSIT_DELETED = "messages in transit deleted"
TRANSIT_MOVED = "messages in transit moved"

DUE_LOCKED = "due messages locked"
DUE_SENT = "due messages sent"
DUE_MOVED = "due messages moved"
PARKED_SENT = "parked messages put back but not committed"
PARKED_RELEASED = "parked messages put back"
ROWS_LOOKED_AT = "rows looked at"
ROWS_COPIED = "rows copied"

SUBSCRIBERS_FOUND = "subscribers found"
IDS_CHECKED = "ids checked"
ROWS_INSERTED = "rows inserted"
IDS_INSERTED = "ids inserted"
CHUNK_SENT = "chunk sent"
ROWS_STAGED = "rows staged"
STAGE_SEALED = "stage sealed"

RETRY_LOCKED = "failed messages locked"
RETRY_INSERTED = "failed messages inserted"
RETRY_DELETED = "failed messages deleted"
RETRY_COMMITTED = "failed messages put back"
DISCARD_LOCKED = "rows to discard locked"
DISCARD_WRITTEN = "rows to discard written"
DISCARD_DELETED = "rows to discard deleted"
DISCARD_COMMITTED = "rows discarded"

LINES_INSERTED = "lines inserted but not committed"
LINES_COMMITTED = "lines sent"

#: The steps of a micro-batch, in the order in which it passes them.
STEPS = (ROWS_LOCKED, OFFSET_LOGGED, HALF_READ, COMMIT_LOGGED, DELETED, COMMITTED)
#: The steps of settling a claim that was lost, or whose process has died.
LEFT_STEPS = (LEFT_DELETED, LEFT_COMMITTED)
#: The steps of moving on messages in transit.
TRANSIT_STEPS = (TRANSIT_LOCKED, TRANSIT_INSERTED, TRANSIT_DELETED, TRANSIT_MOVED)
#: The steps of moving delayed messages that are due.
DUE_STEPS = (DUE_LOCKED, DUE_SENT, DUE_MOVED)
#: The steps of putting messages back that waited for a database.
RELEASE_STEPS = (PARKED_SENT, PARKED_RELEASED)
#: The steps of putting a batch of failed messages back, and of discarding one.
RETRY_STEPS = (RETRY_LOCKED, RETRY_INSERTED, RETRY_DELETED, RETRY_COMMITTED)
DISCARD_STEPS = (DISCARD_LOCKED, DISCARD_WRITTEN, DISCARD_DELETED, DISCARD_COMMITTED)
#: The steps of sending a portion of a file.
LINES_STEPS = (LINES_INSERTED, LINES_COMMITTED)
#: The steps of a micro-batch in transaction mode ``none``.
TAKING_STEPS = (OFFSET_LOGGED, ROWS_TAKEN)

#: The steps of copying rows into an archive.
COPYING_STEPS = (ROWS_LOOKED_AT, ROWS_COPIED)


def step(name: str) -> None:
    """Tell a test, if one wants to know, that this step is reached."""
    if named := os.environ.get("SQLQUEUE_AT_STEP"):
        pkgutil.resolve_name(named)(name)
