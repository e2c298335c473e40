"""What a program can do, one thing at a time. Other programs may act between two of them.

A program is a generator: it yields an operation and is sent its result. It must not look at anything else,
because the explorer plays it again and again. ``LockTimeout`` and ``Deadlocked`` are thrown into it; its
transaction has ended then.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal

from tests.lock_model.locks import Mode, Resource, Until

#: Returns how the actor ends, in some words.
Program = Generator["Operation", Any, str]
#: Part of a program, like a statement.
Part = Generator["Operation", Any, Any]
Start = Callable[[], Program]


class LockTimeout(Exception):
    """Error 1222. The sessions of this package have XACT_ABORT ON, so it ends the transaction."""


class Deadlocked(Exception):
    """Error 1205: the server has chosen this transaction, and rolled it back."""


@dataclass(frozen=True)
class Take:
    """Take a lock. Results: ``granted``; ``skipped`` under READPAST;
    ``absent`` where there is no such entry.
    """

    resource: Resource
    mode: Mode
    until: Until = Until.TRANSACTION
    past: bool = False
    #: The entry is being made, so it need not be there yet.
    adds: bool = False


@dataclass(frozen=True)
class Free:
    """Free the locks of a row that was read, or all locks of a statement. Result: None."""

    until: Until


@dataclass(frozen=True)
class Drop:
    """Free a lock on one entry at once, as part of stepping over its row. Result: None."""

    entry: Resource


@dataclass(frozen=True)
class Look:
    """Look at a row under its locks. Result: whether it is there."""

    row: int


@dataclass(frozen=True)
class Count:
    """Count entries under READUNCOMMITTED, so without locks.

    Result: how many there are, committed or not.
    """

    entries: tuple[Resource, ...]


@dataclass(frozen=True)
class Versions:
    """Read row versions (RCSI). Result: the rows that are committed."""


@dataclass(frozen=True)
class Change:
    """Add or remove an entry under its X lock. Result: None."""

    entry: Resource
    what: Literal["adds", "removes"]


@dataclass(frozen=True)
class End:
    """Commit or roll back, and free all locks. Result: None."""

    how: Literal["commit", "rollback"]


@dataclass(frozen=True)
class Work:
    """What a client does on its own. It takes as long as it likes. Result: None."""

    what: str


@dataclass(frozen=True)
class Tell:
    """Tell the other clients something. Result: None."""

    what: str
    value: object = True


@dataclass(frozen=True)
class Hear:
    """Wait for what another client tells; the server does not see it.

    Result: the value, or None after ``patience``.
    """

    what: str
    whom: str
    patience: int | None = None


@dataclass(frozen=True)
class Processed:
    """Note that rows were processed, or had expired: from now on they may go. Result: None."""

    rows: tuple[int, ...]


@dataclass(frozen=True)
class Either:
    """Something happens or does not. Result: True or False."""

    what: str


@dataclass(frozen=True)
class Ended:
    """The program has ended."""

    outcome: str


Operation = (
    Take
    | Free
    | Drop
    | Look
    | Count
    | Versions
    | Change
    | End
    | Work
    | Tell
    | Hear
    | Processed
    | Either
    | Ended
)
#: What happens together with what was done before it, because no other program can tell the difference.
#: ``Free`` is among them: it only frees S, IS and Sch-S. Others wait for these locks, and no program steps
#: over them. ``Drop`` is so by what it means.
Silent = Free | Drop | Look | Change | Tell | Processed
