"""Whether a table has the columns of a queue: which it lacks, and which have another type."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.queue_table import QueueTable

_BYTES = {"bytea", "varbinary", "binary", "image"}
_TEXTS = {"text", "character varying", "character", "varchar", "nvarchar", "char", "nchar", "ntext"}
_DOCUMENTS = {"json", "jsonb", "xml"}
#: What a message is made of, and types with which each is never what it should be: the server converts them.
CONTENT = {"headers": _BYTES | _DOCUMENTS, "body": _TEXTS | _DOCUMENTS}
#: What to do with a misshapen table.
_ANEW = "create a table of another name with sqlqueue create and move the rows, or correct the queue name"


class Misfit(NamedTuple):
    """A column that a table lacks or has of another type: a sentence, and whether the table is of no use."""

    message: str
    unusable: bool


def misfits(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> Iterator[Misfit]:
    """Which columns a table lacks or has of another type.

    It is of no use without a column, with headers that are no text, or with a body that is no bytes.

    :param wanted: the columns that it must have, each with the types that it may have.
    """
    types = {column.name.lower(): column.type for column in table.columns}
    for name, allowed in wanted.items():
        found, told = types.get(name.lower()), " or ".join(allowed)
        kind = (found or "").partition("(")[0]
        if found is None:
            yield Misfit(f"{table.name} has no column {name} ({told}); {_ANEW}.", unusable=True)
        elif found not in allowed and kind not in allowed:
            message = f"The column {name} of {table.name} is {found}, not {told}; {_ANEW}."
            yield Misfit(message, unusable=kind in CONTENT.get(name.lower(), ()))


def check_shape(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> None:
    """:raises QueueError: the table is of no use, also while it is empty: the first such :func:`misfits`."""
    for each in misfits(table, wanted):
        if each.unusable:
            raise QueueError(each.message)


def find_queue(connection: Connection, table: Table) -> QueueTable | None:
    """As :func:`queue_table.find`, for a queue.

    :raises QueueError: the table is of no use as one.
    """
    if (found := queue_table.find(connection, table)) is not None:
        if found.due:
            raise QueueError(
                f"{found.name} is a table of delayed messages; name its queue, or look at it with: sqlqueue "
                "delayed length QUEUE."
            )
        check_shape(found, connection.dialect.queue_columns)
    return found
