"""What docs/sqlserver-locking.md says of statements, errors and settings, as experiments.

An experiment has the id that the documentation names. It shows what this server does. All were written
without a server, so an experiment that breaks off may itself be wrong.
"""

from tests.support.sqlserver import connected
from tests.support.waiting import eventually
from tests.verdict.probes import Facts, Probes
from tests.verdict.sqlserver import SqlServerPlace, SqlServerSession, name_of

PROBES: Probes[SqlServerPlace] = Probes()
probe = PROBES

_UPDATING = "WITH (UPDLOCK, ROWLOCK, FORCESEEK)"
_FREE = (
    "SELECT RowVersion, Expires FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) "
    "WHERE RowVersion > 0 ORDER BY RowVersion"
)


@probe(
    "savepoint-keeps-locks",
    "With XACT_ABORT OFF an error behind a savepoint leaves the transaction (XACT_STATE 1) and the locks "
    "taken before it.",
    {"the error": "515", "XACT_STATE": 1, "row 1 is held": True},
)
def _savepoint(place: SqlServerPlace) -> Facts:
    """One session locks row 1, sets a savepoint with XACT_ABORT OFF,
    fails to insert NULL as headers, and undoes to it.
    """
    table, one, other = _table(place)
    one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
    one.rows("SET XACT_ABORT OFF; SAVE TRANSACTION attempt")
    error = one.code(f"INSERT INTO {table} (Id, Recoverable, Headers) VALUES (NEWID(), 1, NULL)")
    (state,) = one.first("SELECT CAST(XACT_STATE() AS int)")
    one.rows("ROLLBACK TRANSACTION attempt; SET XACT_ABORT ON")
    return {
        "the error": error,
        "XACT_STATE": state,
        "row 1 is held": 1 not in other.first(_FREE.format(table=table)),
    }


@probe(
    "lock-timeout-behind-savepoint",
    "With XACT_ABORT OFF a lock timeout (1222) leaves the transaction and its locks.",
    {"the error": "1222", "XACT_STATE": 1, "row 1 is held": True},
)
def _lock_timeout(place: SqlServerPlace) -> Facts:
    """One session locks row 1 and, behind a savepoint with XACT_ABORT OFF, waits in vain for row 2,
    which another holds.
    """
    table, one, other = _table(place)
    other.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 2")
    one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
    one.rows("SET XACT_ABORT OFF; SAVE TRANSACTION attempt")
    error = one.code(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 2")
    (state,) = one.first("SELECT CAST(XACT_STATE() AS int)")
    one.rows("ROLLBACK TRANSACTION attempt; SET XACT_ABORT ON")
    return {
        "the error": error,
        "XACT_STATE": state,
        "row 1 is held": 1 not in other.first(_FREE.format(table=table)),
    }


@probe(
    "xact-abort-rolls-back",
    "With XACT_ABORT ON an error ends the whole transaction and frees its locks.",
    {"the error": "515", "undoing an attempt": "6401", "row 1 is held": False},
)
def _xact_abort(place: SqlServerPlace) -> Facts:
    """One session with XACT_ABORT ON locks row 1 and fails to insert NULL as headers.

    Microsoft's driver has begun another transaction when the next statement asks for XACT_STATE.
    """
    table, one, other = _table(place)
    one.rows("SET XACT_ABORT ON")
    one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
    one.rows("SAVE TRANSACTION attempt")
    error = one.code(f"INSERT INTO {table} (Id, Recoverable, Headers) VALUES (NEWID(), 1, NULL)")
    return {
        "the error": error,
        "undoing an attempt": one.code("ROLLBACK TRANSACTION attempt"),
        "row 1 is held": 1 not in other.first(_FREE.format(table=table)),
    }


@probe(
    "cancel-rolls-back",
    "A statement that the driver cancels (an attention) ends the transaction under XACT_ABORT ON, and "
    "leaves it under OFF.",
    {"the error": "HYT00", "undoing an attempt under ON": "6401", "undoing an attempt under OFF": ""},
)
def _cancel(place: SqlServerPlace) -> Facts:
    """One session locks row 1 and runs into the driver's query timeout,
    once with XACT_ABORT ON and once with OFF.
    """
    table, one, _ = _table(place)
    found: dict[str, object] = {}
    for setting in ("ON", "OFF"):
        one.rows(f"SET XACT_ABORT {setting}")
        one.rows(f"SELECT Expires FROM {table} {_UPDATING} WHERE RowVersion = 1")
        one.rows("SAVE TRANSACTION attempt")
        with one.hurried(1):
            found["the error"] = one.code("WAITFOR DELAY '00:01:00'")
        found[f"undoing an attempt under {setting}"] = one.code("ROLLBACK TRANSACTION attempt")
        one.rollback()
    return found


@probe(
    "settings-end-with-the-batch",
    "What a batch with parameters SETs ends with it: XACT_ABORT is ON again, DEADLOCK_PRIORITY 0.",
    {"within": [-5, 0], "after": [0, 1]},
)
def _settings(place: SqlServerPlace) -> Facts:
    """A session with XACT_ABORT ON runs a batch with a parameter that sets both,
    and looks at both in it and after it.
    """
    _, one, _ = _table(place, 0)
    look = (
        "SELECT s.deadlock_priority, CASE WHEN @@OPTIONS & 16384 = 16384 THEN 1 ELSE 0 END "
        "FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID"
    )
    one.rows("SET XACT_ABORT ON")
    (within,) = one.rows(f"SET XACT_ABORT OFF; SET DEADLOCK_PRIORITY LOW; {look} AND 1 = ?", 1)
    (after,) = one.rows(look)
    return {"within": list(within), "after": list(after)}


@probe(
    "forceseek-beside-the-target",
    "FORCESEEK is allowed in FROM, and is error 10724 beside the target of a DELETE.",
    {"beside the target": "10724", "in FROM": ""},
)
def _forceseek(place: SqlServerPlace) -> Facts:
    """A session deletes row 1 with the hint at either place."""
    table, one, _ = _table(place)
    beside = one.code(f"DELETE FROM {table} WITH (FORCESEEK) WHERE RowVersion = 1")
    one.rollback()
    within = one.code(f"DELETE q FROM {table} AS q WITH (FORCESEEK) WHERE q.RowVersion = 1")
    return {"beside the target": beside, "in FROM": within}


@probe(
    "forceseek-without-an-index",
    "FORCESEEK without an index that fits is error 8622.",
    {"the error": "8622"},
)
def _without_index(place: SqlServerPlace) -> Facts:
    """A session claims from a table whose Index_RowVersion is gone."""
    table, one, _ = _table(place)
    one.rows(f"DROP INDEX Index_RowVersion ON {table}")
    one.commit()
    return {"the error": one.code(_FREE.format(table=table))}


@probe(
    "filtered-index-under-forced-parameterization",
    "Under forced parameterization a filtered index serves only a statement with RECOMPILE.",
    {"without RECOMPILE": "8622", "with RECOMPILE": ""},
)
def _filtered(place: SqlServerPlace) -> Facts:
    """A stage's mark is looked for by its filtered index, in a database with forced parameterization."""
    one = place.sql_session()
    one.rows("CREATE TABLE dbo.marks (Task varchar(36) NOT NULL, Headers nvarchar(max) NULL)")
    one.rows("CREATE UNIQUE NONCLUSTERED INDEX Index_Mark ON dbo.marks (Task) WHERE Task = ''")
    one.commit()
    look = "SELECT Headers FROM dbo.marks WITH (UPDLOCK, ROWLOCK, INDEX (Index_Mark)) WHERE Task = ''"
    try:
        _parameterize(place, "FORCED")
        without = one.code(look)
        one.rollback()
        return {"without RECOMPILE": without, "with RECOMPILE": one.code(f"{look} OPTION (RECOMPILE)")}
    finally:
        _parameterize(place, "SIMPLE")
        one.rollback()
        one.rows("DROP TABLE dbo.marks")
        one.commit()


@probe(
    "output-with-trigger",
    "OUTPUT without INTO is error 334 where the table has a trigger for that change.",
    {"the error": "334"},
)
def _output(place: SqlServerPlace) -> Facts:
    """A session takes row 1 from a table with a trigger for deletions."""
    table, one, _ = _table(place)
    _add_trigger(one, table)
    return {"the error": one.code(f"DELETE FROM {table} OUTPUT deleted.RowVersion WHERE RowVersion = 1")}


@probe(
    "rowcount-with-trigger",
    "A trigger's own changes do not count into @@ROWCOUNT of the statement that fires it.",
    {"rows deleted": 2, "@@ROWCOUNT": 2},
)
def _rowcount(place: SqlServerPlace) -> Facts:
    """A session deletes two rows of a table whose trigger inserts five rows elsewhere."""
    table, one, _ = _table(place)
    _add_trigger(one, table)
    (count,) = one.first(f"SET NOCOUNT ON; DELETE FROM {table} WHERE RowVersion <= 2; SELECT @@ROWCOUNT")
    (left,) = one.first(f"SELECT COUNT(*) FROM {table}")
    return {"rows deleted": 3 - int(left), "@@ROWCOUNT": count}


@probe(
    "limits-as-parameters",
    "TOP (…) and FETCH NEXT … ROWS take a parameter.",
    {"TOP": [1, 2], "FETCH NEXT": [1, 2]},
)
def _limits(place: SqlServerPlace) -> Facts:
    """A session asks for the first two rows in both ways."""
    table, one, _ = _table(place)
    return {
        "TOP": one.first(f"SELECT TOP (?) RowVersion FROM {table} ORDER BY RowVersion", 2),
        "FETCH NEXT": one.first(
            f"SELECT RowVersion FROM {table} ORDER BY RowVersion OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY", 2
        ),
    }


@probe(
    "collation-of-ids",
    "The collation of MessageId decides which ids are the same: often 'a' and 'A'; "
    "blanks at the end never count.",
    {"'a' and 'A'": "2627", "'a' and 'a '": "2627"},
    {"'a' and 'A'": "", "'a' and 'a '": "2627"},
)
def _collation(place: SqlServerPlace) -> Facts:
    """A session adds two ids to a key of nvarchar(200), once 'a' and 'A', once 'a' and 'a '."""
    one = place.sql_session()
    one.rows("CREATE TABLE dbo.ids (MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED)")
    one.commit()
    found = {}
    for other in ("A", "a "):
        one.rows("INSERT INTO dbo.ids VALUES (?)", "a")
        found[f"'a' and '{other}'"] = one.code("INSERT INTO dbo.ids VALUES (?)", other)
        one.rollback()
    one.rows("DROP TABLE dbo.ids")
    one.commit()
    return found


@probe(
    "collations-conflict",
    "Two columns of different collations cannot be compared (468); with an explicit collation they can.",
    {"compared": "468", "with an explicit collation": ""},
)
def _collations(place: SqlServerPlace) -> Facts:
    """A session compares two columns of a table, whose collations differ, in both ways."""
    one = place.sql_session()
    one.rows(
        "CREATE TABLE dbo.tongues (a nvarchar(9) COLLATE Latin1_General_CI_AS, b nvarchar(9) COLLATE "
        "Latin1_General_BIN2)"
    )
    compare = "SELECT a FROM dbo.tongues WHERE a = b"
    found = {
        "compared": one.code(compare),
        "with an explicit collation": one.code(f"{compare} COLLATE Latin1_General_BIN2"),
    }
    one.rollback()
    return found


@probe(
    "numbers-before-commit",
    "A row gets its number when it is inserted, not when it is committed; "
    "so a lower number can appear later.",
    {"seen while the first sender is open": [2], "seen after its commit": [1, 2]},
)
def _numbers(place: SqlServerPlace) -> Facts:
    """One session inserts a row and stays in its transaction. Another inserts a second row and commits."""
    table, one, other = _table(place, 0)
    add = f"INSERT INTO {table} (Id, Recoverable, Headers) VALUES (NEWID(), 1, N'{{}}')"
    look = f"SELECT RowVersion, Expires FROM {table} WITH (READPAST, READCOMMITTEDLOCK) ORDER BY RowVersion"
    one.rows(add)
    other.rows(add)
    other.commit()
    before = other.first(look)
    other.commit()
    one.commit()
    return {"seen while the first sender is open": before, "seen after its commit": other.first(look)}


@probe(
    "application-lock-of-a-session",
    "An application lock of the session outlives a rollback, and ends with the connection.",
    {"held after a rollback": True, "held after the session's end": False},
)
def _application_lock(place: SqlServerPlace) -> Facts:
    """One session takes an application lock, rolls back and ends. Another asks for it after each."""
    _, one, other = _table(place, 0)
    one.rows("EXEC sys.sp_getapplock @Resource = N'verdict', @LockMode = 'Exclusive', @LockOwner = 'Session'")
    one.rollback()
    free = "SELECT APPLOCK_TEST(N'public', N'verdict', N'Exclusive', N'Session')"
    held = other.first(free) == [0]
    one.close()
    got = eventually(lambda: other.first(free) == [1])
    return {"held after a rollback": held, "held after the session's end": not got}


@probe(
    "duplicate-waits-then-fails",
    "An INSERT waits for another's row of the same key, and fails with 2627 once that is committed.",
    {"waits": True, "after the commit": "2627"},
)
def _duplicate(place: SqlServerPlace) -> Facts:
    """One session adds an id. Another adds it too, before and after the commit."""
    _, one, other = _table(place, 0)
    one.rows("CREATE TABLE dbo.twins (MessageId nvarchar(200) NOT NULL PRIMARY KEY NONCLUSTERED)")
    one.commit()
    add = "INSERT INTO dbo.twins VALUES (N'a')"
    one.rows(add)
    waits = other.waits(add)
    other.rollback()
    one.commit()
    code = other.code(add)
    other.rollback()
    one.rows("DROP TABLE dbo.twins")
    one.commit()
    return {"waits": waits, "after the commit": code}


def _table(place: SqlServerPlace, rows: int = 3) -> tuple[str, SqlServerSession, SqlServerSession]:
    """The quoted name of a new queue table, and two sessions."""
    return name_of(place.queue(rows)), place.sql_session(), place.sql_session()


def _add_trigger(session: SqlServerSession, table: str) -> None:
    """A trigger for deletions that inserts five rows into a table of its own."""
    session.rows("DROP TABLE IF EXISTS dbo.audited; CREATE TABLE dbo.audited (n int NOT NULL)")
    session.rows(
        f"CREATE TRIGGER dbo.audit ON {table} AFTER DELETE AS "
        "INSERT INTO dbo.audited (n) VALUES (1), (2), (3), (4), (5)"
    )
    # It is gone with the experiment's transaction.


def _parameterize(place: SqlServerPlace, how: str) -> None:
    with connected(place.url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE CURRENT SET PARAMETERIZATION {how}")
