"""The statements as programs: which locks each takes, in which order, and until when.

The name of a function is the name of the statement in ``sqlqueue_spark/engines/sqlserver/sql``. What a
program takes for granted about the text stands in ``ASSUMED``, and a test compares it with the files. Rules
with numbers are those of docs/sqlserver-locking.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.lock_model.locks import Mode, Resource, Until
from tests.lock_model.operations import Change, Count, Drop, Free, Look, Part, Take, Versions, Work
from tests.lock_model.table import TABLE, Shape

SEEK = ("FORCESEEK",)
CLAIMING = ("UPDLOCK", "READPAST", "ROWLOCK")
READING = ("READPAST", "READCOMMITTEDLOCK", "ROWLOCK")
SMALL = ("MAX_GRANT_PERCENT = 10",)


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What a program takes for granted about the text of its statement."""

    hints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    #: SET DEADLOCK_PRIORITY LOW.
    loses_deadlocks: bool = False


#: The statements that have a program here.
ASSUMED = {
    "claim": Assumed(hints=(*CLAIMING, *SEEK), options=("FAST 1", "MAXDOP 1")),
    "claim_runs": Assumed(hints=(*CLAIMING, *SEEK), options=("FAST 1", "MAXDOP 1", *SMALL)),
    "count_range": Assumed(hints=("READUNCOMMITTED", *SEEK)),
    "read": Assumed(hints=(*READING, *SEEK), options=("FAST 1",)),
    "read_versions": Assumed(hints=SEEK, options=("FAST 1",)),
    "peek": Assumed(hints=(*READING, *SEEK), options=("FAST 1",)),
    "lock": Assumed(hints=("UPDLOCK", "ROWLOCK", *SEEK), options=("FAST 1", "MAXDOP 1", *SMALL)),
    "delete": Assumed(hints=("ROWLOCK", *SEEK), options=("MAXDOP 1", *SMALL)),
    "delete_range": Assumed(hints=("ROWLOCK", *SEEK), options=("MAXDOP 1", *SMALL)),
    "purge_expired": Assumed(hints=(*CLAIMING, *SEEK), options=("MAXDOP 1",), loses_deadlocks=True),
    "insert": Assumed(options=SMALL),
    "remedy_space": Assumed(),
    "remedy_headers": Assumed(),
}
#: The other statements on a queue table, and which program stands for each.
STANDS_FOR = {
    "take": "one_row: the same locks in the same order, for more rows, and its commit follows at once",
    "purge": "one_row, likewise",
    "look": "count_all: S is freed row by row, because no (max) column is returned",
    "ids": "count_all, likewise",
    "headers_of": "read, of rows that the claim has locked",
    "lock_in_transit": "claim, of a few rows, and its commit follows at once",
    "oldest": "count_all: S is freed key by key",
    "read_unexpired": "read",
    "waiting": "peek of one row",
    "length": "no locks (READUNCOMMITTED)",
    "count_up_to": "no locks (READUNCOMMITTED)",
    "peek_headers": "peek",
    "peek_by_scan": "no program: without Index_RowVersion nothing is received, and no actor has rows to hold",
    "highest": "no locks (READUNCOMMITTED)",
    "create": "no other session sees the table before the commit",
    "create_heap": "create",
    "remedy_index_row_version": "alter, with S in place of Sch-M: only readers pass it",
    "remedy_index_expires": "alter, likewise",
    "remedy_lock_escalation": "alter",
    "grants_receiver": "alter, if at all",
    "grants_sender": "alter, likewise",
    "stage_move": "insert, of more rows",
    "delayed_send": "insert, likewise",
    "stage_try": "insert, and rolled back",
}

TO_THE_END = Until.TRANSACTION


def claim(shape: Shape, rows: Iterable[int], most: int) -> Part:
    """U on the next rows, the index key first and the row second;
    both are stepped over where they are locked (rules 8, 9).

    On a heap the key of a row that was stepped over stays locked. No documentation says that it is freed.
    """
    return _locked(shape, rows, most, past=True)


def lock(shape: Shape, rows: Iterable[int]) -> Part:
    """As :func:`claim`, but waits for rows that others hold."""
    return _locked(shape, rows, None, past=False)


def _locked(shape: Shape, rows: Iterable[int], most: int | None, *, past: bool) -> Part:
    yield Take(TABLE, "IX")
    got: list[int] = []
    for row in rows:
        if len(got) == most:
            break
        if (yield from _got(shape, shape.way(row), "U", past=past)):
            got.append(row)
    return tuple(got)


def _got(shape: Shape, way: Sequence[Resource], mode: Mode, *, past: bool, keeps: Until = TO_THE_END) -> Part:
    """Lock a row by way of its index. Returns whether it is there, and locked."""
    for number, entry in enumerate(way):
        if (yield Take(entry, mode, keeps, past=past)) != "granted":
            if shape.frees_keys and number:
                yield Drop(way[0])
            return False
    return (yield Look(way[-1].row))


def delete(shape: Shape, rows: Iterable[int]) -> Part:
    """X on rows that this transaction has locked, then on their keys; it waits (no ``READPAST``)."""
    yield Take(TABLE, "IX")
    for row in rows:
        yield from _deleted(shape, row)


def _deleted(shape: Shape, row: int) -> Part:
    for entry in shape.entries(row):
        yield Take(entry, "X")
        yield Change(entry, "removes")


def one_row(shape: Shape, rows: Iterable[int], *, scans: bool = False) -> Part:
    """A .NET endpoint's receive: DELETE TOP (1) WITH (UPDLOCK, READPAST, ROWLOCK) in RowVersion order.
    Returns the row.

    :param scans: the plan scans a heap and sorts: it locks every row that it can, and comes to index keys
        only when it deletes.
    """
    yield Take(TABLE, "IX")
    got = None
    for row in rows:
        way = [shape.row(row)] if scans else shape.way(row)
        if (yield from _got(shape, way, "U", past=True)) and got is None:
            got = row
        if got is not None and not scans:
            break
    if got is not None:
        yield from _deleted(shape, got)
    return got


def read(shape: Shape, rows: Iterable[int], *, keeps: Until, client: str) -> Part:
    """S on the rows of a range, one after the other, while the client fetches them. Returns the rows.

    :param keeps: until when S is kept: to the end of the row,
        or of the statement where a (max) column is read.
    :param client: what the client does between two rows.
    """
    got = yield from _shared(shape, rows, keeps, client)
    yield Free(Until.STATEMENT)
    return got


def read_window(shape: Shape, rows: Iterable[int]) -> Part:
    """As :func:`read`, but all rows are fetched before the client does anything else."""
    got = yield from _shared(shape, rows, Until.STATEMENT, None)
    yield Free(Until.STATEMENT)
    return got


def _shared(shape: Shape, rows: Iterable[int], keeps: Until, client: str | None) -> Part:
    yield Take(TABLE, "IS", Until.STATEMENT)
    got: list[int] = []
    for row in rows:
        if (yield from _got(shape, shape.way(row), "S", past=True, keeps=keeps)):
            got.append(row)
            if client is not None:
                yield Work(client)
        if keeps == Until.ROW:
            yield Free(Until.ROW)
    return tuple(got)


def read_versions() -> Part:
    """A plain read under RCSI: the row versions of its beginning; it asks the table for nothing but Sch-S."""
    yield Take(TABLE, "Sch-S", Until.STATEMENT)
    got = yield Versions()
    yield Free(Until.STATEMENT)
    return got


def read_waiting(shape: Shape, rows: Iterable[int]) -> Part:
    """A plain read without RCSI and without ``READPAST``: it waits for X.

    No statement of ours is like that.
    """
    yield Take(TABLE, "IS", Until.STATEMENT)
    got: list[int] = []
    for row in rows:
        yield Take(shape.row(row), "S", Until.ROW)
        if (yield Look(row)):
            got.append(row)
        yield Free(Until.ROW)
    yield Free(Until.STATEMENT)
    return tuple(got)


def count_all(shape: Shape, rows: Iterable[int]) -> Part:
    """A .NET endpoint's look at how much there is: COUNT with READPAST, READCOMMITTEDLOCK,
    along Index_RowVersion.
    """
    yield Take(TABLE, "IS", Until.STATEMENT)
    for row in rows:
        yield Take(shape.key(row), "S", Until.ROW, past=True)
        yield Free(Until.ROW)
    yield Free(Until.STATEMENT)


def count_dirty(shape: Shape, rows: Iterable[int], *, by_index: bool) -> Part:
    """A count of a range under READUNCOMMITTED: Sch-S and nothing else. Returns the number.

    :param by_index: along Index_RowVersion; else along the rows of the heap.
    """
    yield Take(TABLE, "Sch-S", Until.STATEMENT)
    entries = tuple(shape.key(row) if by_index else shape.row(row) for row in rows)
    number = yield Count(entries)
    yield Free(Until.STATEMENT)
    return number


def insert(shape: Shape, row: int) -> Part:
    """X on a new row, then on its keys."""
    yield Take(TABLE, "IX")
    for entry in shape.entries(row):
        yield Take(entry, "X", adds=True)
        yield Change(entry, "adds")


def purge_expired(shape: Shape, rows: Sequence[int], *, at_once: bool = False) -> Part:
    """U on the key in Index_Expires, then on the row; X on both, and on a heap on its key in
    Index_RowVersion. Returns the rows.

    :param rows: the expired rows in the order of Index_Expires.
    :param at_once: the plan finds all rows before it deletes one; else it deletes each as it finds it.
    """
    yield Take(TABLE, "IX")
    found: list[int] = []
    for row in rows:
        if (yield from _got(shape, [shape.expires(row), shape.row(row)], "U", past=True)):
            found.append(row)
            if not at_once:
                yield from _deleted(shape, row)
    if at_once:
        for row in found:
            yield from _deleted(shape, row)
    return tuple(found)


def alter(mode: Mode = "Sch-M") -> Part:
    """A rebuild, or an ALTER TABLE: Sch-M on the table."""
    yield Take(TABLE, mode)
