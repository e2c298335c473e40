r"""Reads the texts of a database without an encoding (SQL_ASCII), which keeps any bytes as a text.

A text of UTF-8 is read as it is. In any other one, ``\xe9`` stands for a byte that is no UTF-8. JSON does
not know this escape: headers with one are poison wherever they are read, and the error queue keeps them.
"""

from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from sqlqueue_spark.messages.arrow import pa

#: What PostgreSQL calls it.
UNCHECKED = "SQL_ASCII"


class UncheckedText(Loader):
    """A text as psycopg's cursors return it."""

    def load(self, data: Buffer) -> str:
        return _text(bytes(data))


class UncheckedBinaryText(UncheckedText):
    format = Format.BINARY


def readable(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """A batch as it came from the server, in which every text is one."""
    columns = [_readable(each) if pa.types.is_string(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _readable(texts: "pa.Array") -> "pa.Array":
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.binary()).to_pylist()
        return pa.array([None if each is None else _text(each) for each in raw], pa.string())
    return texts


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
