"""SQL Server 2016 and later, and Azure SQL: the tables of the .NET transport for SQL Server."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from importlib import resources
from typing import ClassVar

from sqlqueue_spark.engines.dialect import Dialect, Load
from sqlqueue_spark.engines.driver_errors import DriverError, Kind
from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.message import RECOVERABLE
from sqlqueue_spark.messages.outgoing import uuid_text
from sqlqueue_spark.row_set import RowSet

URL_SCHEME = "mssql://"
_NO_OBJECT = 208
#: Of a number, and so of the next one that the table would give a row.
_OVERFLOW = 8115

# https://learn.microsoft.com/sql/relational-databases/errors-events/database-engine-events-and-errors, and
# those of Azure: https://learn.microsoft.com/azure/azure-sql/database/troubleshoot-common-errors-issues;
# which of them may be tried again also by
# https://github.com/dotnet/efcore/blob/main/src/EFCore.SqlServer/Storage/Internal/SqlServerTransientExceptionDetector.cs
_NUMBERS = {
    **dict.fromkeys((64, 121, 233, 10053, 10054, 40143, 40166, 40197, 40540), Kind.CONNECTION_LOST),
    **dict.fromkeys((229, 230, 262), Kind.NO_RIGHT),
    **dict.fromkeys((911, 4060), Kind.NO_DATABASE),
    **dict.fromkeys((983, 10060, 17197), Kind.NOT_REACHED),
    # No room in a file or in the log, no page, a file that cannot grow; a log or database that cannot be
    # used; what cannot be read from or written to the disk; a quota of Azure.
    **dict.fromkeys((1101, 1105, 9001, 9002, 823, 824, 945, 1827, 5149, 40544, 1132), Kind.TAKES_NOTHING),
    **dict.fromkeys((1205, 10928, 10929, 10936, 40501, 49918, 49919, 49920), Kind.GAVE_WAY),
    **dict.fromkeys((2601, 2627), Kind.DUPLICATE),
    **dict.fromkeys((18452, 18456), Kind.LOGIN_REFUSED),
    1222: Kind.LOCK_TIMEOUT,
    51001: Kind.LOCK_TIMEOUT,  # we throw it where the server only returns a code
    207: Kind.WRONG_SHAPE,
    8622: Kind.WRONG_SHAPE,  # FORCESEEK found no index that begins with RowVersion
    # 102 and 319: what follows OPENJSON, and the word WITH behind it, at a compatibility level below 130.
    **dict.fromkeys((102, 156, 195, 319), Kind.NOT_UNDERSTOOD),
    _NO_OBJECT: Kind.NO_TABLE,
    596: Kind.CONNECTION_LOST,  # the session was killed
    4014: Kind.CONNECTION_LOST,  # the server could not read what we sent
    **dict.fromkeys((7105, 7886), Kind.CONNECTION_LOST),  # a read without locks met a large value that moved
    40549: Kind.CONNECTION_LOST,  # the session was ended: it took too long
    601: Kind.GAVE_WAY,  # a scan without locks met data that moved
    617: Kind.GAVE_WAY,  # "rerun the query"
    845: Kind.GAVE_WAY,  # a page could not be had in time
    **dict.fromkeys((3960, 3961), Kind.GAVE_WAY),  # SNAPSHOT: another session has changed row or table since
    **dict.fromkeys((8628, 8651), Kind.GAVE_WAY),  # no plan could be made in time, no memory for it now
    10922: Kind.GAVE_WAY,  # "rerun the statement"
    615: Kind.NOT_READY,  # the database's number changed by a fail-over
    **dict.fromkeys((921, 922), Kind.NOT_READY),  # the database is not recovered yet, or just being recovered
    952: Kind.NOT_READY,  # the database is just changing its state
    **dict.fromkeys((927, 955, 956), Kind.NOT_READY),  # being restored; a mirror waits for its partners
    4221: Kind.NOT_READY,  # a replica that was just started again waits for transactions to end
    **dict.fromkeys((6005, 17188), Kind.NOT_READY),  # the server is being shut down
    **dict.fromkeys((17142, 42108), Kind.NOT_READY),  # paused
    **dict.fromkeys((17187, 42109), Kind.NOT_READY),  # not ready yet, or warming up
    18401: Kind.NOT_READY,  # being upgraded
    40613: Kind.NOT_READY,  # a serverless database that was paused wakes up, or a fail-over
    926: Kind.NOT_REACHED,  # its recovery failed; a managed instance says so for a moment while it fails over
    # The replica that we know is no longer the primary one, or only read from; a mirror; an offline database.
    **dict.fromkeys((976, 978, 954, 942), Kind.NOT_REACHED),
    988: Kind.NOT_REACHED,  # too few replicas
    17809: Kind.NOT_REACHED,  # too many connections
    # No memory, no room among the pages in memory or for more locks, no memory for the statement in time.
    # The versions of rows have no room in tempdb, so that one is gone.
    **dict.fromkeys((701, 802, 1204, 8645, 3958, 3966), Kind.TOO_LARGE),
    # The session was ended: it took too many locks, too much of tempdb, of the log, or of memory.
    **dict.fromkeys(range(40550, 40554), Kind.SESSION_TOO_LARGE),
    916: Kind.NO_RIGHT,  # the login has no user in that database
    3906: Kind.READ_ONLY,  # or this is no longer the primary replica
    3908: Kind.TAKES_NOTHING,  # the database is in emergency mode, or was not recovered
    40515: Kind.OTHER_DATABASE,  # Azure SQL Database
}
_STATES = {
    "08": Kind.CONNECTION_LOST,
    "IMC": Kind.CONNECTION_LOST,  # the driver found an idle connection broken and could not mend it
    "28": Kind.LOGIN_REFUSED,
    "42S02": Kind.NO_TABLE,
    "42S22": Kind.WRONG_SHAPE,
    "40001": Kind.GAVE_WAY,
    "HYT00": Kind.TIMED_OUT,
    "HYT01": Kind.NOT_REACHED,
}


class SqlServer(Dialect):
    name = "sqlserver"
    title = "SQL Server"
    sql = resources.files(__package__) / "sql"
    default_schema = "dbo"
    ignores_case = True
    extra = "mssql"
    # A statement that takes 5,000 locks on one index or heap may be given a table lock, which stops every
    # sender. Locks on pages count, and a row may have a page to itself (docs/sqlserver-locking.md).
    chunk = 2_400
    queue_columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "Id": ("uniqueidentifier",),
        "Expires": ("datetime", "datetime2"),
        "Headers": ("nvarchar(max)", "varchar(max)"),
        "Body": ("varbinary(max)",),
        "RowVersion": ("bigint",),
    }
    message_columns = ("Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body")
    row_version = "RowVersion"
    longest_queue = (128, "characters")
    hides_tables = True
    reaches_other_databases = True
    staged_due = "Expires"
    written = 2_400
    longest_outbox = (128, "characters")
    entra_scope = "https://database.windows.net/.default"

    def row_version_index(self, table: str) -> str:  # noqa: ARG002 -- each table has index names of its own
        return "Index_RowVersion"

    def speaks(self, url: str) -> bool:
        return (
            url.lower().startswith(URL_SCHEME)
            or re.search(r"(?i)(^|;)\s*(driver|server|dsn)\s*=", url) is not None
        )

    def quote(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def bind(self, runs: RowSet) -> Parameters:
        return {"row_versions": _json(list(runs.rows()))}

    def bind_messages(self, messages: "pa.RecordBatch") -> Load:
        rows = list(_rows(messages))
        if RECOVERABLE in messages.schema.names:
            rows = [(*row, each) for row, each in zip(rows, messages[RECOVERABLE].to_pylist(), strict=True)]
        return {"messages": _json(rows)}

    def bind_staged(self, task: str, messages: "Mapping[str, pa.RecordBatch]") -> tuple[int, Load]:
        rows = [(*row, name) for name, its in messages.items() for row in _rows(its)]
        return len(rows), {"task": task, "messages": _json(rows)}

    def bind_due(
        self, rows: Sequence[str], ids: Sequence[str], kept: Sequence[int], rests: Sequence[str]
    ) -> Parameters:
        numbers, dues = zip(*(row.split(" ") for row in rows), strict=True)
        columns = (range(len(rows)), map(int, numbers), dues, ids, kept, rests)
        return {"moved": _json(list(zip(*columns, strict=True)))}

    def bind_texts(self, texts: Sequence[str]) -> object:
        return _json(list(texts))

    def literal(self, text: str) -> str:
        return "N" + super().literal(text)

    def kind(self, error: DriverError) -> Kind:
        if error.number == _NO_OBJECT and "OPENJSON" in error.message:
            return Kind.NOT_UNDERSTOOD
        if error.number == _OVERFLOW and "IDENTITY" in error.message:
            return Kind.TABLE_TAKES_NOTHING
        if error.number in _NUMBERS:
            return _NUMBERS[error.number]
        if error.sqlstate is None:  # the driver's own words, not the server's
            closed = "connection" in error.message and "closed" in error.message
            return Kind.CONNECTION_LOST if closed else Kind.OTHER
        if "SSL Provider" in error.message and "certificate" in error.message:
            return Kind.NOT_TRUSTED
        if "connection string attribute" in error.message:
            return Kind.WRONG_URL
        state = error.sqlstate
        return _STATES.get(state) or _STATES.get(state[:3]) or _STATES.get(state[:2]) or Kind.OTHER


def _rows(messages: "pa.RecordBatch") -> Iterator[tuple[object, ...]]:
    """What ``insert`` reads of each message, with its number first; times only as exact as datetime is."""
    columns = ("id", "expires", "headers", "body", "correlation_id", "reply_to")
    rows = zip(*(messages[name].to_pylist() for name in columns), strict=True)
    for number, (id_, expires, headers, body, correlation_id, reply_to) in enumerate(rows):
        yield (
            number,
            uuid_text(id_),
            expires and expires.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds"),
            headers,
            None if body is None else base64.b64encode(body).decode("ascii"),
            correlation_id,
            reply_to,
        )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
