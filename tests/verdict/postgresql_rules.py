"""What the package takes for granted of PostgreSQL, as experiments with two sessions."""

from tests.support.waiting import eventually
from tests.verdict.places import Place, Session
from tests.verdict.probes import Facts, Probes

PROBES: Probes[Place] = Probes()
probe = PROBES


@probe(
    "skip-locked-steps-over-rows",
    "SKIP LOCKED steps over rows that others have locked or deleted, and waits for nobody.",
    {"rows that the other session gets": [1, 4]},
)
def _skip_locked(place: Place) -> Facts:
    """One session locks row 2 and deletes row 3. Another selects all rows FOR UPDATE SKIP LOCKED."""
    table, one, other = _table(place, 4)
    one.rows(f"SELECT seq FROM {table} WHERE seq = 2 FOR UPDATE")
    one.rows(f"DELETE FROM {table} WHERE seq = 3")
    return {
        "rows that the other session gets": other.first(
            f"SELECT seq FROM {table} ORDER BY seq FOR UPDATE SKIP LOCKED"
        )
    }


@probe(
    "for-update-is-kept",
    "A row that was locked FOR UPDATE stays locked until the transaction ends.",
    {"held after the next statements": True, "held after the commit": False},
)
def _kept(place: Place) -> Facts:
    """One session locks row 1 and runs two more statements.

    Another wants the row before and after the commit.
    """
    table, one, other = _table(place)
    wanted = f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE"
    one.rows(wanted)
    one.rows(f"SELECT seq FROM {table} WHERE seq = 2 FOR UPDATE")
    one.rows("SELECT 1")
    held = other.waits(wanted)
    other.rollback()
    one.commit()
    return {"held after the next statements": held, "held after the commit": other.waits(wanted)}


@probe(
    "open-deletes-stay-readable",
    "Plain reads wait for nobody, and still see what an open transaction has deleted; "
    "so a claim deletes at once.",
    {"read while the delete is open": [1, 2, 3], "read after the commit": [2, 3]},
)
def _open_deletes(place: Place) -> Facts:
    """One session deletes row 1. Another reads all rows before and after the commit."""
    table, one, other = _table(place)
    all_rows = f"SELECT seq FROM {table} ORDER BY seq"
    one.rows(f"DELETE FROM {table} WHERE seq = 1")
    before = other.first(all_rows)
    one.commit()
    return {"read while the delete is open": before, "read after the commit": other.first(all_rows)}


@probe(
    "truncate-waits-for-readers",
    "TRUNCATE waits for every transaction that has read the table, "
    "because that keeps ACCESS SHARE to its end.",
    {"the reader keeps": ["AccessShareLock"], "TRUNCATE waits": True, "after the reader's commit": False},
)
def _truncate(place: Place) -> Facts:
    """One session reads the table and stays in its transaction. Another truncates it."""
    table, one, other = _table(place)
    one.rows(f"SELECT count(*) FROM {table}")
    kept = one.first(
        f"SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = '{table}'::regclass"
    )
    waits = other.waits(f"TRUNCATE {table}")
    other.rollback()
    one.commit()
    return {
        "the reader keeps": kept,
        "TRUNCATE waits": waits,
        "after the reader's commit": other.waits(f"TRUNCATE {table}"),
    }


@probe(
    "savepoint-keeps-locks",
    "Undoing to a savepoint after an error keeps the row locks that were taken before it, "
    "and frees those behind it.",
    {"the error": "22012", "rows that the other session gets": [2, 3]},
)
def _savepoint(place: Place) -> Facts:
    """One session locks row 1, sets a savepoint, locks row 2, meets an error and undoes to the savepoint."""
    table, one, other = _table(place)
    one.rows(f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE")
    one.rows("SAVEPOINT attempt")
    one.rows(f"SELECT seq FROM {table} WHERE seq = 2 FOR UPDATE")
    error = one.code("SELECT 1 / 0")
    one.rows("ROLLBACK TO SAVEPOINT attempt")
    rows = other.first(f"SELECT seq FROM {table} ORDER BY seq FOR UPDATE SKIP LOCKED")
    return {"the error": error, "rows that the other session gets": rows}


@probe(
    "cancel-behind-savepoint-keeps-locks",
    "A statement that is cut off behind a savepoint (57014) leaves the transaction to be undone to it, "
    "and its locks.",
    {"the error": "57014", "rows that the other session gets": [2, 3]},
)
def _cancelled(place: Place) -> Facts:
    """One session locks row 1, sets a savepoint, runs into statement_timeout and undoes to the savepoint."""
    table, one, other = _table(place)
    one.rows(f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE")
    one.rows("SAVEPOINT attempt")
    one.rows("SET LOCAL statement_timeout = 20")
    error = one.code("SELECT pg_sleep(60)")
    one.rows("ROLLBACK TO SAVEPOINT attempt")
    rows = other.first(f"SELECT seq FROM {table} ORDER BY seq FOR UPDATE SKIP LOCKED")
    return {"the error": error, "rows that the other session gets": rows}


@probe(
    "lock-timeout-is-55P03",
    "A statement that waits longer than lock_timeout fails with 55P03; set for a transaction, "
    "the timeout ends with it.",
    {"the error": "55P03", "in the transaction": "7ms", "after it": "100ms"},
)
def _lock_timeout(place: Place) -> Facts:
    """One session locks row 1.

    Another sets lock_timeout for its transaction, wants the row, and rolls back.
    """
    table, one, other = _table(place)
    wanted = f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE"
    one.rows(wanted)
    other.rows("SELECT set_config('lock_timeout', '7', true)")
    (within,) = other.first("SHOW lock_timeout")
    error = other.code(wanted)
    other.rollback()
    (after,) = other.first("SHOW lock_timeout")
    return {"the error": error, "in the transaction": within, "after it": after}


@probe(
    "advisory-lock-of-a-session",
    "pg_advisory_lock belongs to the session: it outlives a rollback and ends with the connection.",
    {"held after a rollback": True, "held after the session's end": False},
)
def _advisory(place: Place) -> Facts:
    """One session takes an advisory lock, rolls back and ends. Another tries for the lock after each."""
    _, one, other = _table(place, 0)
    one.rows("SELECT pg_advisory_lock(7)")
    one.rollback()
    held = other.first("SELECT NOT pg_try_advisory_lock(7)")[0]
    one.close()
    got = eventually(lambda: other.first("SELECT pg_try_advisory_lock(7)")[0])
    return {"held after a rollback": held, "held after the session's end": not got}


@probe(
    "advisory-lock-of-a-transaction",
    "pg_advisory_xact_lock ends with the transaction.",
    {"held in the transaction": True, "held after it": False},
)
def _advisory_transaction(place: Place) -> Facts:
    """One session takes an advisory lock of its transaction and commits.

    Another tries for it before and after.
    """
    _, one, other = _table(place, 0)
    one.rows("SELECT pg_advisory_xact_lock(8)")
    held = not other.first("SELECT pg_try_advisory_xact_lock(8)")[0]
    other.rollback()
    one.commit()
    return {
        "held in the transaction": held,
        "held after it": not other.first("SELECT pg_try_advisory_xact_lock(8)")[0],
    }


@probe(
    "on-conflict-waits",
    "ON CONFLICT DO NOTHING waits for an id that another transaction has added, "
    "and then knows whether it is there.",
    {"waits": True, "added after a rollback": 1, "added after a commit": 0},
)
def _on_conflict(place: Place) -> Facts:
    """One session adds an id.

    Another adds it with ON CONFLICT DO NOTHING: beside it, after its rollback, its commit.
    """
    table, one, other = _table(place, 0)
    add = f"INSERT INTO {table} (id, headers) VALUES ('{{}}', '{{{{}}}}')"
    new = f"{add} ON CONFLICT (id) DO NOTHING RETURNING 1"
    first, second = (f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2))
    one.rows(add.format(first))
    waits = other.waits(new.format(first))
    other.rollback()
    one.rollback()
    after_rollback = len(other.rows(new.format(first)))
    other.commit()
    one.rows(add.format(second))
    one.commit()
    after_commit = len(other.rows(new.format(second)))
    return {"waits": waits, "added after a rollback": after_rollback, "added after a commit": after_commit}


@probe(
    "duplicate-waits-then-fails",
    "An INSERT waits for another's row of the same id, and fails with 23505 once that is committed.",
    {"waits": True, "after the commit": "23505"},
)
def _duplicate(place: Place) -> Facts:
    """One session adds an id. Another adds it too, before and after the commit."""
    table, one, other = _table(place, 0)
    add = f"INSERT INTO {table} (id, headers) VALUES ('00000000-0000-4000-8000-000000000001', '{{}}')"
    one.rows(add)
    waits = other.waits(add)
    other.rollback()
    one.commit()
    return {"waits": waits, "after the commit": other.code(add)}


@probe(
    "numbers-before-commit",
    "A row gets its number when it is inserted, not when it is committed; "
    "so a lower number can appear later.",
    {"seen while the first sender is open": [2], "seen after its commit": [1, 2]},
)
def _numbers(place: Place) -> Facts:
    """One session inserts a row and stays in its transaction. Another inserts a second row and commits."""
    table, one, other = _table(place, 0)
    add = f"INSERT INTO {table} (id, headers) VALUES (gen_random_uuid(), '{{}}')"
    all_rows = f"SELECT seq FROM {table} ORDER BY seq"
    one.rows(add)
    other.rows(add)
    other.commit()
    before = other.first(all_rows)
    one.commit()
    return {"seen while the first sender is open": before, "seen after its commit": other.first(all_rows)}


@probe(
    "row-locks-do-not-escalate",
    "However many rows a statement locks, the table's lock stays ROW SHARE, and senders go on.",
    {"locked": 20_000, "locks on the table": ["RowShareLock"], "a sender waits": False},
)
def _no_escalation(place: Place) -> Facts:
    """One session locks 20,000 rows with one statement. Another inserts."""
    table, one, other = _table(place, 20_000)
    locked = one.first(f"SELECT count(*) FROM (SELECT FROM {table} FOR UPDATE) AS locked")[0]
    modes = one.first(
        f"SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = '{table}'::regclass"
    )
    waits = other.waits(f"INSERT INTO {table} (id, headers) VALUES (gen_random_uuid(), '{{}}')")
    return {"locked": locked, "locks on the table": modes, "a sender waits": waits}


@probe(
    "xmax-names-the-holder",
    "A row's xmax is the transaction that locks or deletes it, and pg_locks tells whose session that is.",
    {"the holder is found by a locked row": True, "by a deleted row": True},
)
def _xmax(place: Place) -> Facts:
    """One session locks row 1 and deletes row 2. Another looks for it by xmax."""
    table, one, other = _table(place)
    (pid,) = one.first("SELECT pg_backend_pid()")
    one.rows(f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE")
    one.rows(f"DELETE FROM {table} WHERE seq = 2")
    holder = (
        f"SELECT l.pid FROM {table} AS q JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.granted "
        "AND l.transactionid = q.xmax WHERE q.seq = %s"
    )
    return {
        "the holder is found by a locked row": other.first(holder, 1) == [pid],
        "by a deleted row": other.first(holder, 2) == [pid],
    }


@probe(
    "a-dead-session-frees-its-rows",
    "When the server ends a session, its rows are free and its deletes undone.",
    {"rows that the other session gets": [1, 2, 3]},
)
def _dead_session(place: Place) -> Facts:
    """One session locks row 1 and deletes row 2; the other ends it,
    waits until it is gone, and locks all rows.
    """
    table, one, other = _table(place)
    (pid,) = one.first("SELECT pg_backend_pid()")
    one.rows(f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE")
    one.rows(f"DELETE FROM {table} WHERE seq = 2")
    other.rows("SELECT pg_terminate_backend(%s)", pid)
    other.commit()

    def gone() -> bool:
        left = other.rows("SELECT FROM pg_stat_activity WHERE pid = %s", pid)
        other.commit()
        return not left

    eventually(gone)
    rows = other.first(f"SELECT seq FROM {table} ORDER BY seq FOR UPDATE SKIP LOCKED")
    return {"rows that the other session gets": rows}


@probe(
    "deferred-constraints-fail-early",
    "SET CONSTRAINTS ALL IMMEDIATE shows, behind a savepoint, what the commit would fail of.",
    {"the insert": "", "the check": "23505", "rows that the other session gets": [2, 3]},
)
def _deferred(place: Place) -> Facts:
    """A table has a deferred unique constraint.

    One session locks row 1, doubles an id behind a savepoint, and checks.
    """
    table, one, other = _table(place)
    one.rows(f"ALTER TABLE {table} ADD UNIQUE (headers) DEFERRABLE INITIALLY DEFERRED")
    one.commit()
    one.rows(f"SELECT seq FROM {table} WHERE seq = 1 FOR UPDATE")
    one.rows("SAVEPOINT attempt")
    insert = one.code(
        f"INSERT INTO {table} (id, headers) SELECT gen_random_uuid(), headers FROM {table} WHERE seq = 1"
    )
    check = one.code("SET CONSTRAINTS ALL IMMEDIATE")
    one.rows("ROLLBACK TO SAVEPOINT attempt")
    rows = other.first(f"SELECT seq FROM {table} WHERE seq <= 3 ORDER BY seq FOR UPDATE SKIP LOCKED")
    return {"the insert": insert, "the check": check, "rows that the other session gets": rows}


def _table(place: Place, rows: int = 3) -> tuple[str, Session, Session]:
    """The quoted name of a new queue table, and two sessions."""
    queue = place.queue(rows)
    return f'"{queue.schema}"."{queue.name}"', place.session(), place.session()
