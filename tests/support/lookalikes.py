"""Finds out what a server that speaks TDS without being SQL Server can do of what SQL Server does,
by asking it.

SQL Server is never asked: it can do everything, and what fails there is a failing test.
"""

import functools
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyodbc
import pytest

from tests.support.sqlserver import connected, fresh_database, is_sqlserver
from tests.support.versions import SQLSERVER_VARIABLE


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a test may need of a server, by the names that ``@pytest.mark.needs`` takes."""

    #: A name between brackets may hold a closing bracket, doubled.
    quotes_brackets: bool = True
    #: QUOTENAME doubles closing brackets and nothing else.
    doubles_brackets_only: bool = True
    #: The catalogue spells a name as the statement that created it did.
    keeps_case: bool = True
    #: A table that is not there is error 208.
    numbers_missing_tables: bool = True
    #: A lock timeout is error 1222.
    numbers_lock_timeouts: bool = True
    #: A character of nvarchar counts two bytes.
    measures_utf16: bool = True
    #: READUNCOMMITTED sees rows that are just being sent.
    reads_uncommitted: bool = True
    #: UPDLOCK locks what is read, READPAST steps over what others hold.
    honours_lock_hints: bool = True
    #: ``WITH batch AS (SELECT TOP …) DELETE FROM batch OUTPUT …``
    deletes_through_cte: bool = True
    #: OPENJSON … WITH unescapes texts, keeps long ones and decodes Base64.
    reads_json_as_documented: bool = True
    #: An index is found under the name it was given, with its kind and its filter.
    describes_indexes: bool = True
    #: The catalogue tells who holds locks and who waits (sys.dm_tran_locks, sys.dm_exec_requests).
    tells_who_holds_locks: bool = True
    #: The catalogue tells how full the pages of a table are.
    tells_used_pages: bool = True
    #: A login may have a password that no policy checks.
    makes_logins: bool = True
    #: There are isolation levels above READ COMMITTED.
    isolates_more_strictly: bool = True
    #: ALTER DATABASE changes settings.
    alters_databases: bool = True


#: One thread asks, the others wait for its answer.
_ASKING = threading.Lock()


def require(*abilities: str) -> None:
    """Skip the test, and say why, when the server on which the tests run lacks one of these abilities."""
    able = given()
    for ability in abilities:
        if not getattr(able, ability):
            pytest.skip(f"this server is not SQL Server, and lacks what the test needs: {ability}")


def given() -> Abilities:
    """What the server can do on which the tests run."""
    with _ASKING:
        return abilities_of(os.environ[SQLSERVER_VARIABLE])


@functools.cache
def abilities_of(url: str) -> Abilities:
    """What the server can do; asked once."""
    with connected(url, autocommit=True) as connection:
        if is_sqlserver(connection):
            return Abilities()
    with fresh_database(url, f"sqlqueue_probe_{os.getpid()}") as there:
        with connected(there) as connection:
            connection.execute(
                "CREATE TABLE dbo.probe (RowVersion bigint IDENTITY(1,1) NOT NULL, Text nvarchar(max) NULL)"
            )
            connection.execute("CREATE CLUSTERED INDEX Index_RowVersion ON dbo.probe (RowVersion)")
            connection.execute("INSERT INTO dbo.probe (Text) VALUES (N'a'), (N'b')")
            connection.commit()
        return Abilities(**{name: _succeeds(there, probe) for name, probe in _PROBES.items()})


def _succeeds(url: str, probe: Callable[[pyodbc.Connection, pyodbc.Connection], bool]) -> bool:
    """Whether a probe finds what SQL Server would show.

    :param probe: it gets two connections. What it does on them is rolled back.
    """
    with connected(url) as one, connected(url) as other:
        try:
            return probe(one, other)
        except pyodbc.Error:
            return False


def _honours_lock_hints(one: pyodbc.Connection, other: pyodbc.Connection) -> bool:
    one.execute("SELECT Text FROM dbo.probe WITH (UPDLOCK, ROWLOCK) WHERE RowVersion = 1").fetchall()
    free = other.execute("SELECT Text FROM dbo.probe WITH (UPDLOCK, READPAST, ROWLOCK)").fetchall()
    return [text for (text,) in free] == ["b"]


def _deletes_through_cte(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    statement = (
        "WITH batch AS (SELECT TOP (1) Text FROM dbo.probe ORDER BY RowVersion) "
        "DELETE FROM batch OUTPUT CAST(deleted.Text AS nvarchar(max))"
    )
    return [text for (text,) in one.execute(statement).fetchall()] == ["a"]


def _reads_json_as_documented(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    statement = (
        "SELECT Body, Text, LEN(Long) FROM OPENJSON(CAST(? AS nvarchar(max))) "
        "WITH (Body varbinary(max) '$[0]', Text nvarchar(max) '$[1]', Long nvarchar(max) '$[2]')"
    )
    found = one.execute(statement, json.dumps([["AP8=", 'a"b\\', "x" * 5000]])).fetchall()
    return [tuple(row) for row in found] == [(b"\x00\xff", 'a"b\\', 5000)]


def _describes_indexes(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    found = one.execute("SELECT name, type_desc FROM sys.indexes WHERE object_id = OBJECT_ID(N'dbo.probe')")
    return [tuple(row) for row in found.fetchall()] == [("Index_RowVersion", "CLUSTERED")]


def _tells_who_holds_locks(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    one.execute("SELECT request_session_id FROM sys.dm_tran_locks").fetchall()
    one.execute("SELECT session_id FROM sys.dm_exec_requests WHERE blocking_session_id <> 0").fetchall()
    return True


def _tells_used_pages(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    return bool(one.execute("SELECT used_pages FROM sys.allocation_units").fetchall())


def _makes_logins(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    one.autocommit = True  # CREATE LOGIN is no part of a transaction
    name = f"sqlqueue_probe_{os.getpid()}"
    one.execute(f"CREATE LOGIN {name} WITH PASSWORD = N'open sesame', CHECK_POLICY = OFF")
    one.execute(f"DROP LOGIN {name}")
    return True


def _isolates_more_strictly(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        one.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    return True


def _alters_databases(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    one.autocommit = True  # ALTER DATABASE is no part of a transaction
    one.execute("ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130")
    return True


def _numbers_missing_tables(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    with pytest.raises(pyodbc.Error) as caught:
        one.execute("SELECT Text FROM dbo.missing")
    return "(208)" in str(caught.value)


def _numbers_lock_timeouts(one: pyodbc.Connection, other: pyodbc.Connection) -> bool:
    one.execute("UPDATE dbo.probe SET Text = N'c' WHERE RowVersion = 1")
    other.execute("SET LOCK_TIMEOUT 1")
    with pytest.raises(pyodbc.Error) as caught:
        other.execute("UPDATE dbo.probe SET Text = N'd' WHERE RowVersion = 1")
    return "(1222)" in str(caught.value)


def _measures_utf16(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    return bool(one.execute("SELECT DATALENGTH(Text) FROM dbo.probe WHERE RowVersion = 1").fetchval() == 2)


def _reads_uncommitted(one: pyodbc.Connection, other: pyodbc.Connection) -> bool:
    one.execute("INSERT INTO dbo.probe (Text) VALUES (N'c')")
    found = other.execute("SELECT COUNT(*) FROM dbo.probe WITH (READUNCOMMITTED)")
    return bool(found.fetchval() == 3)


def _doubles_brackets_only(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    found = one.execute("SELECT QUOTENAME(?)", "a]'b\"")
    return bool(found.fetchval() == "[a]]'b\"]")


def _keeps_case(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    one.execute("CREATE TABLE dbo.Mixed (n int)")
    found = one.execute("SELECT name FROM sys.tables WHERE name = N'Mixed'")
    return bool(found.fetchval() == "Mixed")


def _quotes_brackets(one: pyodbc.Connection, _: pyodbc.Connection) -> bool:
    one.execute("CREATE TABLE dbo.[a]]b] (n int)")
    return True


_PROBES = {
    "numbers_missing_tables": _numbers_missing_tables,
    "numbers_lock_timeouts": _numbers_lock_timeouts,
    "measures_utf16": _measures_utf16,
    "reads_uncommitted": _reads_uncommitted,
    "doubles_brackets_only": _doubles_brackets_only,
    "keeps_case": _keeps_case,
    "quotes_brackets": _quotes_brackets,
    "honours_lock_hints": _honours_lock_hints,
    "deletes_through_cte": _deletes_through_cte,
    "reads_json_as_documented": _reads_json_as_documented,
    "describes_indexes": _describes_indexes,
    "tells_who_holds_locks": _tells_who_holds_locks,
    "tells_used_pages": _tells_used_pages,
    "makes_logins": _makes_logins,
    "isolates_more_strictly": _isolates_more_strictly,
    "alters_databases": _alters_databases,
}
