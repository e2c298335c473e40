"""Those who use a queue table, each as a program of statements and of work on its own
side of the connection.
"""

from dataclasses import dataclass
from typing import Literal

from tests.lock_model import statements
from tests.lock_model.locks import Until
from tests.lock_model.operations import (
    Deadlocked,
    Either,
    End,
    Hear,
    LockTimeout,
    Part,
    Processed,
    Program,
    Tell,
    Work,
)
from tests.lock_model.state import Actor
from tests.lock_model.table import Shape

#: Work of clients. Each takes as long as its client likes.
THE_BATCH = "works on the batch"
ITS_HANDLER = "its handler works"
A_ROW = "takes a row from the network"
WHAT_WAS_READ = "works on what was read"
THE_REST = "does the rest of its transaction"
#: All rows that a test has, present or still to come.
ALL = (1, 2, 3)


#: Which rows are counted: all that the claim has looked at, by Index_RowVersion; those between its first and
#: its last row; or all, but along the rows of the heap.
Exactly = Literal["", "looked at", "between", "along the heap"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """How a stream claims and settles.

    ``most``: rows it claims. ``after``: only rows above this one. ``workers``: a worker reads the batch, see
    :func:`worker`; else the batch is work of the stream's own. ``exactly``: rows are counted without locks;
    where there are more than the claim got, it is rolled back and exactly its rows are claimed.
    ``deletes_at_claim``: the rows are deleted when claimed, in the open transaction. ``loses_connection``:
    the connection may break before settling. ``waits``: how long the driver waits for the workers; None is
    for ever.
    """

    most: int = 2
    after: int = 0
    workers: bool = False
    exactly: Exactly = ""
    deletes_at_claim: bool = False
    loses_connection: bool = False
    waits: int | None = None


def stream(shape: Shape, how: Claim = Claim(), *, patience: int | None = None) -> Actor:
    """Our stream: ``claim``; the batch; ``delete``, commit.

    After a lost connection ``lock`` comes before ``delete``.
    """

    def program() -> Program:
        try:
            got = yield from _claimed(shape, how)
        except (LockTimeout, Deadlocked):
            yield Tell("claimed", ())
            return "no claim"
        yield Tell("claimed", got)
        if not got:
            yield End("rollback")
            return "nothing there"
        if how.workers:
            if (yield Hear("read", "worker", how.waits)) != "all":
                yield End("rollback")
                return "batch failed"
        else:
            yield Work(THE_BATCH)
        yield Processed(got)
        outcome: str = yield from _settled(shape, how, got)
        return outcome

    return Actor(name="stream", start=program, patience=patience)


def _claimed(shape: Shape, how: Claim) -> Part:
    rows = tuple(row for row in ALL if row > how.after)
    while True:
        got = yield from statements.claim(shape, rows, how.most)
        if not got or not how.exactly:
            break
        looked_at = rows if len(got) < how.most else tuple(row for row in rows if row <= got[-1])
        if how.exactly == "between":
            looked_at = tuple(row for row in looked_at if got[0] <= row <= got[-1])
        by_index = how.exactly != "along the heap"
        if (yield from statements.count_dirty(shape, looked_at, by_index=by_index)) <= len(got):
            break
        yield End("rollback")
        rows = got
    if how.deletes_at_claim:
        yield from statements.delete(shape, got)
    return got


def _settled(shape: Shape, how: Claim, got: tuple[int, ...]) -> Part:
    lost = False
    if how.loses_connection and (yield Either("loses its connection")):
        yield End("rollback")
        lost = True
    for _ in range(3):
        try:
            if lost:
                got = yield from statements.lock(shape, got)
            if lost or not how.deletes_at_claim:
                yield from statements.delete(shape, got)
            yield End("commit")
            return "settled"
        except (LockTimeout, Deadlocked):
            lost = True
    return "gives up"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a worker or a peek reads.

    ``keeps``: until when one statement over the whole slice keeps its S locks. ``window``: how many
    rows a statement reads, fetched whole before the next step; 0 is one statement. ``versions``: RCSI,
    without hints.
    ``waits_for_rows``: without READPAST. ``tries``: how often a read is begun, if it ends with a lock
    timeout.
    """

    keeps: Until = Until.STATEMENT
    window: int = 0
    versions: bool = False
    waits_for_rows: bool = False
    tries: int = 1


#: A slice as one statement, whose S locks on (max) columns stay to its end.
ONE_STATEMENT = Reading()
#: The same, if every S lock were freed at the end of its row.
ROW_BY_ROW = Reading(keeps=Until.ROW)
WINDOWS = Reading(window=2)
VERSIONS = Reading(versions=True)


def worker(shape: Shape, how: Reading = ONE_STATEMENT, *, patience: int | None = None) -> Actor:
    """Our worker: hears of the claim, reads its range, counts, and tells the driver."""

    def program() -> Program:
        claimed = yield Hear("claimed", "stream")
        if not claimed:
            return "nothing to do"
        for _ in range(how.tries):
            try:
                got = yield from _read(shape, how, range(claimed[0], claimed[-1] + 1))
                break
            except LockTimeout:
                continue
            except Deadlocked:
                got = ()
                break
        else:
            got = ()
        told = "all" if set(claimed) <= set(got) else "not all"
        yield Tell("read", told)
        return f"read {told}"

    return Actor(name="worker", start=program, patience=patience)


def peek(shape: Shape, how: Reading = ONE_STATEMENT, *, patience: int | None = None) -> Actor:
    """A session that looks at the first rows (``peek``)."""

    def program() -> Program:
        yield from _read(shape, how, ALL)
        return "done"

    return Actor(name="peek", start=program, patience=patience)


def _read(shape: Shape, how: Reading, rows: range | tuple[int, ...]) -> Part:
    if how.versions:
        got = yield from statements.read_versions()
        yield Work(WHAT_WAS_READ)
        return got
    if how.waits_for_rows:
        return (yield from statements.read_waiting(shape, rows))
    if not how.window:
        return (yield from statements.read(shape, rows, keeps=how.keeps, client=A_ROW))
    all_of_it: list[int] = []
    for first in range(0, len(rows), how.window):
        all_of_it += yield from statements.read_window(shape, rows[first : first + how.window])
        yield Work(WHAT_WAS_READ)
    return tuple(all_of_it)


def receiver(shape: Shape, *, scans: bool = False, fails: bool = False) -> Actor:
    """A .NET endpoint: takes one row, handles it, commits.

    :param scans: its plan scans the heap, see :func:`statements.one_row`.
    :param fails: its handler may fail once; then it gives the row back and takes one again.
    """

    def program() -> Program:
        row = yield from statements.one_row(shape, ALL, scans=scans)
        if row is not None and fails and (yield Either("its handler fails")):
            yield End("rollback")
            row = yield from statements.one_row(shape, ALL, scans=scans)
        if row is None:
            yield End("rollback")
            return "nothing there"
        yield Work(ITS_HANDLER)
        yield Processed((row,))
        yield End("commit")
        return "received"

    return Actor(name="scanner" if scans else "receiver", start=program)


def counter(shape: Shape) -> Actor:
    """A .NET endpoint that looks how much there is to receive."""

    def program() -> Program:
        yield from statements.count_all(shape, ALL)
        return "counted"

    return Actor(name="counter", start=program)


def sender(shape: Shape, row: int = 3, *, busy: bool = False) -> Actor:
    """A session that sends a message (``insert``).

    :param busy: its transaction holds other work, too.
    """

    def program() -> Program:
        yield from statements.insert(shape, row)
        if busy:
            yield Work(THE_REST)
        yield End("commit")
        return "sent"

    return Actor(name="sender", start=program)


def purge(
    shape: Shape, rows: tuple[int, ...] = (1, 2), *, at_once: bool = False, patience: int | None = None
) -> Actor:
    """A purge of expired rows (``purge_expired``)."""

    def program() -> Program:
        gone = yield from statements.purge_expired(shape, rows, at_once=at_once)
        yield Processed(gone)
        yield End("commit")
        return "purged"

    return Actor(name="purge", start=program, patience=patience, priority=-5)


def altering(*, patience: int | None = None) -> Actor:
    """An operator who rebuilds or alters the table."""

    def program() -> Program:
        yield from statements.alter()
        yield End("commit")
        return "altered"

    return Actor(name="operator", start=program, patience=patience, alters=True)
