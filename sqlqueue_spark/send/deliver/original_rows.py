"""Reads rows of an unfinished batch again as they were received. A transform may have changed them."""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from sqlqueue_spark.engines.open_connection import MOST_WAITING, Connection, open_reader
from sqlqueue_spark.errors import NoRight
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.outgoing import replaced
from sqlqueue_spark.messages.transit import as_stored
from sqlqueue_spark.messages.waiting_headers import given_up_at
from sqlqueue_spark.options import NO_TRANSACTION
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.send.compose.chunk import CHUNK_BYTES
from sqlqueue_spark.send.compose.column_values import gathered
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.received import Received
from sqlqueue_spark.tables import database_facts, queue_table, queues

_READ = pa.schema(
    [("Id", pa.string()), ("Headers", pa.string()), ("Body", pa.binary()), ("RowVersion", pa.int64())]
)

#: Rows whose numbers differ by at most this are read together.
_GAP = 64


class TooLarge(Exception):
    """Several rows together have more bytes than a chunk may have."""


def with_original_rows(
    connection: Connection, places: Places, rows: Received, positions: Sequence[int]
) -> Received:
    """The rows, of which these have the headers and bodies of their queues.

    A row that does not stand there (it comes from an archive, say) stays as it is.

    :param connection: one to their database, with no open transaction.
    :raises TooLarge: they are to be asked for in parts.
    """
    texts, bodies, size = list(rows.texts), rows.frame["Body"].to_pylist(), 0
    with contextlib.closing(_originals(connection, places, rows, positions)) as originals:
        for at, headers, body in originals:
            texts[at] = as_stored(headers) if rows.on_their_way else headers
            bodies[at] = body or b""
            size += len(headers or "") + len(bodies[at])
            if size > CHUNK_BYTES and len(positions) > 1:
                raise TooLarge
    columns = {"Headers": pa.array(texts, pa.string()), "Body": pa.array(bodies, pa.binary())}
    return replace(rows, frame=replaced(rows.frame, **columns))


def given_up(connection: Connection, places: Places, rows: Received, positions: Sequence[int]) -> set[int]:
    """Which of these rows have waited for a database for as long as they may, by their own headers.

    By the clock of their database, which also tells when they come back from where they wait.
    """
    with connection.transaction():
        now = database_facts.now(connection)
    texts = {at: rows.texts[at] for at in positions}
    texts |= {at: headers for at, headers, _ in _originals(connection, places, rows, positions)}
    return {at for at, text in texts.items() if (end := given_up_at(text)) is not None and end <= now}


def _originals(
    connection: Connection, places: Places, rows: Received, positions: Sequence[int]
) -> Generator[tuple[int, str | None, bytes | None], None, None]:
    """Each of these rows that stands in its queue: its position, headers and body.

    Their batch is not settled, so they stand there, and the claim's locks hide nothing from a plain read. In
    the mode none they are gone.
    """
    if places.home.transaction_mode == NO_TRANSACTION:
        return
    for queue, its in gathered(positions, rows.queue).items():
        with connection.transaction():
            table = queues.at(connection, places.received(queue).table)
        if table is not None:
            # Outcomes may be sent by a login that may not receive.
            with contextlib.suppress(*[NoRight] if rows.stores else ()):
                yield from _of_queue(connection, table.table, rows, its)


def _of_queue(
    connection: Connection, table: queue_table.QueueTable, rows: Received, positions: Sequence[int]
) -> Iterator[tuple[int, str | None, bytes | None]]:
    versions = {rows.frame["RowVersion"][at].as_py(): at for at in positions}
    statement = queues.read_statement(connection.dialect, table)
    hasty = replace(connection.target, lock_timeout=min(connection.target.lock_timeout, MOST_WAITING))
    with contextlib.closing(open_reader(hasty)) as reader:
        for span in RowSet.of(sorted(versions)).spans(_GAP):
            for batch in reader.batches(statement, span, _READ):
                wanted = pc.is_in(batch["RowVersion"], value_set=pa.array(list(versions), pa.int64()))
                for row in batch.filter(wanted).to_pylist():
                    at = versions[row["RowVersion"]]
                    if row["Id"].lower() == rows.row_id(at).lower():
                        yield at, row["Headers"], row["Body"]
