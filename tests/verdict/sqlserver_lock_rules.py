"""What docs/sqlserver-locking.md says of locks, as experiments with two sessions.

An experiment has the id that the documentation names. It shows what this server does. All were written
without a server, so an experiment that breaks off may itself be wrong.
"""

from collections.abc import Mapping

from tests.verdict.places import Rows
from tests.verdict.probes import Facts, NotApplicable, Probes
from tests.verdict.sqlserver import SqlServerPlace, SqlServerSession, name_of

PROBES: Probes[SqlServerPlace] = Probes()
probe = PROBES

#: The hints of ``claim``.
_CLAIMING = "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)"
_UPDATING = "WITH (UPDLOCK, ROWLOCK, FORCESEEK)"
#: The hints of ``read``.
_READING = "WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)"
#: This number of rows of 64 bytes, with their headers five or so a page, takes more locks than any threshold.
_MANY = 7_000
#: As many as a statement of the package takes at most.
_PORTION = 2_400
#: 8,000 bytes that are no (max) column, so that the server has not done with a statement of
#: which one row is fetched.
_FILLER = "REPLICATE('x', 8000) AS Filler"
_LOCKS = """
SELECT l.resource_type, COALESCE(i.name, N''), l.request_mode, COUNT(*)
FROM sys.dm_tran_locks AS l
LEFT JOIN sys.partitions AS p
    ON l.resource_type IN ('KEY', 'RID', 'PAGE') AND p.hobt_id = l.resource_associated_entity_id
LEFT JOIN sys.indexes AS i ON i.object_id = p.object_id AND i.index_id = p.index_id
WHERE l.resource_database_id = DB_ID() AND l.request_session_id = {session} AND l.request_status = 'GRANT'
  AND (l.resource_type IN ('KEY', 'RID', 'PAGE', 'XACT')
       OR (l.resource_type = 'OBJECT' AND l.resource_associated_entity_id = OBJECT_ID(N'{table}')))
GROUP BY l.resource_type, i.name, l.request_mode
"""


@probe(
    "s-passes-u",
    "S passes U, and U passes S; U waits for U. U is kept to the end of the transaction.",
    {
        "S waits for U": False,
        "U waits for S": False,
        "U waits for U": True,
        "U waits after the commit": False,
    },
)
def _s_passes_u(place: SqlServerPlace) -> Facts:
    """One session takes U on row 1 and S, kept, on row 2.

    Another reads row 1, then wants U on row 2 and on row 1.
    """
    table, one, other = _table(place)
    one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
    one.rows(f"SELECT Expires FROM {table} WITH (REPEATABLEREAD, ROWLOCK, FORCESEEK) WHERE RowVersion = 2")
    reads = other.waits(f"SELECT Headers FROM {table} WITH (READCOMMITTEDLOCK, ROWLOCK) WHERE RowVersion = 1")
    beside_s = other.waits(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 2")
    wanted = f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1"
    beside_u = other.waits(wanted)
    other.rollback()
    one.commit()
    after = other.waits(wanted)
    return {
        "S waits for U": reads,
        "U waits for S": beside_s,
        "U waits for U": beside_u,
        "U waits after the commit": after,
    }


@probe(
    "x-passes-nothing",
    "X passes neither S nor U; only READUNCOMMITTED does not look at it.",
    {"S waits": True, "U waits": True, "READUNCOMMITTED waits": False},
)
def _x_passes_nothing(place: SqlServerPlace) -> Facts:
    """One session changes row 1. Another reads it under locks, wants U on it, and reads it uncommitted."""
    table, one, other = _table(place)
    one.rows(f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK) WHERE q.RowVersion = 1")
    read = f"SELECT Headers FROM {table} WITH ({{}}) WHERE RowVersion = 1"
    s = other.waits(read.format("READCOMMITTEDLOCK, ROWLOCK"))
    other.rollback()
    u = other.waits(read.format("UPDLOCK, ROWLOCK"))
    other.rollback()
    return {
        "S waits": s,
        "U waits": u,
        "READUNCOMMITTED waits": other.waits(read.format("READUNCOMMITTED")),
    }


@probe(
    "s-kept-with-large-columns",
    "S is given back when the next row is read, but kept until the statement ends where it "
    "reads a (max) column.",
    {"S of a statement with Headers": "many", "S of one without": "few", "S after the statement": 0},
)
def _s_kept(place: SqlServerPlace) -> Facts:
    """One session reads 4,000 rows in their order, with Headers and without, and fetches one.

    Another counts its S.
    """
    table, one, other = _table(place, 4_000, size=1_000)
    found: dict[str, object] = {}
    for words, column in (("S of a statement with Headers", "Headers"), ("S of one without", _FILLER)):
        one.start(
            f"SELECT RowVersion, Expires, {column} FROM {table} {_READING} "
            "WHERE RowVersion BETWEEN 1 AND 4000 ORDER BY RowVersion OPTION (FAST 1)"
        )
        found[words] = _few(_rows_locked(other, one, table, "S"))
        one.finish()
    return {**found, "S after the statement": _rows_locked(other, one, table, "S")}


@probe(
    "reading-ahead-keeps-s",
    "On a heap a statement that expects many rows reads ahead and keeps their S until it ends; "
    "FAST 1 keeps it from that.",
    {"S without FAST 1": "many", "S with FAST 1": "few"},
)
def _reading_ahead(place: SqlServerPlace) -> Facts:
    """One session reads 4,000 rows by Index_RowVersion, no (max) column, without FAST 1 and with it;
    another counts its S.
    """
    if not place.is_heap:
        raise NotApplicable("a clustered table has no look-up to read ahead for")
    table, one, other = _table(place, 4_000)
    found = {}
    for words, hint in (("S without FAST 1", ""), ("S with FAST 1", " OPTION (FAST 1)")):
        one.start(
            f"SELECT RowVersion, Expires, {_FILLER} FROM {table} "
            "WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (Index_RowVersion)) "
            f"WHERE RowVersion BETWEEN 1 AND 4000 ORDER BY RowVersion{hint}"
        )
        found[words] = _few(_rows_locked(other, one, table, "S"))
        one.finish()
        one.rollback()
    return found


@probe(
    "escalation-between-5000-and-6250",
    "A statement's locks become one table lock, in mode X under UPDLOCK, between 5,000 and 6,250; ROWLOCK "
    "does not prevent it.",
    {"table lock of 2,400 rows": "none", "table lock of 7,000 rows": "X"},
)
def _escalation(place: SqlServerPlace) -> Facts:
    """One session locks 2,400 rows in one statement under UPDLOCK and ROWLOCK,
    and in another transaction 7,000.
    """
    table, one, _ = _table(place, _MANY)
    return {f"table lock of {rows:,} rows": _lock_and_see(one, table, rows) for rows in (_PORTION, _MANY)}


@probe(
    "page-locks-count",
    "Locks on pages count like those on rows: 3,300 rows with a page each are 6,600 locks.",
    {"table lock of 2,400 rows": "none", "table lock of 3,300 rows": "X"},
)
def _page_locks(place: SqlServerPlace) -> Facts:
    """One session locks 2,400 rows of 6 KB in one statement, and in another transaction 3,300."""
    table, one, _ = _table(place, 3_300, size=5_000)
    return {f"table lock of {rows:,} rows": _lock_and_see(one, table, rows) for rows in (_PORTION, 3_300)}


@probe(
    "escalation-counts-one-index",
    "Locks on two indexes of a table do not count together.",
    {"table lock": "none"},
)
def _one_index(place: SqlServerPlace) -> Facts:
    """One session deletes 3,000 small rows with one statement, from the table and from two indexes of it."""
    table, one, _ = _table(place, 3_000)
    one.rows(f"CREATE NONCLUSTERED INDEX Index_Id ON {table} (Id)")
    one.commit()
    one.rows(
        f"DELETE q FROM {table} AS q WITH (ROWLOCK, INDEX (Index_RowVersion)) WHERE q.RowVersion <= 3000"
    )
    return {"table lock": _table_lock(one, table)}


@probe(
    "update-locks-in-portions",
    "Locks of earlier statements of a transaction do not count towards a table lock.",
    {"table lock": "none", "rows locked": 7_200},
)
def _portions(place: SqlServerPlace) -> Facts:
    """One session locks 7,200 rows with three statements of 2,400."""
    table, one, other = _table(place, 3 * _PORTION)
    for start in range(0, 3 * _PORTION, _PORTION):
        one.rows(
            f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion > {start} AND RowVersion <= "
            f"{start + _PORTION} OPTION (FAST 1, MAXDOP 1)"
        )
    return {"table lock": _table_lock(one, table), "rows locked": _rows_locked(other, one, table, "U")}


@probe(
    "escalation-gives-way",
    "An attempt at a table lock does not wait: it fails while a sender has its intent lock on the table.",
    {"waits": False, "table lock": "none"},
)
def _gives_way(place: SqlServerPlace) -> Facts:
    """One session inserts a row and stays in its transaction. Another locks 7,000 rows with one statement."""
    table, one, other = _table(place, _MANY)
    one.rows(f"INSERT INTO {table} (Id, Recoverable, Headers) VALUES (NEWID(), 1, N'{{}}')")
    waits = other.waits(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion < {_MANY}")
    return {"waits": waits, "table lock": _table_lock(other, table)}


@probe(
    "readpast-steps-over-rows",
    "READPAST with UPDLOCK steps over rows under U and X, RCSI on or off.",
    {"rows that the other session gets": [3]},
)
def _readpast(place: SqlServerPlace) -> Facts:
    """One session takes U on row 1 and changes row 2. Another claims what is free."""
    table, one, other = _table(place)
    one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
    one.rows(f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK) WHERE q.RowVersion = 2")
    return {"rows that the other session gets": _claimed(other, table)}


@probe(
    "readpast-waits-for-pages-and-tables",
    "READPAST waits for locked pages and for a locked table.",
    {"waits for a page": True, "waits for the table": True},
)
def _pages_and_tables(place: SqlServerPlace) -> Facts:
    """One session locks the page of row 1, and in another transaction the table. Another claims."""
    table, one, other = _table(place)
    found = {}
    for words, hints in (("waits for a page", "XLOCK, PAGLOCK"), ("waits for the table", "XLOCK, TABLOCK")):
        one.rows(f"SELECT Expires FROM {table} WITH ({hints}) WHERE RowVersion = 1")
        found[words] = other.waits(
            f"SELECT RowVersion, Expires FROM {table} {_CLAIMING} WHERE RowVersion > 0"
        )
        other.rollback()
        one.rollback()
    return found


@probe(
    "readpast-respects-tid-locks",
    "With optimized locking a changed row is locked by its transaction's id, "
    "and READPAST steps over it all the same.",
    {"its own locks": ["XACT"], "rows that the other session gets": [2, 3]},
    {"its own locks": ["KEY", "XACT"], "rows that the other session gets": [2, 3]},
    {"its own locks": ["RID", "XACT"], "rows that the other session gets": [2, 3]},
)
def _tid_locks(place: SqlServerPlace) -> Facts:
    """One session changes row 1.

    Another claims what is free, and looks which locks in mode X the first has.
    """
    if not place.settings.optimized:
        raise NotApplicable("optimized locking is off, or not known here")
    table, one, other = _table(place)
    one.rows(f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK) WHERE q.RowVersion = 1")
    rows = _claimed(other, table)
    kinds = sorted({kind for kind, _, mode, _ in _locks(other, one, table) if mode == "X"})
    return {"its own locks": kinds, "rows that the other session gets": rows}


@probe(
    "skipped-key-stays-on-a-heap",
    "A claim on a heap keeps the index key of a row that it stepped over.",
    {"rows that the other session gets": [2, 3], "index keys that it keeps": 3},
)
def _skipped_key(place: SqlServerPlace) -> Facts:
    """One session changes row 1 itself, without its index key.

    Another claims what is free; its locks on keys are counted.
    """
    if not place.is_heap:
        raise NotApplicable("on a clustered table the key is the row")
    table, one, other = _table(place)
    one.rows(
        f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK, INDEX (0)) WHERE q.RowVersion = 1"
    )
    rows = _claimed(other, table)
    keys = _count(_locks(one, other, table), kind="KEY", index="Index_RowVersion", mode="U")
    return {"rows that the other session gets": rows, "index keys that it keeps": keys}


@probe(
    "readpast-without-locks-under-rcsi",
    "With RCSI on, READPAST needs READCOMMITTEDLOCK: without it it is error 650, or reads versions and "
    "steps over nothing.",
    {"without": "error 650", "with READCOMMITTEDLOCK": [2, 3]},
    {"without": [1, 2, 3], "with READCOMMITTEDLOCK": [2, 3]},
)
def _readpast_rcsi(place: SqlServerPlace) -> Facts:
    """One session changes row 1.

    Another reads with READPAST alone, and with READPAST and READCOMMITTEDLOCK.
    """
    if not place.settings.row_versions:
        raise NotApplicable("RCSI is off")
    table, one, other = _table(place)
    one.rows(f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK) WHERE q.RowVersion = 1")
    read = f"SELECT RowVersion, Expires FROM {table} WITH ({{}}) ORDER BY RowVersion"
    code = other.code(read.format("READPAST"))
    other.rollback()
    without = f"error {code}" if code else other.first(read.format("READPAST"))
    return {
        "without": without,
        "with READCOMMITTEDLOCK": other.first(read.format("READPAST, READCOMMITTEDLOCK")),
    }


@probe(
    "readpast-without-rcsi",
    "With RCSI off, READPAST steps over locked rows with READCOMMITTEDLOCK and without.",
    {"without": [2, 3], "with READCOMMITTEDLOCK": [2, 3]},
)
def _readpast_without_rcsi(place: SqlServerPlace) -> Facts:
    """One session changes row 1.

    Another reads with READPAST alone, and with READPAST and READCOMMITTEDLOCK.
    """
    if place.settings.row_versions:
        raise NotApplicable("RCSI is on")
    table, one, other = _table(place)
    one.rows(f"UPDATE q SET Recoverable = 0 FROM {table} AS q WITH (ROWLOCK) WHERE q.RowVersion = 1")
    read = f"SELECT RowVersion, Expires FROM {table} WITH ({{}}) ORDER BY RowVersion"
    return {
        "without": other.first(read.format("READPAST")),
        "with READCOMMITTEDLOCK": other.first(read.format("READPAST, READCOMMITTEDLOCK")),
    }


@probe(
    "readpast-under-serializable",
    "READPAST under SERIALIZABLE is error 650.",
    {"the error": "650"},
)
def _readpast_serializable(place: SqlServerPlace) -> Facts:
    """A session under SERIALIZABLE reads with READPAST."""
    table, one, _ = _table(place)
    one.rows("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    return {"the error": one.code(f"SELECT Expires FROM {table} WITH (READPAST)")}


@probe(
    "off-row-bodies-cost-no-more",
    "Deleting rows with bodies off the row takes at most two locks a row on one index or heap, "
    "and no table lock.",
    {"more than two a row": False, "table lock": "none"},
)
def _off_row(place: SqlServerPlace) -> Facts:
    """One session deletes 300 rows with bodies of 20 KB. Its locks on each index and heap are counted."""
    table, one, other = _table(place, 300, size=20_000)
    one.rows(f"DELETE q FROM {table} AS q WITH (ROWLOCK, FORCESEEK) WHERE q.RowVersion BETWEEN 1 AND 300")
    counts: dict[str, int] = {}
    for kind, index, _, count in _locks(other, one, table):
        if kind in ("KEY", "RID", "PAGE"):
            counts[index] = counts.get(index, 0) + int(count)
    # Besides two locks a row there are some pages on the way to them.
    return {
        "more than two a row": max(counts.values(), default=0) > 2 * 300 + 50,
        "table lock": _table_lock(one, table),
    }


@probe(
    "truncate-waits-for-writers",
    "TRUNCATE waits for each session that has a lock on the table, like a task that is just staging.",
    {"waits": True, "waits after the commit": False},
)
def _truncate(place: SqlServerPlace) -> Facts:
    """One session inserts a row and stays in its transaction. Another truncates the table."""
    table, one, other = _table(place)
    one.rows(f"INSERT INTO {table} (Id, Recoverable, Headers) VALUES (NEWID(), 1, N'{{}}')")
    waits = other.waits(f"TRUNCATE TABLE {table}")
    other.rollback()
    one.commit()
    return {"waits": waits, "waits after the commit": other.waits(f"TRUNCATE TABLE {table}")}


def _table(
    place: SqlServerPlace, rows: int = 3, *, size: int = 64
) -> tuple[str, SqlServerSession, SqlServerSession]:
    """The quoted name of a new queue table, and two sessions."""
    return name_of(place.queue(rows, size=size)), place.sql_session(), place.sql_session()


def _claimed(session: SqlServerSession, table: str) -> list[int]:
    return session.first(
        f"SELECT RowVersion, Expires FROM {table} {_CLAIMING} WHERE RowVersion > 0 ORDER BY RowVersion "
        "OPTION (FAST 1, MAXDOP 1)"
    )


def _lock_and_see(session: SqlServerSession, table: str, rows: int) -> str:
    session.rows(
        f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion <= {rows} ORDER BY RowVersion OPTION "
        "(FAST 1, MAXDOP 1)"
    )
    found = _table_lock(session, table)
    session.rollback()
    return found


def _locks(watcher: SqlServerSession, watched: SqlServerSession, table: str) -> Rows:
    """Kind, index, mode and number of a session's locks."""
    found = watcher.rows(_LOCKS.format(session=watched.id, table=table.replace("'", "''")))
    watcher.commit()
    return found


def _count(locks: Rows, **wanted: str) -> int:
    """How many locks there are of a ``kind``, on an ``index``, in a ``mode``."""
    names = ("kind", "index", "mode")
    return sum(
        int(row[3]) for row in locks if all(row[names.index(name)] == value for name, value in wanted.items())
    )


def _rows_locked(watcher: SqlServerSession, watched: SqlServerSession, table: str, mode: str) -> int:
    """How many rows a session has locked: on a heap the rows themselves,
    else the keys of the clustered index.
    """
    locks = _locks(watcher, watched, table)
    rids = _count(locks, kind="RID", mode=mode)
    return rids or _count(locks, kind="KEY", index="Index_RowVersion", mode=mode)


def _table_lock(session: SqlServerSession, table: str) -> str:
    """The mode of a session's lock on a whole table; "none" where it has only intent locks there."""
    statement = (
        "SELECT request_mode FROM sys.dm_tran_locks WHERE resource_type = 'OBJECT' AND "
        "request_session_id = @@SPID AND resource_database_id = DB_ID() AND resource_associated_entity_id = "
        f"OBJECT_ID(N'{table}')"
    )
    modes: Mapping[str, None] = dict.fromkeys(
        mode for mode in session.first(statement) if mode in ("S", "U", "X", "SIX")
    )
    return ", ".join(modes) or "none"


def _few(count: int) -> str:
    """A statement that keeps nothing may be at work on some rows while we look."""
    return "few" if count <= 20 else "many"
