"""PostgreSQL: the tables of the .NET transport for PostgreSQL, on server 13 and later."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any, ClassVar

from sqlqueue_spark.engines.dialect import ClaimedColumns, Dialect, Load
from sqlqueue_spark.engines.driver_errors import DriverError, Kind
from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.messages.arrow import pa, pc
from sqlqueue_spark.messages.outgoing import uuid_text
from sqlqueue_spark.row_set import RowSet

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_KINDS = {
    **dict.fromkeys(("25P03", "25P04", "57P01", "57P02", "57P05"), Kind.CONNECTION_LOST),
    **dict.fromkeys(("28000", "28P01"), Kind.LOGIN_REFUSED),
    **dict.fromkeys(("3F000", "42P01"), Kind.NO_TABLE),
    **dict.fromkeys(("40001", "55006"), Kind.GAVE_WAY),  # 55006: others are kept out
    "40P01": Kind.DEADLOCK,
    **dict.fromkeys(("42703", "42804", "42883", "42809"), Kind.WRONG_SHAPE),
    "25006": Kind.READ_ONLY,  # a standby, or a database or login whose transactions are read-only
    # What follows says nothing of a row: the table takes no COPY or takes none in a WITH (row security, a
    # rule), is a view, or has used up its numbers.
    **dict.fromkeys(("0A000", "2200H", "55000"), Kind.TABLE_TAKES_NOTHING),
    # No room on the disk, more temporary files than allowed; the system's errors; what is damaged on disk.
    **dict.fromkeys(("53100", "53400", "58000", "58030", "XX001", "XX002"), Kind.TAKES_NOTHING),
    "53200": Kind.TOO_LARGE,  # no memory, or no room for more locks
    "57P03": Kind.NOT_READY,  # the server is just starting, recovering or shutting down
    "3D000": Kind.NO_DATABASE,
    "42501": Kind.NO_RIGHT,
    **dict.fromkeys(("22021", "22P05"), Kind.LETTERS),
    "23505": Kind.DUPLICATE,
    "53300": Kind.TOO_MANY,
    "55P03": Kind.LOCK_TIMEOUT,
    "57014": Kind.TIMED_OUT,
}

#: What these states mean of a login.
_REFUSALS = {"42501": Kind.NO_CONNECT, "55000": Kind.NO_DATABASE}

# COPY's binary format: https://www.postgresql.org/docs/current/sql-copy.html. A row is its number of fields
# and the fields, each with its length before it.
_COPY_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_FOUR_FIELDS = (4).to_bytes(2)
_SIX_FIELDS = (6).to_bytes(2)
_SIXTEEN_BYTES = (16).to_bytes(4)
_EIGHT_BYTES = (8).to_bytes(4)
# Types by their numbers: https://www.postgresql.org/docs/current/catalog-pg-type.html
_BYTEA, _TEXT, _TIMESTAMP, _UUID = 17, 25, 1114, 2950
#: The year 2000, in microseconds since 1970.
_EPOCH = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000

#: What libpq says where it passes no state on: of a server that refuses a login, and of one that does not
#: answer. The first that fits counts. Words of the server: src/backend/libpq/auth.c,
#: src/backend/utils/init/{miscinit,postinit}.c; of libpq: src/interfaces/libpq/fe-connect.c and
#: fe-secure-openssl.c.
_WORDS = {
    Kind.NOT_READY: ("the database system is ",),  # 57P03
    Kind.ONLY_LOCAL_USER: ("Peer authentication failed", "Ident authentication failed"),
    Kind.LOGIN_REFUSED: ("authentication failed for user",),
    Kind.NO_PASSWORD: ("no password supplied",),
    Kind.NOT_ADMITTED: ("no pg_hba.conf entry", "pg_hba.conf rejects", "requires a valid client certificate"),
    Kind.NO_TICKET: ("server requested GSSAPI authentication", "server requested SSPI authentication"),
    Kind.NO_LOGIN: ("is not permitted to log in",),
    Kind.TOO_MANY: (
        *("too many clients already", "too many connections for", "connection slots are reserved"),
        "no more connections allowed",  # PgBouncer's
    ),
    Kind.NO_CONNECT: ("permission denied for database",),
    Kind.NO_DATABASE: ("is not currently accepting connections",),
    Kind.WRONG_URL: ("invalid sslmode value", "invalid integer value"),
    Kind.NO_ENCRYPTION: ("does not support SSL",),
    Kind.NOT_TRUSTED: ("certificate verify failed", "server certificate for", "root certificate file"),
    Kind.OTHER_SERVER: ("invalid response to SSL negotiation", "expected authentication request from server"),
}
#: What says more than its state does.
_SAID = {
    "in statement pooling mode": Kind.SHARED_SESSION,  # PgBouncer's words
    "new row violates row-level security": Kind.OTHER,  # others may go in
    "cached plan must not change result type": Kind.GAVE_WAY,  # a rollback lets it be prepared anew
}


class PostgreSQL(Dialect):
    name = "postgresql"
    title = "PostgreSQL"
    sql = resources.files(__package__) / "sql"
    default_schema = "public"
    extra = "postgresql"
    # Row locks never escalate. A claim by 20,000 rows a statement is twice as fast as by 4,000.
    chunk = 20_000
    queue_columns: ClassVar[Mapping[str, Sequence[str]]] = {
        "id": ("uuid",),
        "expires": ("timestamp without time zone",),
        "headers": ("text", "character varying"),
        "body": ("bytea",),
        "seq": ("bigint", "integer"),
    }
    message_columns = ("id", "expires", "headers", "body")
    row_version = "seq"
    longest_queue = (55, "bytes")  # 63 less what index names add
    escalates = False
    tells_receivers = True
    lock_timeout_ends_with_transaction = True
    staged_due = "expires AT TIME ZONE 'UTC'"
    quoted_addresses = True
    null_body_stops = True
    keeps_nul = False
    longest_prefix = 20
    # 63 less what index names add: PostgreSQL cuts longer names, and then they are the same.
    longest_outbox = (50, "bytes")
    drops_rows = True
    entra_scope = "https://ossrdbms-aad.database.windows.net/.default"

    def row_version_index(self, table: str) -> str:
        """Cut to the 63 bytes that a name may have."""
        ending = "_seq_key"
        return table.encode()[: 63 - len(ending)].decode(errors="ignore") + ending

    def speaks(self, url: str) -> bool:
        return url.startswith(("postgresql://", "postgres://"))

    def claimed(self, rows: Sequence[tuple[Any, ...]]) -> ClaimedColumns | None:
        row_versions, expired, sizes, in_transit, same = rows[0]
        if not same:  # the step is repeated, and opens the queue anew
            raise ConnectionLost("A queue's name means another table than before; try again.")
        return (row_versions, expired, sizes, in_transit or ()) if row_versions else None

    def bind(self, runs: RowSet) -> Parameters:
        return {"firsts": [first for first, _ in runs], "lasts": [last for _, last in runs]}

    def bind_messages(self, messages: pa.RecordBatch) -> Load:
        # C code weaves the columns into rows: Python took longer for it than the server for the insert.
        headers, body = messages["headers"].cast(pa.binary()), messages["body"]
        ids = messages["id"].cast(pa.binary())
        beginning = (_FOUR_FIELDS, _SIXTEEN_BYTES, ids, _timestamps(messages["expires"]))
        rows = _joined(*beginning, _lengths(headers), headers, _lengths(body), body)
        return _COPY_HEADER, rows, _COPY_END

    def bind_columns(self, messages: pa.RecordBatch) -> Parameters:
        ids = [uuid_text(each) for each in messages["id"].to_pylist()]
        expires = [each and each.replace(tzinfo=None) for each in messages["expires"].to_pylist()]
        headers, bodies = (messages[name].to_pylist() for name in ("headers", "body"))
        return {"ids": ids, "expires": expires, "headers": headers, "bodies": bodies}

    def bind_staged(self, task: str, messages: Mapping[str, pa.RecordBatch]) -> tuple[int, Load]:
        parts: list[bytes | memoryview] = [_COPY_HEADER]
        for destination, its in messages.items():
            parts += (_SIX_FIELDS, _field(task.encode()), _field(destination.encode()), *_arrays(its))
        return len(messages), (*parts, _COPY_END)

    def bind_due(
        self, rows: Sequence[str], ids: Sequence[str], kept: Sequence[int], rests: Sequence[str]
    ) -> Parameters:
        columns = {"rows": rows, "ids": ids, "kept": [*map(str, kept)], "rests": rests}
        return {name: _array(texts) for name, texts in columns.items()}

    def bind_texts(self, texts: Sequence[str]) -> object:
        return _array(texts)

    def literal(self, text: str) -> str:
        quoted = super().literal(text.replace("\\", "\\\\"))
        return "E" + quoted if "\\" in text else quoted

    def kind(self, error: DriverError) -> Kind:
        sqlstate, _, message = error
        if sqlstate is None:  # libpq failed before the server said anything, or without it
            if _is_missing("database", message):
                return Kind.NO_DATABASE
            if _is_missing("role", message):
                return Kind.NO_USER
            for kind, words in _WORDS.items():
                if any(each in message for each in words):
                    return kind
            if "ERROR:" in message:  # the server's, but ADBC does not pass the state of a failed commit on
                gave_way = "could not serialize" in message or "deadlock detected" in message
                return Kind.GAVE_WAY if gave_way else Kind.OTHER
            return Kind.CONNECTION_LOST
        if said := [kind for words, kind in _SAID.items() if words in message]:
            return said[0]
        return Kind.CONNECTION_LOST if sqlstate.startswith("08") else _KINDS.get(sqlstate, Kind.OTHER)

    def refusal(self, sqlstate: str) -> Kind:
        """What the state of a refused login means."""
        kind = _REFUSALS.get(sqlstate) or self.kind(DriverError(sqlstate, None, ""))
        return Kind.NOT_REACHED if kind is Kind.CONNECTION_LOST else kind


def _arrays(messages: pa.RecordBatch) -> Iterator[bytes | memoryview]:
    """The columns of messages as four fields of COPY, each an array."""
    headers, body = messages["headers"].cast(pa.binary()), messages["body"]
    count = messages.num_rows
    for type_, elements in (
        (_UUID, _joined(_SIXTEEN_BYTES, messages["id"].cast(pa.binary()))),
        (_TIMESTAMP, _joined(_timestamps(messages["expires"]), pa.repeat(b"", count))),
        (_TEXT, _joined(_lengths(headers), headers)),
        (_BYTEA, _joined(_lengths(body), body)),
    ):
        # how many dimensions, whether any element is NULL (the server sees for itself), type; length, lower
        # bound
        head = struct.pack(">iiIii", 1, 1, type_, count, 1)
        yield (len(head) + len(elements)).to_bytes(4) + head
        yield elements


def _is_missing(what: str, message: str) -> bool:
    """Whether libpq says in a line that there is no database or role of a name, whatever the name is."""
    begin = f'{what} "'
    return any(
        0 <= line.find(begin) <= line.rfind('" does not exist') - len(begin) for line in message.split("\n")
    )


def _joined(*columns: bytes | pa.Array) -> memoryview:
    """The values of each row one after the other, row after row.

    A column that is given as bytes is the same in each row; NULL adds nothing.
    """
    joined = pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")
    return memoryview(joined.buffers()[2])


def _field(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value


def _lengths(values: pa.Array) -> pa.Array:
    """The four bytes before each value; a NULL has the length -1."""
    return _big_endian("i", pc.fill_null(pc.binary_length(values), -1))


def _timestamps(moments: pa.Array) -> bytes | pa.Array:
    """Fields of COPY: the length, then microseconds since the year 2000, in UTC."""
    if moments.null_count == len(moments):
        return _NULL
    since = pc.fill_null(pc.subtract(moments.cast(pa.int64()), _EPOCH), 0)
    fields = pc.binary_join_element_wise(_EIGHT_BYTES, _big_endian("q", since), b"")
    return pc.if_else(moments.is_valid(), fields, pa.scalar(_NULL))


def _big_endian(code: str, numbers: pa.Array) -> pa.Array:
    """Numbers without NULL as bytes, the highest byte first."""
    swapped = array(code, numbers.to_pylist())
    if sys.byteorder == "little":
        swapped.byteswap()
    width = pa.binary(swapped.itemsize)
    return pa.Array.from_buffers(width, len(numbers), [None, pa.py_buffer(swapped)]).cast(pa.binary())


def _array(texts: Sequence[str]) -> str:
    """An array as the server reads it. The driver's own way costs 13 times as much for 4,000 messages."""
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') != 2 * max(0, len(texts) - 1):
        joined = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in texts])
    return f'{{"{joined}"}}' if texts else "{}"
