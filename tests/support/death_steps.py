"""The steps at which tests kill a process, by what it is doing, in the order in which it passes them."""

from sqlqueue_spark.fail_points import (
    COMMIT_LOGGED,
    COMMITTED,
    DELETED,
    DUE_LOCKED,
    DUE_MOVED,
    DUE_SENT,
    FAILED_COMMITTED,
    FAILED_DELETED,
    FAILED_LOCKED,
    FAILED_PUT,
    HALF_READ,
    LEFT_COMMITTED,
    LEFT_DELETED,
    LINES_COMMITTED,
    LINES_INSERTED,
    OFFSET_LOGGED,
    ROWS_COPIED,
    ROWS_LOCKED,
    ROWS_LOOKED_AT,
    ROWS_TAKEN,
    TRANSIT_DELETED,
    TRANSIT_INSERTED,
    TRANSIT_LOCKED,
    TRANSIT_MOVED,
    WAITING_PUT_BACK,
    WAITING_SENT,
)

#: The steps of a micro-batch, in the order in which it passes them.
STEPS = (ROWS_LOCKED, OFFSET_LOGGED, HALF_READ, COMMIT_LOGGED, DELETED, COMMITTED)
#: The steps of settling a claim that was lost, or whose process has died.
LEFT_STEPS = (LEFT_DELETED, LEFT_COMMITTED)
#: The steps of moving on messages in transit.
TRANSIT_STEPS = (TRANSIT_LOCKED, TRANSIT_INSERTED, TRANSIT_DELETED, TRANSIT_MOVED)
#: The steps of moving delayed messages that are due.
DUE_STEPS = (DUE_LOCKED, DUE_SENT, DUE_MOVED)
#: The steps of putting messages back that waited for a database.
PUT_BACK_STEPS = (WAITING_SENT, WAITING_PUT_BACK)
#: The steps of taking a batch of failed messages out of an error queue.
FAILED_STEPS = (FAILED_LOCKED, FAILED_PUT, FAILED_DELETED, FAILED_COMMITTED)
#: The steps of sending a portion of a file.
LINES_STEPS = (LINES_INSERTED, LINES_COMMITTED)
#: The steps of a micro-batch in transaction mode ``none``.
TAKING_STEPS = (OFFSET_LOGGED, ROWS_TAKEN)
#: The steps of copying rows into an archive.
COPYING_STEPS = (ROWS_LOOKED_AT, ROWS_COPIED)
