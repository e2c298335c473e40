"""What operators and accidents do to a queue table, in each engine's words."""

from tests.support.engines import Engine, QueueTable
from tests.support.messages import body, headers, row_id

_POSTGRESQL = {
    "truncate": "TRUNCATE TABLE {table} RESTART IDENTITY",
    "other ids": "UPDATE {table} SET id = gen_random_uuid() WHERE seq BETWEEN %d AND %d",
    "expire": (
        "UPDATE {table} SET expires = now() AT TIME ZONE 'UTC' - interval '1 second' WHERE "
        "seq BETWEEN %d AND %d"
    ),
    "delete": "DELETE FROM {table} WHERE seq BETWEEN %d AND %d",
    "insert at": "INSERT INTO {table} (id, headers, body, seq) VALUES ('%s', '%s', '%s', %d)",
    "in a transaction": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = '%s' AND xact_start IS NOT NULL",
    "waiting": (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ),
}
_SQLSERVER = {
    "truncate": "TRUNCATE TABLE {table}",
    "other ids": "UPDATE {table} SET Id = NEWID() WHERE RowVersion BETWEEN %d AND %d",
    "expire": (
        "UPDATE {table} SET Expires = DATEADD(second, -1, GETUTCDATE()) WHERE RowVersion BETWEEN %d AND %d"
    ),
    "delete": "DELETE FROM {table} WHERE RowVersion BETWEEN %d AND %d",
    "insert at": "SET IDENTITY_INSERT {table} ON; INSERT INTO {table} (Id, Recoverable, "
    "Headers, Body, RowVersion) VALUES ('%s', 1, '%s', CAST('%s' AS varbinary(max)), %d); SET "
    "IDENTITY_INSERT {table} OFF",
    # Microsoft's driver has a transaction open from the moment it connects.
    # So only a transaction with locks counts.
    "in a transaction": "SELECT s.session_id FROM sys.dm_exec_sessions AS s WHERE s.program_name = '%s' AND "
    "s.database_id = DB_ID() AND EXISTS (SELECT 1 FROM sys.dm_tran_locks AS l "
    "WHERE l.request_session_id = s.session_id AND l.resource_type <> 'DATABASE')",
    "waiting": (
        "SELECT session_id FROM sys.dm_exec_requests WHERE blocking_session_id <> 0 AND database_id = DB_ID()"
    ),
}


def _said(engine: Engine, what: str) -> str:
    if engine.name == "sqlserver" and what in ("in a transaction", "waiting"):
        from tests.support import lookalikes  # which needs the driver's library

        lookalikes.require("tells_who_holds_locks")
    return {"postgresql": _POSTGRESQL, "sqlserver": _SQLSERVER}[engine.name][what]


def truncate(engine: Engine, queue: QueueTable) -> None:
    """Empty the table and let its numbers begin again."""
    queue.execute(_said(engine, "truncate"))


def drop(queue: QueueTable) -> None:
    queue.execute("DROP TABLE {table}")


def keep_ids_unique(engine: Engine, queue: QueueTable) -> None:
    """Keep two rows from having the same id, as the tables of some versions do anyway."""
    if engine.name == "sqlserver":
        queue.execute("CREATE UNIQUE NONCLUSTERED INDEX Index_Id ON {table} (Id)")


def put_other_messages(engine: Engine, queue: QueueTable, first: int, last: int) -> None:
    """Put other messages under these numbers, as in a table that was restored and then got other messages."""
    queue.execute(_said(engine, "other ids") % (first, last))


def expire(engine: Engine, queue: QueueTable, first: int, last: int) -> None:
    """Let these rows expire."""
    queue.execute(_said(engine, "expire") % (first, last))


def delete(engine: Engine, queue: QueueTable, first: int, last: int) -> None:
    """Take these rows for good, as other receivers do."""
    queue.execute(_said(engine, "delete") % (first, last))


def insert_at(engine: Engine, queue: QueueTable, *row_versions: int) -> None:
    """Put messages under these numbers.

    The messages are numbered from 0, in the order of the given numbers.
    """
    for number, row_version in enumerate(row_versions):
        texts = (
            text.replace("{", "{{").replace("}", "}}") for text in (headers(number), body(number).decode())
        )
        queue.execute(_said(engine, "insert at") % (row_id(number), *texts, row_version))


def a_session_waits(engine: Engine) -> bool:
    """Whether a session of this database waits for a lock now."""
    return len(engine.fetch(_said(engine, "waiting"))) > 0


def holds_a_transaction(engine: Engine, program: str) -> bool:
    """Whether a session of this program has a transaction open."""
    return len(engine.fetch(_said(engine, "in a transaction") % program)) > 0
