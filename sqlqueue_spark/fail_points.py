"""The named steps at which a crash must lose nothing and double nothing.

In production :func:`step` does nothing. A test names a function in ``SQLQUEUE_AT_STEP`` ("module:function"),
which is then called with every step's name, in whichever process the step is reached, and dies as it pleases.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import import_module

ROWS_LOCKED = "rows locked"
OFFSET_LOGGED = "offset logged"
HALF_READ = "batch half read"
COMMIT_LOGGED = "commit logged"
DELETED = "deleted but not committed"
COMMITTED = "committed"
ROWS_TAKEN = "rows taken but not yielded"
LEFT_DELETED = "what was left deleted but not committed"
LEFT_COMMITTED = "what was left committed"

IDS_CHECKED = "ids checked"
ROWS_INSERTED = "rows inserted"
IDS_INSERTED = "ids inserted"
CHUNK_SENT = "chunk sent"
ROWS_STAGED = "rows staged"
STAGE_SEALED = "stage sealed"

#: In the order in which a micro-batch passes them.
STEPS = (ROWS_LOCKED, OFFSET_LOGGED, HALF_READ, COMMIT_LOGGED, DELETED, COMMITTED)
#: When a lost claim, or a dead process's, is settled.
LEFT_STEPS = (LEFT_DELETED, LEFT_COMMITTED)
#: And in transaction mode ``none``.
TAKING_STEPS = (OFFSET_LOGGED, ROWS_TAKEN)


def step(name: str) -> None:
    """Mark a named step."""
    if named := os.environ.get("SQLQUEUE_AT_STEP"):
        _load(named)(name)


@functools.cache
def _load(named: str) -> Callable[[str], None]:
    module, _, function = named.partition(":")
    loaded: Callable[[str], None] = getattr(import_module(module), function)
    return loaded
