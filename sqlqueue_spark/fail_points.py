"""The named steps at which a crash must lose nothing and double nothing.

In production :func:`step` does nothing. A test names a function ("module:function") in the environment
variable ``SQLQUEUE_AT_STEP``. Each process that reaches a step then calls this function with the step's name,
and the function may kill the process.
"""

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
WAITING_SENT = "waiting messages put back but not committed"
WAITING_PUT_BACK = "waiting messages put back"
ROWS_LOOKED_AT = "rows looked at"
ROWS_COPIED = "rows copied"

SUBSCRIBERS_FOUND = "subscribers found"
IDS_CHECKED = "ids checked"
ROWS_INSERTED = "rows inserted"
IDS_INSERTED = "ids inserted"
CHUNK_SENT = "chunk sent"
ROWS_STAGED = "rows staged"
STAGE_SEALED = "stage sealed"

FAILED_LOCKED = "failed messages locked"
FAILED_PUT = "failed messages put elsewhere"
FAILED_DELETED = "failed messages deleted"
FAILED_COMMITTED = "failed messages taken out"

LINES_INSERTED = "lines inserted but not committed"
LINES_COMMITTED = "lines sent"


def step(name: str) -> None:
    """Tell a test, if one wants to know, that this step is reached."""
    if named := os.environ.get("SQLQUEUE_AT_STEP"):
        pkgutil.resolve_name(named)(name)
